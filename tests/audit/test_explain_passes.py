"""`explain` over more than one pass: where a unit left, in which session, and whether that pass came to an end."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from audit_trails import KEY, messages_of, write_trail

from jev_engine import ContextEngine, make_config
from jev_engine.audit.explain import explain, find_unit
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.audit.records import TrailRead, gather, read_events, read_trail
from jev_engine.audit.report import page_of
from jev_engine.audit.stats import stats_of
from jev_engine.errors import AuditError
from jev_engine.judges.asked import AskedJudge
from jev_engine.testing import ScriptedAsker, ScriptedJudge, call, result


def facts_of(trail: TrailRead, unit: str, **more: Any) -> dict[str, str]:
    facts = explain(trail, find_unit(trail, unit), **more)
    assert len({name for name, _ in facts}) == len(facts)
    return dict(facts)


def two_passes(path: Path, script: Any, **settings: Any) -> Any:
    """A session, and what has become of it with four calls more; both results."""
    sink = JsonlSink(path, key=KEY)
    config = make_config(**{"min_freed_share": 0.0, "pin_newest_calls": 1, **settings})
    engine = ContextEngine(config=config, judge=ScriptedJudge(script), sinks=[sink])
    first = anyio.run(lambda: engine.compress(messages_of(), host="openai", force=True, session="s"))
    more = [
        row
        for n in range(4)
        for row in (call("grep", call_id=f"later{n}", n=n), result(f"later {n}\n" * 400, call_id=f"later{n}"))
    ]
    grown = [*first.messages, *more]
    second = anyio.run(lambda: engine.compress(grown, host="openai", force=True, session="s", ledger=first.ledger))
    sink.close()
    return first, second


def test_a_unit_that_left_earlier_is_explained_from_the_pass_in_which_it_left(tmp_path: Path) -> None:
    """Not by the pin that keeps its marker in place ever since."""
    first, second = two_passes(tmp_path / "t.jsonl", lambda _: (0.9, 0.0))
    trail = read_trail(tmp_path / "t.jsonl")
    left = {d.label for d in first.decisions if d.action != "keep"}
    out = [call for call in second.transcript.calls if call.marked is not None]

    assert len(out) == len(left) > 3
    for each in out:
        facts = facts_of(trail, each.label)
        assert facts["what"].startswith("shortened")
        assert each.reference in facts["the original"]
        assert f"as {each.label}" in facts["since then"]
    assert facts_of(trail, second.transcript.calls[-1].label)["pinned"] == "newest"


def test_numbers_that_moved_lead_to_the_right_unit(tmp_path: Path) -> None:
    """Where calls were removed in the first pass, t5 of the second was another number in the first."""
    settings = {"policy": "threshold", "keep_result": 0.5, "keep_call": 0.5, "guards": False}
    first, second = two_passes(tmp_path / "t.jsonl", lambda unit: (0.0 if unit.number < 6 else 0.9, 0.0), **settings)
    trail = read_trail(tmp_path / "t.jsonl")
    left = {d.call.reference: d.call for d in first.decisions if d.action == "truncate"}
    out = [each for each in second.transcript.calls if each.reference in left and each.marked is not None]

    assert [d.action for d in first.decisions].count("remove") > 2
    assert out
    for each in out:
        before = left[each.reference]
        facts = facts_of(trail, each.label)
        assert before.number != each.number
        assert facts["call"] == f"{before.label} {before.tool}"
        assert facts["size"].startswith(f"{len(before.result or ''):,} characters")


def test_the_later_pass_itself_says_where_a_unit_left(tmp_path: Path) -> None:
    """For those who name it."""
    two_passes(tmp_path / "t.jsonl", lambda _: (0.9, 0.0))
    trail = read_trail(tmp_path / "t.jsonl")
    first, second = trail.passes.values()

    facts = dict(explain(trail, find_unit(trail, "t3", second)))
    assert first.id[:12] in facts["who decided"]
    assert "out since" in facts["what"]
    only = gather(event for event in read_events(tmp_path / "t.jsonl") if event and event.pass_id == second.id)
    assert "not in this trail" in facts_of(only, "t3")["who decided"]


def test_a_label_of_several_sessions_is_not_guessed(trail: Path) -> None:
    """The error names the sessions and what to give; an id is of one."""
    read = read_trail(trail)
    one, two = read.passes.values()
    with pytest.raises(AuditError, match="2 sessions") as caught:
        find_unit(read, "t3")

    assert one.session[:12] in str(caught.value)
    assert two.session[:12] in str(caught.value)
    assert "--session" in str(caught.value)
    assert find_unit(read, "t3", one).told is one
    out = two.out[0]
    assert find_unit(read, str(out.reference)).told is two


def test_session_time_host_and_version_are_said(tmp_path: Path) -> None:
    """With the time's zone."""
    write_trail(tmp_path / "t.jsonl")
    trail = read_trail(tmp_path / "t.jsonl")
    told = trail.find("last")

    for label in ("t3", "t1"):
        facts = facts_of(trail, label)
        assert facts["session"] == told.session[:12]
        assert facts["when"].endswith(" UTC")
        assert "host openai" in facts["engine"]


def test_a_dry_run_does_not_hide_the_pass_that_let_a_unit_go(tmp_path: Path) -> None:
    """The newest pass that did something counts."""
    path = tmp_path / "t.jsonl"
    write_trail(path)
    sink = JsonlSink(path, key=KEY)
    engine = ContextEngine(judge=ScriptedJudge(lambda _: (0.9, 0.9)), sinks=[sink])
    anyio.run(lambda: engine.compress(messages_of(), host="openai", dry_run=True))
    sink.close()
    trail = read_trail(path)

    assert trail.find("last").started.is_dry  # type: ignore[union-attr]
    assert not find_unit(trail, "t7").told.started.is_dry  # type: ignore[union-attr]


def test_a_later_pass_in_vain_does_not_hide_the_one_in_which_a_unit_left(tmp_path: Path) -> None:
    """The same input once more, and nothing came of it."""
    path = tmp_path / "t.jsonl"
    sink = JsonlSink(path, key=KEY)
    config = make_config(min_freed_share=0.0, pin_newest_calls=1)
    engine = ContextEngine(config=config, judge=ScriptedJudge(lambda _: (0.9, 0.0)), sinks=[sink])
    anyio.run(lambda: engine.compress(messages_of(), host="openai", force=True))
    again = anyio.run(lambda: engine.compress(messages_of(), host="openai", force=True, waits_for_host=True))
    again.fate.discarded("it came too late")
    anyio.run(again.fate.flush)
    sink.close()
    trail = read_trail(path)
    first, second = trail.passes.values()

    assert find_unit(trail, "t3").told is first
    assert "since then" not in facts_of(trail, "t3")
    assert "too late" in dict(explain(trail, find_unit(trail, "t3", second)))["in the end"]


@pytest.mark.parametrize("fate", ["none", "committed", "discarded"])
def test_a_pass_without_an_end_is_not_told_as_done(tmp_path: Path, fate: str) -> None:
    """Neither is one that was discarded."""
    path = tmp_path / "t.jsonl"
    sink = JsonlSink(path, key=KEY)
    engine = ContextEngine(judge=ScriptedJudge(lambda _: (0.9, 0.0)), sinks=[sink])
    done = anyio.run(lambda: engine.compress(messages_of(), host="openai", force=True, waits_for_host=True))
    if fate == "committed":
        done.fate.committed()
    elif fate == "discarded":
        done.fate.discarded("the host ran out of patience")
    anyio.run(done.fate.flush)
    sink.close()
    facts = facts_of(read_trail(path), "t3")

    assert facts["what"].startswith("shortened" if fate == "committed" else "to be shortened")
    assert ("no end" in facts.get("in the end", "")) == (fate == "none")
    assert ("ran out of patience" in facts.get("in the end", "")) == (fate == "discarded")
    assert ("looked back at" in facts) == (fate == "committed")


def test_what_goes_above_the_price_limit_is_told_with_the_target(tmp_path: Path) -> None:
    """Forced, how much had to be freed, and of which window."""
    path = tmp_path / "t.jsonl"
    sink = JsonlSink(path, key=KEY)
    config = make_config(window_tokens=12_000, output_reserve_tokens=0, pin_newest_calls=1)
    engine = ContextEngine(config=config, judge=ScriptedJudge(lambda _: (0.9, 0.6)), sinks=[sink])
    done = anyio.run(lambda: engine.compress(messages_of(), host="openai", force=True))
    sink.close()
    trail = read_trail(path)
    told = trail.find("last")
    (taken,) = {d.reason for d in done.decisions if d.action != "keep"}
    facts = facts_of(trail, next(d.label for d in done.decisions if d.action != "keep"))

    assert taken == "taken to reach the target"
    assert told.started is not None
    target = f"{told.started.target_free_tokens:,} tokens"
    assert told.started.target_free_tokens == pytest.approx(told.started.tokens - 0.3 * 12_000, abs=1)
    assert target in facts["measured by"]
    assert "forced" in facts["measured by"]
    assert facts["aim"].endswith("in a window of 12,000")
    assert target in facts["aim"]


def test_what_nobody_calibrated_is_called_so_everywhere(tmp_path: Path) -> None:
    """In the sum, in the report, and of each answer; raw ones under thresholds are not called believed."""
    path = tmp_path / "t.jsonl"
    write_trail(path)
    assert stats_of(read_trail(path))["is_calibrated"]
    sink = JsonlSink(path, key=KEY)
    config = make_config(policy="threshold", keep_result=0.9, keep_call=0.0, pin_newest_calls=1)
    asker = ScriptedAsker(lambda name, *_: int(name.rsplit("t", 1)[1]) / 100)
    engine = ContextEngine(config=config, judge=AskedJudge(asker, name="asked"), sinks=[sink])
    done = anyio.run(lambda: engine.compress(messages_of(), host="openai", force=True))
    sink.close()
    trail = read_trail(path)
    told = trail.find("last")
    stats = stats_of(trail)

    assert not told.is_calibrated
    assert stats["expected_misses_uncalibrated"] == pytest.approx(done.stats.expected_misses)
    assert f'["Of them uncalibrated","{done.stats.expected_misses:.2f}"]' in page_of(trail)
    facts = dict(explain(trail, find_unit(trail, "t4", told)))
    assert facts["believed"] == "as said, uncalibrated"
    assert "calibrated" not in facts


def test_content_has_names_of_its_own(tmp_path: Path) -> None:
    """The digest of the replacement and the replacement are two facts."""
    write_trail(tmp_path / "t.jsonl", audit_content=True)
    trail = read_trail(tmp_path / "t.jsonl")

    for row in trail.find("last").rows:
        facts = facts_of(trail, row.label)
        if row.action == "truncate":
            assert "jev-engine:" in facts["replacement"]
            assert "keyed digest" in facts["left in its place"]


ODD = {
    "a year nobody can write": {"at": 1e18},
    "before the epoch": {"at": -1.0},
    "no time at all": {"at": float("nan")},
    "a tool that is none": {"columns": {"tool": [None]}},
    "a probability in words": {"columns": {"p_result": ["much"]}},
    "an action nobody knows": {"columns": {"action": ["vanish"]}},
    "a size that is none": {"columns": {"chars": ["big"]}},
}


@pytest.mark.parametrize("odd", ODD.values(), ids=ODD)
def test_a_line_of_nonsense_is_counted_and_no_reader_stumbles(tmp_path: Path, odd: dict[str, Any]) -> None:
    """Whoever can write the file can write anything."""
    write_trail(tmp_path / "t.jsonl")
    lines = []
    for line in (tmp_path / "t.jsonl").read_text().splitlines():
        whole = json.loads(line)
        event = whole["event"]
        if "at" in odd or event["kind"] == "decided":
            rows = len(event.get("columns", {}).get("number", ()))
            columns = {name: value * rows for name, value in odd.get("columns", {}).items()}
            event.update({"at": odd["at"]} if "at" in odd else {"columns": {**event["columns"], **columns}})
        lines.append(json.dumps(whole, separators=(",", ":")))
    (tmp_path / "odd.jsonl").write_text("\n".join(lines) + "\n")
    trail = read_trail(tmp_path / "odd.jsonl")

    assert trail.unreadable == (len(lines) if "at" in odd else 1)
    assert stats_of(trail)["unreadable_lines"] == trail.unreadable
    assert page_of(trail)
    for told in trail.passes.values():
        assert told.when
        for row in told.rows:
            assert explain(trail, find_unit(trail, row.label))
