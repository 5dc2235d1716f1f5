"""Claude Code session files, writing: one result in two places, and nothing else."""

from __future__ import annotations

import copy
import json

import pytest
from claude_code_rows import Session, image, text, thinks, use

from jev_engine import ContextEngine, EngineConfig
from jev_engine.host import RowChange
from jev_engine.store.memory import MemoryStore
from jev_engine.testing import ScriptedJudge, check_adapter
from jev_engine_adapters.claude_code import adapter
from jev_engine_adapters.claude_code.edits import copies_in
from jev_engine_adapters.claude_code.thinking import first_edited, is_thinking_only, thinking_behind

pytestmark = pytest.mark.anyio

SHORT = "[left out]"
LINES = [f"def part_{number}(value): return value + {number}" for number in range(60)]
PLAIN = "\n".join(LINES)
NUMBERED = "\n".join(f"{number:>6}→{line}" for number, line in enumerate(LINES, 1))

RECORDS = {
    "a shell": (PLAIN, {"stdout": PLAIN, "stderr": "", "interrupted": False, "isImage": False}),
    "a shell that also complained": (f"{PLAIN}\n{PLAIN}", {"stdout": PLAIN, "stderr": PLAIN, "interrupted": False}),
    "a reader": (NUMBERED, {"type": "text", "file": {"filePath": "/a.py", "content": PLAIN, "numLines": 60}}),
    "a search": (PLAIN, {"mode": "content", "content": PLAIN, "filenames": [], "numLines": 60}),
    "a list of names": (PLAIN, {"filenames": LINES, "numFiles": 60, "durationMs": 3, "truncated": False}),
    "an error": (f"Error: {PLAIN}", f"Error: {PLAIN}"),
    "a server of tools": (PLAIN, [{"type": "text", "text": PLAIN}]),
    "a stub of a long output": (
        f"<persisted-output>\n{PLAIN[:900]}\n</persisted-output>",
        {"stdout": PLAIN * 3, "stderr": "", "persistedOutputPath": "/tool-results/1.txt"},
    ),
}


def session_with(content, record):
    """A session of one call with that result, and that record of it."""
    session = Session()
    session.user("Go.")
    session.says(use("c1"), response="r1")
    session.result("c1", content, toolUseResult=record)
    return session


def shortened(session):
    """The row of the result after its only call was shortened."""
    [call] = session.read().calls
    change = RowChange(call.result_row, [(call, SHORT)])
    before = session.rows[call.result_row]
    after = adapter.edit(before, change)
    assert adapter.check(before, after, change) is None
    return after


@pytest.mark.parametrize("kind", RECORDS)
def test_both_copies_of_a_result_end_up_equal(kind):
    """Neither the model's text nor the host's record holds the original any more; the record keeps its shape."""
    content, record = RECORDS[kind]

    row = shortened(session_with(content, record))

    written = json.dumps(row, ensure_ascii=False)
    assert row["message"]["content"][0]["content"] == SHORT
    assert SHORT in json.dumps(row["toolUseResult"])
    assert LINES[0] not in written
    assert LINES[-1] not in written
    assert type(row["toolUseResult"]) is type(record)
    if isinstance(record, dict):
        assert list(row["toolUseResult"]) == list(record)


def test_what_is_no_copy_stays_in_the_record():
    """Names, numbers, flags and the text of another file."""
    record = {"stdout": PLAIN, "stderr": "", "cwd": "/work", "interrupted": False, "note": "x" * 400}

    row = shortened(session_with(PLAIN, record))

    assert row["toolUseResult"] == {**record, "stdout": SHORT}


def test_a_result_of_blocks_keeps_its_images():
    """The first text block holds the text, the other ones go, images stay the same objects."""
    blocks = [text(PLAIN), image(), text(PLAIN)]

    row = shortened(session_with(blocks, None))

    assert row["message"]["content"][0]["content"] == [{"type": "text", "text": SHORT}, blocks[1]]
    assert row["message"]["content"][0]["content"][1] is blocks[1]


def test_a_copy_that_was_left_behind_is_noticed():
    """The side-by-side walk looks at the second copy too."""
    session = session_with(PLAIN, {"stdout": PLAIN})
    [call] = session.read().calls
    change = RowChange(call.result_row, [(call, SHORT)])
    after = adapter.edit(session.rows[call.result_row], change)
    after["toolUseResult"] = session.rows[call.result_row]["toolUseResult"]

    assert adapter.check(session.rows[call.result_row], after, change) == "a second copy of the result is left"
    assert list(copies_in(after["toolUseResult"], call.result)) == [PLAIN]


def sample():
    """Two calls of one response, one of another, with thinking and records."""
    session = Session()
    session.user("Mend it.")
    session.says(thinks("hm"), response="r1")
    session.says("Looking.", response="r1")
    session.says(use("c1", file_path="/a.py"), response="r1")
    session.says(use("c2", "Bash", command="ls"), response="r1")
    session.result("c1", NUMBERED, toolUseResult=RECORDS["a reader"][1])
    session.result("c2", [text(PLAIN), image()], toolUseResult={"filenames": LINES, "numFiles": 60})
    session.says("Done.", response="r2")
    return session.rows


def test_the_contract_of_an_adapter_holds():
    """Reading and writing; calls are never removed."""
    report = check_adapter(lambda: adapter, sample)

    assert report.ok, str(report)
    assert sorted(report.names("skipped")) == [
        "edit removes all units and leaves nothing empty",
        "edit removes one unit and nothing else",
    ]


async def test_a_session_is_shortened_and_comes_back_byte_for_byte():
    """Also after two passes, with rows that were added between them."""
    rows = [*sample(), *(row for n in range(6) for row in unit(n))]
    before = copy.deepcopy(rows)
    engine = ContextEngine(
        config=EngineConfig(window_tokens=20_000), judge=ScriptedJudge(lambda _: (0.9, 0.001)), store=MemoryStore()
    )

    once = await engine.compress(rows, force=True, host="claude-code")
    more = [*once.messages, *(row for n in range(6, 12) for row in unit(n))]
    twice = await engine.compress(more, force=True, host="claude-code", ledger=once.ledger)
    back = await engine.restore(twice.messages, host="claude-code")

    assert once.outcome == "committed"
    assert len(json.dumps(twice.messages)) < len(json.dumps(more)) / 2
    assert rows == before
    assert back.messages == [*before, *(row for n in range(6, 12) for row in unit(n))]


def unit(number):
    """A call and its result, hanging off nothing in particular."""
    session = Session()
    session.says(use(f"u{number}", "Bash", command=f"run {number}"), response=f"response {number}")
    session.result(f"u{number}", f"{number}\n{PLAIN}", toolUseResult={"stdout": f"{number}\n{PLAIN}", "stderr": ""})
    for place, row in enumerate(session.rows):
        row["uuid"] = f"unit-{number}-{place}"
        row["parentUuid"] = None if place == 0 else f"unit-{number}-{place - 1}"
        del row["parentUuid"]  # as if the link were lost: the row before stands in
    return session.rows


def test_thinking_behind_an_edit_is_told():
    """Newer models void what is signed behind a changed row; whoever writes the file has to know."""
    session = Session()
    session.user("Go.")
    session.says(thinks("early"), response="r1")
    session.says(use("c1"), response="r1")
    session.result("c1", PLAIN)
    session.says(thinks("late"), response="r2")
    session.says(thinks("late too"), "Done.", response="r2")
    rows = session.rows
    [call] = session.read().calls
    edited = [*rows]
    edited[3] = adapter.edit(rows[3], RowChange(3, [(call, SHORT)]))

    assert first_edited(rows, edited) == 3
    assert thinking_behind(rows, 3) == [4, 5]
    assert [is_thinking_only(row) for row in rows] == [False, True, False, False, True, False]
    assert first_edited(rows, rows) is None
