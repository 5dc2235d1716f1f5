"""A Hermes home in a folder of its own, agents on it, and a look at what they sent. Runs inside the host's environment.

Nothing of the host is imported before `Lab` has set its environment.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from hermes_provider import Provider, Step

PLUGIN = (
    "name: jev-engine\nversion: 0.1.0\ndescription: under test\nauthor: tests\nkind: standalone\nmanifest_version: 1\n"
)
WINDOW = 65_536
LINES = 400
TASK = "Read the files in turn, then say what is in them."


class Lab:
    """The host's home, with the plugin in it."""

    def __init__(self, home: Path) -> None:
        self.home = home
        for name, folder in (
            ("HERMES_HOME", "hermes"), ("TERMINAL_CWD", "work"), ("HOME", "."), ("XDG_DATA_HOME", "data"),
            ("XDG_CONFIG_HOME", "config"), ("XDG_STATE_HOME", "state"), ("XDG_CACHE_HOME", "cache"),
        ):  # fmt: skip
            (home / folder).mkdir(parents=True, exist_ok=True)
            os.environ[name] = str(home / folder)
        os.environ["JEV_ENGINE_CONFIG"] = str(home / "settings.toml")
        os.environ["OPENAI_API_KEY"] = "none"
        plugin = home / "hermes" / "plugins" / "jev-engine"
        if not plugin.exists():  # it is there where `setup` is under test
            plugin.mkdir(parents=True)
            (plugin / "plugin.yaml").write_text(PLUGIN)
            (plugin / "__init__.py").write_text("from jev_engine_adapters.hermes import register\n")
        self.settings()
        self.events: list[tuple[str, dict[str, Any]]] = []
        self.database: Any = None

    def settings(self, text: str = "") -> None:
        """The user's own settings of the engine; whatever the process knows of sessions and engine is forgotten."""
        (self.home / "settings.toml").write_text(text)
        from jev_engine_adapters.hermes import state  # noqa: PLC0415  # reads the environment set above

        state.shared().__init__()
        state.here.session = ""

    def file(self, number: int) -> Path:
        """A text file of about 30 kB, each line its own."""
        path = self.home / "work" / f"part_{number}.txt"
        if not path.exists():
            path.write_text("".join(f"line {n} of part {number}: {(n * 7919 + number) % 100_003} {'abcd efgh ' * 5}\n"
                                    for n in range(LINES)))  # fmt: skip
        return path

    def reads(self, count: int) -> list[Step]:
        return [("call", "read_file", {"path": str(self.file(number))}) for number in range(count)]

    def agent(self, provider: Provider, **options: Any) -> Any:
        """An agent on a real session database."""
        in_place = options.pop("in_place", True)
        (self.home / "hermes" / "config.yaml").write_text(
            "model:\n  default: mock-model\n  provider: custom\n"
            f"  base_url: {provider.url}\n  context_length: {options.pop('window', WINDOW)}\n"
            f"plugins:\n  enabled: [{options.pop('enabled', 'jev-engine')}]\n"
            f"context:\n  engine: {options.pop('engine', 'jev-engine')}\n"
            f"compression:\n  in_place: {str(in_place).lower()}\n"
            f"auxiliary:\n  compression:\n    provider: custom\n    base_url: {provider.url}\n    api_key: k\n"
            f"    model: mock-model\n    context_length: {options.pop('aux', 200_000)}\n"
        )
        from hermes_state import SessionDB  # noqa: PLC0415  # the host, after its environment is set
        from run_agent import AIAgent  # noqa: PLC0415  # the same

        if self.database is None:
            self.database = SessionDB()
        return AIAgent(
            **{
                "base_url": provider.url, "api_key": "k", "provider": "custom", "model": "mock-model",
                "enabled_toolsets": ["file", "context_engine"], "quiet_mode": True, "skip_memory": True,
                "skip_context_files": True, "session_db": self.database, "platform": "cli",
                "event_callback": lambda name, data: self.events.append((name, data)), **options,
            }
        )  # fmt: skip

    def compressions(self) -> list[dict[str, Any]]:
        return [data for name, data in self.events if name == "session:compress"]


def sent(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Messages of a request without the system prompt."""
    return [message for message in body["messages"] if message["role"] != "system"]


def texts(body: dict[str, Any]) -> list[str]:
    """What user and assistant said, in order."""
    return [str(m.get("content")) for m in sent(body) if m["role"] in ("user", "assistant")]


def results(body: dict[str, Any]) -> dict[str, str]:
    """Results by the id of their call."""
    return {m["tool_call_id"]: str(m["content"]) for m in sent(body) if m["role"] == "tool"}


def references(body: dict[str, Any]) -> list[str]:
    """Ids named by markers, in order."""
    return [r for text in results(body).values() for r in re.findall(r"intact as (jx-[0-9a-f]{16})", text)]


def assert_whole(provider: Provider) -> None:
    """Every request has its pairs, and what was said in one is said in the next, byte for byte."""
    for body in provider.requests:
        made = [call["id"] for m in sent(body) for call in m.get("tool_calls") or []]
        assert made == list(results(body)), "a call without result, or the other way round"
    for before, after in zip(provider.requests, provider.requests[1:], strict=False):
        said = texts(before)
        assert texts(after)[: len(said)] == said, "words changed on the wire"


def assert_shortened(provider: Provider) -> dict[str, str]:
    """Some result was shortened; returns the original texts by id."""
    originals: dict[str, str] = {}
    for body in provider.requests:
        for call, text in results(body).items():
            originals.setdefault(call, text)
    last = results(provider.requests[-1])
    assert any(len(last[call]) < len(originals[call]) // 4 for call in last), "nothing was shortened"
    return originals


def whole_original(engine: Any, reference: str) -> str:
    """An original, read page by page through the tool."""
    parts, offset = [], 0
    while True:
        shown = engine.handle_tool_call("jev_expand", {"id": reference, "offset": offset}, messages=[])
        page, _, note = shown.rpartition("\n[jev-engine expand ")
        assert note, shown[:200]
        parts.append(page)
        following = re.search(r"give offset (\d+)", note)
        if following is None:
            return "".join(parts)
        offset = int(following.group(1))


def load(text: str) -> Any:
    return json.loads(text)
