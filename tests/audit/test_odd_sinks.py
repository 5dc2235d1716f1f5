"""Sinks that do what no sink should: they leave the process, or raise when they are only looked at."""

from __future__ import annotations

import logging
import threading
from typing import Any

import anyio
import pytest
from audit_trails import Hears, messages_of

from jev_engine import ContextEngine, make_config
from jev_engine.errors import AuditError
from jev_engine.events import Event
from jev_engine.testing import ScriptedJudge

pytestmark = pytest.mark.filterwarnings("error")


class Leaves:
    """Does in `emit` what ends a program."""

    name = "leaves"

    def __init__(self, error: type[BaseException]) -> None:
        self.error = error
        self.heard = 0

    def emit(self, event: Event) -> None:
        self.heard += 1
        raise self.error


class Says:
    """Fails with words of its own."""

    name = "says"

    def __init__(self, error: Exception) -> None:
        self.error = error

    def emit(self, event: Event) -> None:
        raise self.error


def shy(what: str) -> Any:
    """A sink that raises when it is asked for one of its attributes."""

    class Shy(Hears):
        def __getattribute__(self, name: str) -> Any:
            if name == what:
                raise RuntimeError(f"not {name}")
            return super().__getattribute__(name)

    return Shy()


async def passes(sinks: list[Any], count: int = 1, **settings: Any) -> tuple[ContextEngine, list[Any]]:
    config = make_config(min_freed_share=0.0, pin_newest_calls=1, **settings)
    engine = ContextEngine(config=config, judge=ScriptedJudge(lambda call: (0.9, call.number / 100)), sinks=sinks)
    return engine, [await engine.compress(messages_of(), host="openai", force=True) for _ in range(count)]


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_a_sink_that_leaves_is_told_as_failed_and_hears_the_rest(error: type[BaseException]) -> None:
    """Its lane lives on: it is asked again for each event, and never waited for as one that hangs."""
    leaves, hears = Leaves(error), Hears()
    engine, (_, second) = anyio.run(passes, [leaves, hears], 2)
    engine.sinks.close(10)

    assert leaves.heard == len(hears.events) > 0
    (warning,) = [each for each in second.stats.warnings if "'leaves'" in each]
    assert f"({error.__name__})" in warning
    assert "hangs" not in warning
    assert [thread for thread in threading.enumerate() if "sink leaves" in thread.name and not thread.daemon] == []


@pytest.mark.parametrize("what", ["name", "key", "flush", "emit_many"])
def test_a_sink_that_cannot_be_looked_at_changes_nothing(what: str, caplog: pytest.LogCaptureFixture) -> None:
    """It counts as one that has no such thing, which the log says; it hears every event all the same."""
    sink = shy(what)
    with caplog.at_level(logging.ERROR, "jev_engine"):
        engine, (done,) = anyio.run(passes, [sink])
    engine.sinks.close(10)

    assert done.outcome == "committed"
    assert sink.kinds()[-1] == "committed"
    assert any(what in record.getMessage() for record in caplog.records)


def test_only_our_own_error_is_quoted() -> None:
    """An AuditError is written for people; what any other says may hold words of a session."""
    for error, words in ((AuditError("no room on disk /x"), "(no room on disk /x)"), (OSError("secret"), "(OSError)")):
        _, (done,) = anyio.run(lambda error=error: passes([Says(error)], required_sinks=("says",)))

        assert done.outcome == "failed"
        assert words in done.reason
        assert "secret" not in done.reason
