"""The text of session files: what is not edited stays sign for sign, and `restore` gives the very file back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jev_engine.written import Row, Written, entries_of, patched

SHORTEN_ALL = ("--policy", "threshold", "--keep-result", "1", "--keep-call", "0")
REMOVE_ALL = ("--policy", "threshold", "--keep-result", "1", "--keep-call", "1")
ODD_FIELDS = (
    '"cost": 1.10, "most": 1e400, "long": 0.12345678901234567890123, "zero": -0, "role": "nobody", "none" :NaN,'
)


def oddly(message) -> str:
    """The message as no tool would write it again: odd numbers, a name that stands twice, odd escapes."""
    text = json.dumps(message).replace("part", r"p\u0061rt").replace("/", r"\/")
    return text.replace("{", "{ " + ODD_FIELDS + "\t", 1)


ODD = {
    "list": lambda rows: " [" + ",\n\n".join(rows) + "\r\n ] \n",
    "list with old line ends": lambda rows: "[\r" + ",\r".join(rows) + "\r]",
    "object": lambda rows: '{"n": 1.50, "messages": [],\n "messages":[' + " ,".join(rows) + '], "n": 2.50, "z": 1e999}',
    "lines": lambda rows: "\n" + "\n\n".join(rows[:4]) + "\r\n" + "\n".join(rows[4:]) + "\n\n",
    "lines without an end": " \r\n".join,
    "UTF-16": lambda rows: "\ufeff[" + ", ".join(rows) + ', {"role": "user", "content": "数 é \U0001f600"}]',
}


@pytest.mark.parametrize("container", ODD)
@pytest.mark.parametrize("words", [SHORTEN_ALL, REMOVE_ALL])
def test_a_file_that_no_tool_would_write_again_is_edited_in_place_and_comes_back(
    shell, messages, container, words
) -> None:
    """Digits, escapes, doubled names, line ends and blank lines: in what stays at once, in what leaves by restore."""
    rows = [oddly(message) for message in messages]
    text = ODD[container](rows)
    code = "utf-16-be" if container == "UTF-16" else "utf-8"
    path = shell.file("session.json", text.encode(code))

    done = shell.run("compress", path, "-o", shell.folder / "short.json", *words)
    back = shell.run("restore", shell.folder / "short.json", "-o", shell.folder / "back.json")

    short = (shell.folder / "short.json").read_bytes().decode(code)
    assert (done.exit_code, back.exit_code) == (0, 0), done.stderr + back.stderr
    assert len(short) < len(text) / 2
    assert rows[0] in short
    assert rows[-1] in short
    assert short.count(ODD_FIELDS) == short.count('"content"') - (container == "UTF-16")
    assert "Infinity" not in short
    assert (shell.folder / "back.json").read_bytes() == path.read_bytes()


@pytest.mark.parametrize("indent", [None, 2])
def test_passes_over_a_file_are_undone_one_after_the_other(shell, messages, indent) -> None:
    """The second takes the last sign out that shows how the file writes accents, and rows that the first left."""
    messages[2]["content"] += "é"
    messages[6]["content"] = messages[6]["content"].replace("a line", "une ligne à elle")
    text = json.dumps(messages, indent=indent, ensure_ascii=False).replace(
        '"tool_call_id"', '"n": 1.10, "tool_call_id"'
    )
    path = shell.file("one.json", text)
    runs = [
        shell.run("compress", path, "-o", shell.folder / "two.json", *SHORTEN_ALL, "--protect", "path:src/part_0.py"),
        shell.run("compress", shell.folder / "two.json", "-o", shell.folder / "three.json", *REMOVE_ALL, "--force"),
        shell.run("restore", shell.folder / "three.json", "-o", shell.folder / "back.json"),
    ]

    assert [run.exit_code for run in runs] == [0, 0, 0]
    assert "2 passes undone" in runs[-1].stderr
    assert (shell.folder / "three.json").read_bytes().isascii()
    assert (shell.folder / "back.json").read_bytes() == path.read_bytes()


def test_a_row_that_came_later_stays_as_it_was_written(shell, messages) -> None:
    """Behind what restore brings back, sign for sign."""
    path = shell.file("one.jsonl", "\n".join(oddly(message) for message in messages) + "\n")
    shell.run("compress", path, "-o", shell.folder / "two.jsonl", *REMOVE_ALL)
    later = '{"role" : "user", "content":"One more.", "n": 1.10}\n'
    with (shell.folder / "two.jsonl").open("a", encoding="utf-8") as short:
        short.write(later)

    shell.run("restore", shell.folder / "two.jsonl", "-o", shell.folder / "back.jsonl")

    assert (shell.folder / "back.jsonl").read_text() == path.read_text() + later


def test_texts_are_kept_twice_only_where_they_have_to_be(shell, messages) -> None:
    """A file as tools write it comes back from its values; an odd number beside a shortened result costs nothing."""
    messages[0]["content"] += "é"
    messages[2]["content"] += "é"
    plain = shell.file("plain.json", json.dumps(messages, indent=1, ensure_ascii=False))
    odd = shell.file("odd.jsonl", "\n".join(json.dumps(row).replace('{"', '{"n": 1.10, "', 1) for row in messages[2:]))

    for path in (plain, odd):
        shell.run("compress", path, "-o", shell.folder / "short.json", *SHORTEN_ALL)

    assert json.loads(shell.run("store", "stats", "--json").stdout)["passes"] == 2


def test_a_claude_code_session_moves_with_every_number_it_has(shell, claude_rows) -> None:
    """Every row gets another id in it; the rest of the row is the very text of the old file."""
    lines = [json.dumps({**row, "sessionId": "old"}).replace('{"', '{"cost": 1.10, "', 1) for row in claude_rows]
    path = shell.file("old.jsonl", "\n".join(lines))

    shell.run("compress", path, "-o", shell.folder / "new.jsonl", *SHORTEN_ALL)
    shell.run("restore", shell.folder / "new.jsonl", "-o", shell.folder / "back.jsonl")

    new = (shell.folder / "new.jsonl").read_text()
    assert "old" not in new
    assert new.count('"cost": 1.10') == len(lines)
    assert (shell.folder / "back.jsonl").read_bytes() == path.read_bytes()


scalars = st.one_of(st.none(), st.booleans(), st.integers(-3, 3), st.floats(), st.text(max_size=3))
values = st.recursive(
    scalars, lambda each: st.lists(each, max_size=4) | st.dictionaries(st.text(max_size=2), each, max_size=4)
)


@given(before=values, after=values, indent=st.sampled_from([None, 1, "\t"]))
def test_a_text_is_changed_into_one_of_any_other_value(before, after, indent) -> None:
    """Whatever the two have in common."""
    made = patched(f" {json.dumps(before, indent=indent)}", before, after, json.dumps)

    assert json.dumps(json.loads(made)) == json.dumps(after)


@pytest.mark.parametrize(
    ("before", "after", "wanted"),
    [
        ('{"a": 1.0, "b":  2.50}', {"a": 3, "b": 2.5}, '{"a": 3, "b":  2.50}'),
        ('{"a": 1, "a": 2.0 , "b": -0}', {"a": True, "b": 0}, '{"a": 1, "a": true , "b": -0}'),
        ('{"a": 1, "b": 2.50}', {"a": True, "b": 2.5}, '{"a": true, "b": 2.50}'),
        ('{ "a": 1 , "b": 2.50, "c": 3}', {"b": 2.5, "c": 3}, '{ "b": 2.50, "c": 3}'),
        ('{"b": 2.50, "c": 3 , "d": 4 }', {"b": 2.5}, '{"b": 2.50 }'),
        ("[1.10, 2, 3e1]", [1.1, 30.0], "[1.10, 3e1]"),
        ('[{"t": "a", "n": 1.10}, {"t": "b"}, 2.50]', [{"t": "x", "n": 1.1}, 2.5], '[{"t": "x", "n": 1.10}, 2.50]'),
        ("[1e999, NaN, 2]", [float("inf"), float("nan"), 3], "[1e999, NaN, 3]"),
        ("[1.10]", [1.1, 2], "[1.1, 2]"),
    ],
)
def test_what_a_change_leaves_keeps_its_signs(before, after, wanted) -> None:
    """Values are told apart as JSON tells them: 1, 1.0 and true are three."""
    assert patched(before, json.loads(before), after, json.dumps) == wanted


def test_how_a_row_was_written_counts_only_where_it_fits() -> None:
    """A record of another container, or of another message, would break the file."""
    lines = Written.of('{"n": 1}\n{"n": 2}', [(0, 8), (9, 17)], [{"n": 1}, {"n": 2}], is_lines=True)
    listed = Written.of('[{"n": 1}, {"n": 2}]', [(1, 9), (11, 19)], [{"n": 1}, {"n": 2}])
    rows = [{"n": 1}, {"n": 1.5}, {"n": 2}]

    def made(session, before, text):
        return session.with_messages(rows, [0, None, 1], {1: Row(before, text)}).text

    assert made(lines, "\n\n", '{"n": 1.50}') == '{"n": 1}\n\n{"n": 1.50}\n{"n": 2}'
    assert made(lines, ",\n", '{"n": 1.50}') == '{"n": 1}\n{"n": 1.5}\n{"n": 2}'
    assert made(lines, " ", '{"n": 1.50}') == '{"n": 1}\n{"n": 1.5}\n{"n": 2}'
    assert made(lines, "\n", '{\n"n": 1.50}') == '{"n": 1}\n{"n": 1.5}\n{"n": 2}'
    assert made(listed, ",", '{\n"n": 1.50}') == '[{"n": 1},{\n"n": 1.50}, {"n": 2}]'
    assert made(listed, "\n", '{"n": 1.50}') == '[{"n": 1}, {"n": 1.5}, {"n": 2}]'
    assert made(listed, ", ", '{"n": 7.50}') == '[{"n": 1}, {"n": 1.5}, {"n": 2}]'
    assert made(listed, ", ", '{"n": 1.50') == '[{"n": 1}, {"n": 1.5}, {"n": 2}]'


def test_places_in_a_text_are_found_whatever_stands_between() -> None:
    """Every value by itself, brackets and commas in texts included."""
    text = '{ "a" :[1.50,"]},"] ,"a":{"b":{}}\n}'

    assert [(entry.name, text[entry.value : entry.end]) for entry in entries_of(text, 0)] == [
        ("a", '[1.50,"]},"]'),
        ("a", '{"b":{}}'),
    ]
