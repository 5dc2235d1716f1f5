"""Plugins: a broken one is named and the others work."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from passing import long_text

from jev_engine import ContextEngine, hookimpl
from jev_engine.bridge import run
from jev_engine.errors import ConfigError, UnknownAdapter
from jev_engine.plugins import load_plugins
from jev_engine.testing import ScriptedJudge, call, history, result, user
from jev_engine_adapters.openai import OpenAIAdapter


class Named(OpenAIAdapter):
    """An adapter under a name of its own."""

    def __init__(self, name: str) -> None:
        self.name = name


class Good:
    """Registers one of everything."""

    @hookimpl
    def register_adapters(self, register: Any) -> None:
        register(Named("mine"))

    @hookimpl
    def register_judges(self, register: Any) -> None:
        register("scripted", lambda: ScriptedJudge({}))

    @hookimpl
    def register_pins(self, register: Any) -> None:
        register(lambda unit: "ours" if unit.tool == "ours" else None)


class BrokenHook:
    """Raises in the middle of registering."""

    @hookimpl
    def register_pins(self, register: Any) -> None:
        raise ValueError("no such setting")


class BrokenSniff:
    """Registers an adapter that cannot take what it is shown."""

    @hookimpl
    def register_adapters(self, register: Any) -> None:
        adapter = Named("narrow")
        adapter.sniff = lambda messages: messages[0]["no such field"]  # type: ignore[method-assign]  # the fault
        register(adapter)


def test_what_a_plugin_registers_is_found_by_name() -> None:
    """Adapters, judges, pins."""
    plugins = load_plugins([Good()], entry_points=False)

    assert plugins.adapter("mine").name == "mine"
    assert list(plugins.judges) == ["scripted"]
    assert len(plugins.pins) == 1
    assert plugins.broken == []


@pytest.mark.parametrize("order", [[0, 1, 2], [1, 2, 0], [2, 0, 1]])
def test_a_broken_hook_is_named_and_the_others_work(order: list[int]) -> None:
    """In any order, and however many are broken."""
    given = [Good(), BrokenHook(), BrokenHook()]
    plugins = load_plugins([given[place] for place in order], entry_points=False)

    assert "mine" in plugins.adapter_names()
    assert {broken.name for broken in plugins.broken} == {"BrokenHook"}
    assert "no such setting" in plugins.broken[0].reason


class Hooks:
    """A plugin of the hooks it is given."""

    def __init__(self, **hooks: Any) -> None:
        self.__dict__.update(hooks)


def redactor(register: Any) -> None:
    register(lambda text: text.replace("secret", "-"))


def unheard(register: Any) -> None:
    raise AssertionError(register)


def silent(register: Any) -> None:
    """Registers nothing, which is nobody's fault."""


def misnamed(registry: Any) -> None:
    raise AssertionError(registry)


@pytest.mark.parametrize(
    ("plugin", "said"),
    [
        (Hooks(register_redactor=hookimpl(redactor)), "did you mean register_redactors?"),
        (Hooks(register_redactors=unheard), "not marked with @hookimpl"),
        (Hooks(register_redactor=unheard, register_pins=hookimpl(silent)), "register_redactor is not marked"),
        (Hooks(redactors=unheard), "it has no hook"),
        (Hooks(register_redactors=hookimpl(lambda: redactor)), "TypeError: register_redactors returns something"),
        (Hooks(register_redactors=hookimpl(misnamed)), "register_redactors"),
        (BrokenHook(), "no such setting"),
    ],
    ids=["misspelled", "unmarked", "both", "nothing", "returned", "argument", "raises"],
)
def test_while_a_plugin_is_broken_whatever_it_may_have_taken_out_is_not_sent(plugin: Any, said: str) -> None:
    """Nobody can tell whether it was the one that takes secrets out of texts."""
    plugins = load_plugins([plugin], entry_points=False)

    assert [said in broken.reason for broken in plugins.broken] == [True], plugins.broken
    for each in plugins.redactors:
        with pytest.raises(ConfigError, match="without_plugins") as caught:
            each("a secret")
        assert plugins.broken[0].name in str(caught.value)
    assert plugins.redactors


def test_with_plugins_that_work_their_redactors_are_taken() -> None:
    plugins = load_plugins([Hooks(register_redactors=hookimpl(redactor))], entry_points=False)

    assert plugins.broken == []
    assert [each("a secret") for each in plugins.redactors] == ["a -"]


def test_a_hook_its_author_calls_optional_is_none_that_is_misspelled() -> None:
    """A plugin may be written for a later version, or for another host."""
    plugin = Hooks(register_pins=hookimpl(silent), later=hookimpl(redactor, optionalhook=True))

    assert load_plugins([plugin], entry_points=False).broken == []


def test_one_broken_hook_takes_none_of_the_other_hooks_of_its_plugin_along() -> None:
    """What it pins stays pinned."""
    pins = hookimpl(lambda register: register(str))
    for broken in ({"register_adapters": hookimpl(lambda: 1 / 0)}, {"register_redactor": hookimpl(redactor)}):
        plugins = load_plugins([Hooks(register_pins=pins, **broken)], entry_points=False)

        assert len(plugins.broken) == 1
        assert plugins.pins == [str]


def test_an_adapter_that_fails_at_its_own_work_stops_no_redactor() -> None:
    """It was registered: it is no plugin that might have taken secrets out."""
    plugins = load_plugins([BrokenSniff(), Hooks(register_redactors=hookimpl(redactor))], entry_points=False)
    plugins.sniff(history(user("Go.")))

    assert [broken.name for broken in plugins.broken] == ["narrow"]
    assert [each("a secret") for each in plugins.redactors] == ["a -"]


def test_an_adapter_that_cannot_sniff_is_named_and_the_others_are_asked() -> None:
    """Every pass of every host would fail otherwise."""
    plugins = load_plugins([BrokenSniff()], entry_points=False)
    messages = history(user("Go."), call("a"), result("x"))
    found = [plugins.sniff(messages), plugins.sniff(messages)]

    assert [adapter and adapter.name for adapter in found] == ["openai", "openai"]
    assert [broken.name for broken in plugins.broken] == ["narrow"]


def test_an_unknown_adapter_is_answered_with_the_known_ones() -> None:
    """And with the plugins that do not work, because one of them may be meant."""
    plugins = load_plugins([Good(), BrokenHook()], entry_points=False)
    with pytest.raises(UnknownAdapter) as caught:
        plugins.adapter("openapi")

    assert {"anthropic", "claude-code", "mine", "openai"} <= set(caught.value.known)
    assert list(caught.value.known) == sorted(caught.value.known)
    for part in ("'openapi'", "claude-code", "mine", "BrokenHook"):
        assert part in str(caught.value)


def test_a_rule_of_a_plugin_pins_in_a_pass() -> None:
    """Through the engine."""
    engine = ContextEngine(
        judge=ScriptedJudge(lambda _: (0.0, 0.0)), plugins=load_plugins([Good()], entry_points=False)
    )
    messages = history(user("Go."), call("ours"), result(long_text("a", 9_000)), *[call("b"), result("x")] * 3)
    done = run(engine.compress, messages, host="mine")

    assert done.messages is messages
    assert done.stats.pinned["ours"] == 1


ENTRY_POINTS = """
import sys
sys.path.insert(0, sys.argv[1])
from jev_engine.plugins import load_plugins
plugins = load_plugins()
print(sorted(broken.name for broken in plugins.broken), [b.reason for b in plugins.broken if b.name == "explodes"])
print(len(plugins.pins), plugins.adapter("openai").name)
print(len(load_plugins(without=["explodes", "missing"]).broken), len(load_plugins(without=["works"]).pins))
"""


def test_a_broken_entry_point_is_named_and_the_others_work(tmp_path: Path) -> None:
    """Installed beside the package: one that cannot be imported, one without the object, one that works."""
    info = tmp_path / "other_plugins-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: other-plugins\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[jev_engine]\nexplodes = plugin_explodes\nmissing = plugin_works:nothing\nworks = plugin_works\n"
    )
    (tmp_path / "plugin_explodes.py").write_text("raise OSError('no licence file')\n")
    (tmp_path / "plugin_works.py").write_text(
        "from jev_engine import hookimpl\n@hookimpl\ndef register_pins(register):\n    register(lambda call: None)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", ENTRY_POINTS, str(tmp_path)], capture_output=True, text=True, timeout=60, check=False
    )

    found = ["['explodes', 'missing'] ['OSError: no licence file']", "1 openai", "0 0"]
    assert done.stdout.splitlines() == found, done.stderr
