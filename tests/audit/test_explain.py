"""`explain` names every reason for every unit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest
from audit_trails import KEY, messages_of, real_sessions, write_trail

from jev_engine import ContextEngine, make_config
from jev_engine.audit.explain import explain, find_unit, numbers_of
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.audit.records import read_trail
from jev_engine.errors import AuditError
from jev_engine.judges.asked import AskedJudge
from jev_engine.testing import ScriptedAsker


def told_by(path: Path, call: str) -> dict[str, str]:
    trail = read_trail(path)
    return dict(explain(trail, find_unit(trail, call, trail.find("last"))))


def test_every_unit_has_its_reason(trail: Path) -> None:
    """Kept, shortened and pinned ones; the words are those of the result."""
    done = write_trail(trail)
    read = read_trail(trail)
    told = read.find("last")

    assert numbers_of(told) == [call.number for call in done.transcript.calls]
    for decision in done.decisions:
        facts = dict(explain(read, find_unit(read, decision.label, told)))
        assert decision.reason in facts["what"]
        assert f"{decision.probability.p_result:.4f}" in facts["calibrated"]
        assert "limit 1" in facts["measured by"]
        if decision.action != "keep":
            assert decision.call.reference in facts["the original"]
            assert facts == dict(explain(read, find_unit(read, decision.call.reference, told)))
    for number, reason in done.pinned.items():
        pinned = dict(explain(read, find_unit(read, f"t{number}", told)))
        call = done.transcript.calls[number - 1]
        assert pinned["pinned"] == reason
        assert pinned["call"] == f"t{number} {call.tool}"
        assert pinned["size"].startswith(f"{len(call.result or ''):,} characters")


def test_an_asked_judge_is_named_with_window_and_question_version(tmp_path: Path) -> None:
    """Who decided, raw and calibrated, what it was shown and asked."""
    path = tmp_path / "trail.jsonl"
    sink = JsonlSink(path, key=KEY)
    asker = ScriptedAsker(lambda name, *_: 0.05 + int(name.rsplit("t", 1)[1]) / 100)
    engine = ContextEngine(
        config=make_config(min_freed_share=0.0), judge=AskedJudge(asker, name="asked by a test"), sinks=[sink]
    )
    anyio.run(lambda: engine.compress(messages_of(), host="openai", force=True))
    sink.close()
    facts = told_by(path, "t4")

    assert "asked by a test" in facts["who decided"]
    assert facts["raw answers"].startswith("result needed 0.09")
    assert facts["believed"].endswith("uncalibrated")
    assert "calibrated" not in facts
    assert "weights" in facts["who decided"]
    assert facts["shown in"].startswith("window 1 of 1, state at stage")
    assert facts["questions"].startswith("asked by a test/")


@pytest.mark.parametrize(
    ("settings", "guard"),
    [({"policy": "threshold", "keep_result": 1.0, "min_freed_share": 1.0}, "pass not worth it"),
     ({"policy": "threshold", "keep_result": 1.0, "keep_call": 1.0, "max_removed_share": 0.1}, "removal limit")],
)  # fmt: skip
def test_guards_are_named(tmp_path: Path, settings: Any, guard: str) -> None:
    """What held a unit back, or held it to less."""
    path = tmp_path / "trail.jsonl"
    sink = JsonlSink(path, key=KEY)
    asked = ScriptedAsker(lambda name, *_: int(name.rsplit("t", 1)[1]) / 1_000)
    engine = ContextEngine(config=make_config(**settings), judge=AskedJudge(asked), sinks=[sink])
    anyio.run(lambda: engine.compress(messages_of(), host="openai"))
    sink.close()

    assert guard in {unit.guard for unit in read_trail(path).find("last").units.values()}


def test_an_unknown_call_is_a_plain_error(trail: Path) -> None:
    """With what to give instead."""
    with pytest.raises(AuditError, match="such as t12"):
        told_by(trail, "t999")


@pytest.mark.slow
def test_on_real_sessions_no_unit_is_without_a_reason(tmp_path: Path, shared: Path) -> None:
    """From one pass each."""
    for index, messages in enumerate(real_sessions(shared, 8)):
        path = tmp_path / f"{index}.jsonl"
        sink = JsonlSink(path, key=KEY)
        engine = ContextEngine(sinks=[sink])
        done = anyio.run(lambda m=messages, e=engine: e.compress(m, force=True, dry_run=True))
        sink.close()
        read = read_trail(path)
        told = read.find("last")
        assert numbers_of(told) == [call.number for call in done.transcript.calls]
        for number in numbers_of(told):
            assert all(name and text for name, text in explain(read, find_unit(read, f"t{number}", told)))
