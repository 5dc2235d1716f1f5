"""A session with everything in it, a trail of it, and a sink that remembers."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import anyio

from jev_engine import ContextEngine, make_config
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.events import Event
from jev_engine.testing import ScriptedJudge, call, history, result, user

KEY = b"k" * 32


class Hears:
    """Hears every event."""

    name = "hears"

    def __init__(self) -> None:
        self.events: list[Event] = []

    def emit(self, event: Event) -> None:
        self.events.append(event)

    def kinds(self) -> list[str]:
        """Of all that was heard, in order."""
        return [event.kind for event in self.events]  # type: ignore[attr-defined]  # every kind has one


def messages_of(units: int = 12) -> list[Any]:
    """Reads of 4,000 characters, each its own text, a short one and an open end."""
    rows = [
        row for n in range(units) for row in (call("read", path=f"src/{n}.py"), result(f"line {n} of a file\n" * 220))
    ]
    return history(user("Fix it."), call("ls"), result("a b"), *rows, user("Go on."))


def write_trail(path: Path, messages: list[Any] | None = None, **settings: Any) -> Any:
    """One pass into a trail; gives the pass's result."""
    sink = JsonlSink(path, key=KEY)
    judge = ScriptedJudge(lambda call: (0.9, (call.number % 7) / 10))
    config = make_config(**{"min_freed_share": 0.0, "pin_newest_calls": 1, "required_sinks": ("jsonl",), **settings})
    engine = ContextEngine(config=config, judge=judge, sinks=[sink])
    done = anyio.run(lambda: engine.compress(messages or messages_of(), host="openai", force=True))
    sink.close()
    return done


def real_sessions(shared: Path, count: int) -> list[Any]:
    """Long sessions of the corpus, spread over it."""
    with gzip.open(shared / "corpus" / "trajectories.jsonl.gz", "rt") as lines:
        long = [line for line in lines if line.count('"tool_calls"') >= 40]
    assert len(long) >= count
    return [json.loads(line)["messages"] for line in long[:: len(long) // count][:count]]


class SessionDesk:
    """A session in a folder, and places for its shorter form and its trail."""

    def __init__(self, shell: Any, messages: Any, words: tuple[str, ...]) -> None:
        self.shell = shell
        self.words = (*words, "--force")
        self.session = shell.file("session.json", messages)
        self.short = shell.folder / "short.json"
        self.trail = shell.folder / "trail.jsonl"
