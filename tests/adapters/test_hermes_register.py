"""What the host is given when it loads the plugin, and what happens where that fails."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
from hosts.hermes_fake import FakeBase
from hosts.hermes_process import big_history, started

from jev_engine import ContextEngine
from jev_engine.errors import ConfigError
from jev_engine_adapters.hermes import register
from jev_engine_adapters.hermes.engine import HermesEngine
from jev_engine_adapters.hermes.state import Shared


class Context:
    """What the host gives a plugin; members that its version lacks are missing."""

    def __init__(self, *missing: str) -> None:
        self.engines: list[Any] = []
        self.commands: dict[str, Any] = {}
        self.hooks: dict[str, Any] = {}
        for name in ("register_context_engine", "register_command", "register_hook"):
            if name not in missing:
                setattr(self, name, getattr(self, f"_{name}"))

    def _register_context_engine(self, engine: Any) -> None:
        self.engines.append(engine)

    def _register_command(self, name: str, handler: Any, description: str = "") -> None:
        self.commands[name] = handler

    def _register_hook(self, name: str, callback: Any) -> None:
        self.hooks[name] = callback


@pytest.fixture
def host_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As much of the host's package as `register` imports."""
    package, module = ModuleType("agent"), ModuleType("agent.context_engine")
    module.ContextEngine = FakeBase  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "agent", package)
    monkeypatch.setitem(sys.modules, "agent.context_engine", module)


@pytest.mark.usefixtures("host_package")
def test_registering_gives_the_host_engine_command_and_hooks() -> None:
    ctx = Context()
    register(ctx)

    assert [type(engine).__mro__[1] for engine in ctx.engines] == [HermesEngine]
    assert ctx.commands["jev"]("").startswith("jev-engine: active")
    assert {"pre_api_request", "on_session_start", "post_tool_call"} <= set(ctx.hooks)


@pytest.mark.usefixtures("host_package")
@pytest.mark.parametrize("missing", ["register_context_engine", "register_command", "register_hook"])
def test_a_host_that_lacks_a_seam_costs_detail_only(missing: str) -> None:
    """The others are used all the same."""
    ctx = Context(missing)
    register(ctx)

    taken = {"register_context_engine": ctx.engines, "register_command": ctx.commands, "register_hook": ctx.hooks}
    assert [name for name, found in taken.items() if not found] == [missing]


def test_a_host_without_engines_is_left_alone() -> None:
    ctx = Context()
    register(ctx)

    assert not ctx.engines


def test_settings_that_make_no_engine_are_told_and_do_no_harm() -> None:
    """The host's own compressor does the work then; here there is none, so the list comes back."""

    def refuse() -> ContextEngine:
        raise ConfigError("settings.toml: miss_cost = 'x': not a number", setting="miss_cost")

    engine = started(Shared(refuse))
    messages = big_history()

    assert engine.should_compress(60_000)
    assert engine.compress(messages, current_tokens=60_000) is messages
    assert engine.get_status()["state"] == "degraded"
    assert "miss_cost" in (engine.shared.trouble or "")
