"""What a trail teaches: outcomes for `calibrate`, less the control; and tools whose output is often missed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from jev_engine import ContextEngine, make_config
from jev_engine.answers import Belief
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.audit.outcomes import RegretRule, outcomes
from jev_engine.audit.records import read_trail
from jev_engine.audit.stats import Regret, regrets, stats_of
from jev_engine.cli import main
from jev_engine.evaluate.calibrate import read_answers
from jev_engine.judges.asked import AskedJudge
from jev_engine.testing import ScriptedAsker, call, history, result, user

KEY = b"k" * 32
EVIDENCE = Belief().result


def read(tool: str, n: int, **extra: Any) -> list[Any]:
    return [call(tool, path=f"{n}.py", **extra), result(f"{tool} {n} line\n" * 250)]


def missed(path: Path, *, again: int, control: int = 0) -> Any:
    """Twenty reads and twenty greps; the judge lets all reads go. Then some reads and some greps are made again."""
    sink = JsonlSink(path, key=KEY)
    asker = ScriptedAsker(lambda name, _q, _s: 0.01 if int(name.rsplit("t", 1)[1]) % 2 else 0.99)
    config = make_config(
        policy="threshold",
        keep_result=0.5,
        keep_call=0.0,
        min_freed_share=0.0,
        pin_newest_calls=0,
        pin_first_message=False,
    )
    engine = ContextEngine(config=config, judge=AskedJudge(asker, name="asked"), sinks=[sink])
    rows = [row for n in range(20) for row in (*read("read", n), *read("grep", n))]
    messages = history(user("Fix it."), *rows, user("Go on."))
    first = anyio.run(lambda: engine.compress(messages, host="openai", force=True))
    more = [row for n in range(again) for row in read("read", n)] + [
        row for n in range(control) for row in read("grep", n)
    ]
    for number, row in enumerate(more):  # ids of their own, by pair
        if row["role"] == "assistant":
            row["tool_calls"][0]["id"] = f"again {number}"
        else:
            row["tool_call_id"] = f"again {number - 1}"
    anyio.run(lambda: engine.compress([*first.messages, *more], host="openai", force=True, ledger=first.ledger))
    sink.close()
    return read_trail(path)


def test_what_was_missed_is_told_from_what_was_not(tmp_path: Path) -> None:
    """Of twenty that went, six were called again; nothing is said of those that stayed."""
    trail = missed(tmp_path / "t.jsonl", again=6)
    found = outcomes(trail, EVIDENCE)

    assert sum(each.needed for each in found) == 6
    assert {each.judge for each in found} == {"asked"}
    assert {each.raw for each in found} == {0.01}
    assert stats_of(trail)["observed_misses"] == 6


def test_what_the_control_explains_is_taken_off(tmp_path: Path) -> None:
    """Ten of twenty are called again, but so are five of twenty whose result is still there."""
    trail = missed(tmp_path / "t.jsonl", again=10, control=5)
    table = {regret.tool: regret for regret in regrets(trail)}

    assert table["read"].looked_back == 10
    assert table["grep"].control_looked_back == 5
    assert 0 < sum(each.needed for each in outcomes(trail, EVIDENCE)) < 10


def test_the_local_answer_comes_back_from_what_was_believed(tmp_path: Path) -> None:
    """The map is undone: the step from the local answer by the raw one gives what the pass believed."""
    path = tmp_path / "t.jsonl"
    sink = JsonlSink(path, key=KEY)
    engine = ContextEngine(
        config=make_config(min_freed_share=0.0, miss_cost=0.0),
        judge=AskedJudge(ScriptedAsker(lambda name, *_: 0.02 + int(name.rsplit("t", 1)[1]) / 50)),
        sinks=[sink],
    )
    rows = [row for n in range(20) for row in read("read", n)]
    anyio.run(lambda: engine.compress(history(user("Fix it."), *rows), host="openai", force=True))
    sink.close()
    trail = read_trail(path)
    units = [unit for unit in trail.find("last").out if unit.by == "judge+local"]
    found = outcomes(trail, EVIDENCE)

    assert units
    for unit, outcome in zip(units, found, strict=True):
        assert EVIDENCE.step(outcome.p_local, outcome.raw) == pytest.approx(unit.p_result)


def test_the_command_writes_what_calibrate_reads(tmp_path: Path) -> None:
    """One answer a line."""
    path, out = tmp_path / "t.jsonl", tmp_path / "answers.jsonl"
    trail = missed(path, again=6)
    done = CliRunner().invoke(main, ["audit", "--file", str(path), "answers", "-o", str(out)], catch_exceptions=False)

    answers = read_answers(out.read_text().splitlines())
    assert len(answers) == len(outcomes(trail, EVIDENCE))
    assert "6 of them about results that were missed" in done.output


def test_tools_that_were_often_missed_are_left_alone(tmp_path: Path) -> None:
    """Where the user asks for it; a few units teach nothing, and the control counts."""
    table = [Regret("often", 40, 12, 10, 0), Regret("seldom", 40, 1, 10, 0), Regret("few", 5, 5, 10, 0),
             Regret("anyway", 40, 12, 10, 3)]  # fmt: skip
    assert set(RegretRule(table).tools) == {"often"}

    missed(tmp_path / "t.jsonl", again=12)
    session = tmp_path / "s.json"
    session.write_text(
        json.dumps(history(user("Fix."), *[row for n in range(8) for row in read("read", n)], user("Go.")))
    )
    base = ["compress", str(session), "--store", str(tmp_path / "s.db"), "--json", "--policy", "threshold",
            "--keep-result", "1", "--keep-call", "0"]  # fmt: skip
    with_table = CliRunner().invoke(main, [*base, "--regrets", str(tmp_path / "t.jsonl")], catch_exceptions=False)
    without = CliRunner().invoke(main, base, catch_exceptions=False)

    assert json.loads(without.stdout)["decisions"]
    assert json.loads(with_table.stdout)["decisions"] == []
    assert any("often missed" in reason for reason in json.loads(with_table.stdout)["pinned"])
