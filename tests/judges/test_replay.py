"""Cassettes: the same answers without the network, and nothing on them that was sent."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from jev_engine import ContextEngine
from jev_engine.answers import Evidence
from jev_engine.calibration import Calibration, write_calibrations
from jev_engine.errors import ConfigError, JudgeUnavailable
from jev_engine.judges.asked import AskedJudge
from jev_engine.judges.belief import belief_for, prior_for
from jev_engine.judges.choose import make_judge
from jev_engine.judges.jev import JevAsker
from jev_engine.judges.replay import RecordingAsker, ReplayAsker, Row, TableJudge, digest_of, read_table
from jev_engine.questions import WORDING
from jev_engine.testing import call, check_judge, history, result, user
from jev_engine.testing.server import FaultServer

KEY = "k-0123456789abcdef"
MESSAGES = history(
    user("Find the secret plan."),
    *(row for n in range(60) for row in (call("read", path=f"src/{n}.py"), result(f"line {n}\n" * 400))),
)


def replayed(path: Path, recorder: RecordingAsker) -> ReplayAsker:
    return ReplayAsker(path, endpoint=recorder.endpoint, model=recorder.model, budget=recorder.budget)


async def test_a_replay_gives_the_same_decisions_and_sends_nothing(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    with FaultServer() as server:
        recorder = RecordingAsker(JevAsker(server.url, key=KEY), path)
        first = await ContextEngine(judge=AskedJudge(recorder)).compress(MESSAGES, force=True)
    again = await ContextEngine(judge=AskedJudge(replayed(path, recorder))).compress(MESSAGES, force=True)

    assert again.messages == first.messages
    assert [d.probability for d in again.decisions] == [d.probability for d in first.decisions]
    assert again.stats.judge_tokens == first.stats.judge_tokens


async def test_a_cassette_holds_no_key_and_nothing_of_the_history(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    with FaultServer() as server:
        await ContextEngine(judge=AskedJudge(RecordingAsker(JevAsker(server.url, key=KEY), path))).compress(
            MESSAGES, force=True
        )

    text = path.read_text()
    assert KEY not in text
    assert "secret plan" not in text
    assert "src/" not in text
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


async def test_a_request_that_was_not_recorded_is_not_answered(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    path.write_text('{"digest": "00", "answers": {}}\n{"torn')
    replay = ReplayAsker(path, endpoint="x", model="y")

    assert replay.broken == 1
    with pytest.raises(JudgeUnavailable, match="not on the cassette"):
        await replay.ask("{}", {})


async def test_a_torn_last_line_spoils_no_later_one(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    path.write_text('{"digest": "to')

    class Half:
        async def ask(self, state: str, questions: Any) -> dict[str, float]:
            return dict.fromkeys(questions, 0.5)

    recorder = RecordingAsker(Half(), path)
    await recorder.ask("{}", {"call_t1": {}})
    replay = replayed(path, recorder)

    assert replay.broken == 1
    assert dict(await replay.ask("{}", {"call_t1": {}})) == {"call_t1": 0.5}


def test_the_digest_is_of_content_not_of_its_form() -> None:
    one = digest_of("e", "m", "v", '{"a":1,"b":"ä"}', {"x": {"type": "noul", "instructions": "i"}})
    two = digest_of("e", "m", "v", '{ "b": "\\u00e4", "a": 1 }', {"x": {"instructions": "i", "type": "noul"}})
    others = {
        digest_of(*names, '{"a":1,"b":"ä"}', {"x": {}}) for names in (("e", "m", "w"), ("e", "n", "v"), ("f", "m", "v"))
    }

    assert one == two
    assert len(others | {one}) == 4


async def test_a_published_table_answers_by_size_and_age(tmp_path: Path) -> None:
    path = tmp_path / "table.csv"
    path.write_text("chars,age,p_result,p_call\n3000,5,0.4,0.6\n3000,50,0.1,\n90,5,0.05,0.2\n")
    rows = read_table(path)
    done = await ContextEngine(judge=TableJudge(rows)).compress(MESSAGES, force=True, dry_run=True)

    raw = {d.label: d.probability.raw.p_result for d in done.decisions}
    assert rows[1] == Row(3_000, 50, 0.1, None)
    assert raw["t1"] == 0.1
    assert raw["t56"] == 0.4


async def test_the_table_passes_the_judges_conformance() -> None:
    report = await check_judge(lambda: TableJudge([Row(900, 3, 0.2, 0.3)]))

    assert report.ok, report


@pytest.mark.parametrize(
    "text",
    [
        "chars,age\n1,2\n",
        "chars,age,p_result\n1,2,x\n",
        "chars,age,p_result\n1,2,1.5\n",
        "chars,age,p_result\n1,2,nan\n",
    ],
)
def test_a_table_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)

    with pytest.raises(ConfigError):
        read_table(path)


def test_what_calibrate_wrote_replaces_the_prior(tmp_path: Path) -> None:
    path = tmp_path / "jev.json"
    fitted = Evidence(0.7, 0.2, 1.1)
    write_calibrations([Calibration("jev", "jev-1.13.0", WORDING.version, fitted, 400, 20, 0.2, 0.19)], path)

    known = belief_for("jev", "jev-1.13.0", WORDING.version, path)
    other = belief_for("jev", "jev-1.14.0", WORDING.version, path)

    assert known.result == fitted
    assert known.is_fitted
    assert other == prior_for("jev-1.14.0")
    assert (other.result.typical, other.call.typical) == (0.145, 0.30)


def test_a_judge_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JEV_ENGINE_API_KEY", KEY)

    by_address = make_judge("http://127.0.0.1:1/v1/systemone")
    assert make_judge() is None
    assert make_judge("jev").model == "jev-1.13.0"
    assert make_judge("jev", "openrouter").model == "typesafe/jev-1.13"
    assert make_judge("cascade").name == "cascade"
    assert "with a key" in repr(by_address.asker)


@pytest.mark.parametrize(
    "names",
    [
        ("judge-x",),
        ("local", "typesafe"),
        ("jev", "typesave"),
        ("http://example.org/",),
        ("https://a.example/", "typesafe"),
    ],
)
def test_a_judge_that_is_none_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError):
        make_judge(*names)


async def test_a_recorded_judge_by_name(tmp_path: Path) -> None:
    path = tmp_path / "cassette.jsonl"
    with FaultServer() as server:
        await ContextEngine(judge=make_judge(server.url, record=path)).compress(MESSAGES, force=True, dry_run=True)
        url = server.url
    done = await ContextEngine(judge=make_judge(url, replay=path)).compress(MESSAGES, force=True, dry_run=True)

    assert json.loads(path.read_text().splitlines()[0])["question_version"] == WORDING.version
    assert done.stats.failures == []
