"""`jev-engine audit replay`: which pass, from which input, compared with what, and what another setting would do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import anyio
import pytest
from audit_trails import KEY
from click.testing import CliRunner, Result

from jev_engine import ContextEngine, make_config
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.cli import main
from jev_engine.store.sqlite import SqliteStore
from jev_engine.testing import ScriptedJudge, assistant, call, history, result, user
from jev_engine.transcript import ToolCall


class Desk:
    """A shell with a trail that all its sessions share."""

    def __init__(self, shell: Any) -> None:
        self.shell = shell
        self.trail = shell.folder / "trail.jsonl"

    def compress(self, session: Path, out: str, *words: str) -> Path:
        path: Path = self.shell.folder / out
        done = self.shell.run("compress", session, "-o", path, "--audit", self.trail, *words)
        assert done.exit_code == 0, done.output
        return path

    def ask(self, *words: str | Path, code: int = 0, key: Path | None = None) -> Result:
        line = ["audit", "--file", str(self.trail), "--store", str(self.shell.store)]
        line += [] if key is None else ["--key", str(key)]
        done = CliRunner().invoke(main, [*line, "replay", "--input", *map(str, words)], catch_exceptions=False)
        assert done.exit_code == code, done.output
        return done

    def json(self, *words: str | Path, code: int = 0, key: Path | None = None) -> Any:
        return json.loads(self.ask(*words, "--json", code=code, key=key).stdout)


@pytest.fixture
def desk(shell: Any) -> Desk:
    return Desk(shell)


def session_of(name: str, calls: int = 40, lines: int = 400) -> list[Any]:
    """Reads, each with a text of its own."""
    reads = [
        row
        for n in range(calls)
        for row in (call("read_file", path=f"{name}/{n}.py"), result(f"{name} {n}: a line\n" * lines))
    ]
    return history(user(f"Fix {name}."), *reads, assistant("Done."))


def lines_of(messages: list[Any]) -> str:
    return "".join(json.dumps(message) + "\n" for message in messages)


def growing(unit: ToolCall) -> tuple[float, float]:
    """Answers that grow with the call's number."""
    return unit.number / 40, unit.number / 1_000


def judged(desk: Desk, messages: list[Any], judge: Any = None, *, force: bool = False, **settings: Any) -> Path:
    """A pass of a judge, with growing answers unless another is given; gives its input."""
    session: Path = desk.shell.file("judged.json", messages)
    sink, store = JsonlSink(desk.trail), SqliteStore(desk.shell.store)
    asked = judge or ScriptedJudge(growing)
    engine = ContextEngine(config=make_config(**settings), judge=asked, sinks=[sink], store=store)
    assert anyio.run(lambda: engine.compress(messages, host="openai", force=force)).outcome == "committed"
    sink.close()
    return session


def test_the_same_miss_cost_changes_nothing_and_a_higher_one_lets_less_go(desk: Desk) -> None:
    """A pass nobody forced is not forced by the question what it would have done."""
    session = judged(desk, session_of("parser"), miss_cost=15.0)
    freed = {cost: desk.json(session, "--miss-cost", cost) for cost in ("5", "15", "20", "10000")}

    same = freed["15"]
    assert same["freed_tokens"] == same["freed_tokens_recorded"] > 0
    assert same["would_stay"] == same["would_go"] == []
    assert freed["5"]["freed_tokens"] > same["freed_tokens"] > freed["20"]["freed_tokens"] > 0
    assert freed["5"]["would_go"]
    assert freed["20"]["would_stay"]
    assert freed["10000"]["outcome"] == "nothing_to_prune"


def test_a_pass_that_would_not_be_worth_it_is_shown_as_none(desk: Desk) -> None:
    """As `compress` would end; the reason says by which bar."""
    session = judged(desk, session_of("parser"))
    shown = desk.ask(session, "--policy", "threshold", "--keep-result", "0.005").stdout

    assert shown.startswith("not_worth_it: frees")
    assert "min_freed_share" in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--keep-result", "0.3"], "--keep-result has no effect under --policy worth"),
        (["--keep-call", "0.3"], "--keep-call has no effect under --policy worth"),
        (["--policy", "threshold", "--miss-cost", "3"], "--miss-cost has no effect under --policy threshold"),
        (["--sweep", "--miss-cost", "3"], "leave out --miss-cost"),
        (["--sweep", "--policy", "threshold"], "leave out --policy"),
        (["--sweep", "--output", "judged.json"], "leave it out"),
        (["--miss-cost", "3", "--output", "judged.json"], "leave it out"),
        (["--miss-cost", "-1"], "'--miss-cost'"),
        (["--policy", "threshold", "--keep-result", "nan"], "'--keep-result'"),
    ],
)
def test_options_that_would_mean_nothing_are_refused(desk: Desk, words: list[str], told: str) -> None:
    """Each by its name."""
    session = judged(desk, session_of("parser"))
    words = [str(desk.shell.folder / word) if word.endswith(".json") else word for word in words]

    assert told in desk.ask(session, *words, code=2).output


@pytest.mark.parametrize("words", [["--miss-cost", "9"], ["--policy", "threshold"], ["--sweep"]])
@pytest.mark.parametrize("named", [False, True])
def test_another_session_gets_no_answer_about_another_setting(desk: Desk, words: list[str], *, named: bool) -> None:
    """Neither does one in which a single sign differs."""
    messages = session_of("parser")
    judged(desk, messages)
    which = ["--pass", "last"] if named else []
    messages[2] = {**messages[2], "content": messages[2]["content"].replace("parser 0", "parser O", 1)}
    for name, other in (("one_sign.json", messages), ("another.json", session_of("lexer"))):
        done = desk.ask(desk.shell.file(name, other), *which, *words, code=2)
        assert "what another setting would have done" in done.output
        assert done.stdout == ""


def test_the_pass_is_found_by_its_input(desk: Desk, shorten_all: tuple[str, ...]) -> None:
    """On a trail that many sessions share; of two passes over one input the newest."""
    sessions = {name: desk.shell.file(f"{name}.json", session_of(name, 8)) for name in ("parser", "lexer", "printer")}
    outs = {name: desk.compress(path, f"{name}.out.json", *shorten_all) for name, path in sessions.items()}
    for name, path in sessions.items():
        assert desk.json(path, "--output", outs[name])["is_same"]
        assert desk.json(outs[name], "--output", outs[name])["is_same"]

    before = desk.json(sessions["parser"])["pass"]
    desk.compress(sessions["parser"], "again.json", "--policy", "threshold", "--keep-result", "0")
    assert desk.json(sessions["parser"])["pass"] != before
    assert desk.json(sessions["parser"], "--pass", before[:12], "--output", outs["parser"])["is_same"]


def test_a_session_no_pass_was_made_from_is_named_as_such(desk: Desk, shorten_all: tuple[str, ...]) -> None:
    """Not compared with a pass of another; unless one is named."""
    desk.compress(desk.shell.file("parser.json", session_of("parser", 8)), "out.json", *shorten_all)
    other = desk.shell.file("other.json", session_of("lexer", 8))
    found = desk.json(other, code=1)

    assert (found["is_same"], found["pass"]) == (False, None)
    assert "no pass of this trail" in desk.ask(other, code=1).stdout
    assert desk.json(other, "--pass", "last", code=1)["checks"][0]["detail"] == (
        "another history than the pass was made from"
    )


@pytest.mark.parametrize("by", ["input", "output"])
def test_a_session_of_claude_code_is_compared_under_the_id_it_was_written_with(
    desk: Desk, claude_rows: list[Any], shorten_all: tuple[str, ...], by: str
) -> None:
    """Each is written under a new one. From what was read, and from what was written with the store."""
    rows = [{**row, "sessionId": "11111111-2222-3333-4444-555555555555"} for row in claude_rows]
    session = desk.shell.file("session.jsonl", lines_of(rows))
    out = desk.compress(session, "out.jsonl", *shorten_all)
    given = session if by == "input" else out
    assert json.loads(out.read_text().splitlines()[0])["sessionId"] != rows[0]["sessionId"]
    assert desk.json(given, "--output", out)["is_same"]

    out.write_text(out.read_text().replace("Fix the parser.", "Fix the Parser."))
    found = desk.json(session, "--output", out, code=1)
    assert [check["what"] for check in found["checks"] if not check["is_same"]] == ["the written file, byte for byte"]


def test_lines_that_were_removed_do_not_stop_a_replay_from_the_output(desk: Desk) -> None:
    """The rebuilt input has more lines than the file it was rebuilt from."""
    rows = [
        row
        for n in range(12)
        for row in (call("read_file", path=f"{n}.py"), result(f"{n}: a line\n" * 200), user(f"Go on, {n}."))
    ]
    session = desk.shell.file("session.jsonl", lines_of(history(user("Fix it."), *rows)))
    words = ("--policy", "threshold", "--keep-result", "1", "--keep-call", "1", "--profile", "reference")
    out = desk.compress(session, "out.jsonl", *words)

    assert len(out.read_text().splitlines()) < len(session.read_text().splitlines())
    for given in (session, out):
        assert desk.json(given, "--output", out)["is_same"]


def test_a_later_state_in_another_writing_is_compared_by_its_messages(desk: Desk, shorten_all: tuple[str, ...]) -> None:
    """How the lost input was set in lines and blanks is not known; every message is."""
    session = desk.shell.file("session.json", json.dumps(session_of("parser", 8), indent=1))
    out = desk.compress(session, "out.json", *shorten_all)
    later = desk.shell.file("later.json", json.dumps([*json.loads(out.read_text()), *history(user("And now?"))]))
    assert desk.json(later, "--output", out)["is_same"]

    out.write_text(out.read_text().replace("Fix parser.", "Fix Parser."))
    found = desk.json(later, "--output", out, code=1)
    assert [check["what"] for check in found["checks"] if not check["is_same"]] == [
        "the written file, message for message"
    ]


def test_without_the_trails_key_decisions_are_compared_and_no_bytes(
    desk: Desk, shorten_all: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither "identical" nor "another history": the key is named as what is missing."""
    session = desk.shell.file("parser.json", session_of("parser", 8))
    out = desk.compress(session, "out.json", *shorten_all)
    another = desk.shell.file("another.key", KEY)
    assert desk.json(session)["bytes_compared"]
    assert "Identical" in desk.ask(session, "--output", out).stdout

    with_another = desk.ask(session, "--output", out, key=another).stdout
    assert "Decisions are the same, bytes were not compared" in with_another
    assert "The key here is not this trail's" in with_another
    assert not desk.json(session, key=another)["bytes_compared"]
    longer = session_of("parser", 8)
    longer[2] = {**longer[2], "content": longer[2]["content"] + "x"}
    assert not desk.json(desk.shell.file("longer.json", longer), key=another, code=1)["is_same"]

    monkeypatch.setenv("XDG_DATA_HOME", str(desk.shell.folder / "elsewhere"))
    without = desk.ask(session, "--output", out).stdout
    assert "There is no key here" in without
    assert "Identical" not in without + with_another


def test_settings_of_a_newer_version_are_named_and_left_out(desk: Desk, shorten_all: tuple[str, ...]) -> None:
    """The rest is replayed."""
    session = desk.shell.file("parser.json", session_of("parser", 8))
    desk.compress(session, "out.json", *shorten_all)
    desk.trail.write_text(desk.trail.read_text().replace('"settings":{', '"settings":{"from_the_future":7,'))
    done = desk.ask(session)

    assert "does not know are left out: from_the_future" in done.stderr
    assert "Identical" in done.stdout


def test_the_table_says_something_about_every_answer(desk: Desk) -> None:
    """Answers far below 0.10 too; calls stay unless it is asked what their limit would do."""
    session = judged(desk, session_of("parser", 60))
    rows = desk.json(session, "--sweep")
    assert {0.1, 0.35} < {row["threshold"] for row in rows}
    assert len({row["below"] for row in rows}) >= 10
    assert [row["out"] for row in rows] == sorted(row["out"] for row in rows)
    assert all(row["expected_misses"] is not None for row in rows)

    shown = desk.ask(session, "--sweep").stdout
    assert "expected misses" in shown
    assert len(shown.splitlines()) == len(rows) + 1


def test_the_sum_of_raw_answers_is_not_called_an_expectation(desk: Desk) -> None:
    """An uncalibrated judge's answers were never fitted to what was needed."""
    session = judged(desk, session_of("parser"), ScriptedJudge(growing, is_calibrated=False))
    shown = desk.ask(session, "--sweep").stdout

    assert "sum of answers" in shown
    assert "expected misses" not in shown
    assert "no number of misses to expect" in shown
    assert all(row["expected_misses"] is None for row in desk.json(session, "--sweep"))
    assert "(uncalibrated)" in desk.ask(session, "--miss-cost", "9").stdout


def test_what_the_answer_cannot_know_is_said(desk: Desk) -> None:
    """A forced pass goes on whatever a miss costs; where the judge said nothing, its answer is not known."""
    half = ScriptedJudge(lambda call: growing(call) if call.number % 2 else None, is_calibrated=False)
    session = judged(desk, session_of("parser"), half, force=True)

    assert any("pass was forced" in note for note in desk.json(session, "--miss-cost", "50")["notes"])
    assert any("judge had said nothing" in note for note in desk.json(session, "--policy", "threshold")["notes"])


def test_what_would_be_removed_instead_of_shortened_is_shown(desk: Desk) -> None:
    """The limit for calls moves units between the two, and keeps and takes none."""
    session = judged(desk, session_of("parser"), policy="threshold", keep_result=1.0, keep_call=0.0)
    found = desk.json(session, "--keep-call", "0.25")
    assert found["would_stay"] == found["would_go"] == found["would_be_shortened"] == []
    assert found["would_be_removed"] == [f"t{n}" for n in range(1, 10)]
    assert "would be removed     9  t1 t2" in desk.ask(session, "--keep-call", "0.25").stdout

    rows = {keep_call: desk.json(session, "--sweep", *keep_call) for keep_call in ((), ("--keep-call", "0.25"))}
    assert rows[()][-1]["freed_tokens"] < rows[("--keep-call", "0.25")][-1]["freed_tokens"]


def test_of_two_records_that_lead_back_the_trail_tells_which(desk: Desk) -> None:
    """Two sessions that differ in what was removed only, and are alike behind it."""
    outs = []
    for name in ("one", "two"):
        rows = [row for n in range(8) for row in (call("read_file", path=f"{n}.py"), result(f"{name} {n}\n" * 200))]
        session = desk.shell.file(f"{name}.json", history(user("Fix it."), *rows, *[user("Go on.")] * 7))
        words = ("--profile", "reference", "--policy", "threshold", "--keep-result", "1", "--keep-call", "1")
        outs.append(desk.compress(session, f"{name}.out.json", *words))
    first, second = (row["pass"] for row in passes_of(desk))

    assert outs[0].read_bytes() == outs[1].read_bytes()
    assert desk.json(outs[0], "--pass", first)["is_same"]
    assert desk.json(outs[1], "--pass", second)["is_same"]


def passes_of(desk: Desk) -> Any:
    line = ["audit", "--file", str(desk.trail), "--store", str(desk.shell.store), "list", "--json"]
    return json.loads(CliRunner().invoke(main, line, catch_exceptions=False).stdout)["passes"]
