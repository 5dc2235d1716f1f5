"""Session files: every container and form, every way one can be broken, and writing without leaving anything half."""

from __future__ import annotations

import json
import math
import os
import signal

import pytest
from commands import start

from jev_engine.cli.reading import MOST_BYTES, read_session
from jev_engine.plugins import load_plugins

GOOD = '{"role": "user", "content": "Hello."}'
ROW = '{"type": "user", "uuid": "a", "message": {"role": "user", "content": "Hello."}}'

BROKEN = [
    ("an empty file", "", ["empty"]),
    ("blanks only", " \n\n", ["empty"]),
    ("a binary file", b"SQLite format 3\0\1\2", ["binary"]),
    ("another encoding", '[{"role": "user", "content": "é"}]'.encode("latin-1"), ["line 1", "UTF-8"]),
    ("UTF-16 without its mark", f"[{GOOD}]".encode("utf-16-le"), ["UTF-16", "Save the session as UTF-8"]),
    ("plain prose", "Dear agent,\nplease fix it.", ["line 1", "no JSON"]),
    ("a list that is cut off", f"[{GOOD},\n{GOOD},\n", ["line 3", "cut off"]),
    ("a list cut inside a text", f'[{GOOD},\n{{"role": "us', ["line 2", "cut off"]),
    ("a list cut inside a sign", f'[{{"content": "{"é"}'.encode()[:-1], ["line 1", "cut off"]),
    ("chat lines that are cut off", f'{GOOD}\n{GOOD}\n{{"role": "us', ["line 3", "cut off"]),
    ("a broken line in the middle", f"{GOOD}\n{{oops}}\n{GOOD}\n", ["line 2", "no JSON"]),
    ("a broken row in the middle", f"{ROW}\n{{oops}}\n{ROW}\n", ["line 2", "no JSON"]),
    ("an object without messages", '{"name": "x"}', ["without a `messages` list"]),
    ("one number", "17", ["number"]),
    ("one text", '"hello"', ["text"]),
    ("a list of numbers", "[1, 2, 3]", ["none of the known forms", "--format"]),
    ("objects that are no messages", '[{"name": "x"}, {"name": "y"}]', ["none of the known forms"]),
    ("two forms in a list", f"[{GOOD}, {ROW}]", ["message 1", "message 2", "mixes two forms"]),
    ("two forms in lines", f"{GOOD}\n{ROW}\n", ["line 1", "line 2", "mixes two forms"]),
    (
        "a whole session on each line",
        f'{{"messages": [{GOOD}]}}\n{{"messages": [{GOOD}]}}\n',
        ["line 1", "whole session"],
    ),
    ("nesting without end", "[" * 200_000, ["nested too deeply"]),
    ("a number without end", f"[{'9' * 10_000}]", ["number", "too long"]),
]


@pytest.mark.parametrize("command", ["compress", "inspect", "restore"])
@pytest.mark.parametrize(("content", "words"), [row[1:] for row in BROKEN], ids=[row[0] for row in BROKEN])
def test_a_broken_file_gets_a_clear_error_and_is_left_alone(shell, command, content, words) -> None:
    """Exit code 2, the file's name, what is wrong and where; and not a byte changed or added."""
    path = shell.file("session.json", content)
    before = path.read_bytes()

    done = shell.run(command, path)

    assert done.exit_code == 2
    assert done.stdout == ""
    for word in ["session.json", *words]:
        assert word in " ".join(done.stderr.split())
    assert path.read_bytes() == before
    assert shell.names() == {"session.json"}


def test_a_file_that_is_not_there_and_a_folder_are_named(shell) -> None:
    """Paths that lead nowhere end with 2."""
    missing, folder = shell.run("compress", shell.folder / "no.json"), shell.run("compress", shell.folder)

    assert (missing.exit_code, folder.exit_code) == (2, 2)
    assert "no such file" in missing.stderr
    assert "is a folder" in folder.stderr


def test_a_huge_file_is_refused_without_being_read(shell) -> None:
    """The limit is checked by size first; the file is sparse, so the test costs nothing."""
    path = shell.folder / "huge.json"
    with path.open("wb") as stream:
        stream.truncate(MOST_BYTES + 1)

    done = shell.run("compress", path)

    assert done.exit_code == 2
    assert "larger than 512 MB" in done.stderr


def test_a_claude_code_file_that_is_still_being_written_is_read_without_its_last_line(shell, claude_rows) -> None:
    """Half a last line is normal there: a warning, no error."""
    text = "".join(json.dumps(row) + "\n" for row in claude_rows)

    done = shell.run("compress", shell.file("live.jsonl", text + '{"type": "user", "mess'), "--json")

    assert done.exit_code == 0
    assert f"line {len(claude_rows) + 1}, the last one, is cut off" in done.stderr
    assert json.loads(done.stdout)["calls"] == 6


def test_a_form_named_wrongly_is_refused(shell, messages, claude_rows) -> None:
    """--format does not make one form out of another."""
    chat = shell.run("compress", shell.file("chat.json", messages), "--format", "claude-code")
    rows = shell.run("compress", shell.file("rows.json", claude_rows), "--format", "openai")
    unknown = shell.run("compress", shell.file("chat.json", messages), "--format", "word")

    assert (chat.exit_code, rows.exit_code, unknown.exit_code) == (2, 2, 2)
    assert "has the form 'openai'" in chat.stderr
    assert "has the form 'claude-code'" in rows.stderr
    known = ", ".join(load_plugins(entry_points=False).adapter_names())
    assert f"'word' is none of auto, {known}" in " ".join(unknown.stderr.split())


def test_a_session_may_come_from_standard_input(shell, messages) -> None:
    """FILE may be a dash."""
    done = shell.run("compress", "-", "--json", stdin=json.dumps(messages))

    assert json.loads(done.stdout)["calls"] == 8


@pytest.mark.parametrize("text", ["[]", '{"messages": []}', "[]\n"])
def test_a_session_without_messages_is_an_honest_nothing(shell, text) -> None:
    """Nothing to prune is no error."""
    done = shell.run("compress", shell.file("none.json", text), "--json")

    assert done.exit_code == 0
    assert json.loads(done.stdout)["outcome"] == "nothing_to_prune"


def spellings(messages) -> dict[str, str]:
    """One session in every container and spelling."""
    compact = {"separators": (",", ":"), "ensure_ascii": False}
    return {
        "list": json.dumps(messages),
        "list with a line end": json.dumps(messages) + "\n",
        "list of two blanks": json.dumps(messages, indent=2) + "\n",
        "list of tabs": json.dumps(messages, indent="\t", ensure_ascii=False),
        "list as JavaScript writes it": json.dumps(messages, **compact),
        "list with Windows line ends": json.dumps(messages, indent=4).replace("\n", "\r\n"),
        "list with a byte order mark": "\ufeff" + json.dumps(messages),
        "object": json.dumps({"id": 7, "messages": messages, "model": "m", "temperature": math.nan}, indent=1),
        "lines": "".join(json.dumps(m) + "\n" for m in messages),
        "lines as JavaScript writes them": "\n".join(json.dumps(m, **compact) for m in messages),
        "lines with Windows line ends": "".join(json.dumps(m) + "\r\n" for m in messages),
    }


SPELLINGS = list(spellings([]))


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_container_and_spelling_survive_and_restore_gives_the_very_file_back(
    shell, messages, shorten_all, spelling
) -> None:
    """A file that a common tool wrote comes back byte for byte, whatever its container."""
    messages[0]["content"] += " Größe, 数, \u2028 and a half \ud83d."
    text = spellings(messages)[spelling]
    path = shell.file("session.json", text.encode("utf-8", "surrogatepass") if "\ud83d" not in text else escaped(text))
    original = path.read_bytes()

    done = shell.run("compress", path, "-o", shell.folder / "short.json", *shorten_all)
    back = shell.run("restore", shell.folder / "short.json", "-o", shell.folder / "back.json")

    assert (done.exit_code, back.exit_code) == (0, 0), done.stderr + back.stderr
    short = (shell.folder / "short.json").read_bytes()
    assert len(short) < len(original) / 2
    assert short.startswith(original[:100])
    assert (short.count(b"\r\n") > 0) == (original.count(b"\r\n") > 0)
    assert short[-1:] == original[-1:]
    assert (shell.folder / "back.json").read_bytes() == original


def escaped(text: str) -> bytes:
    """Half a surrogate pair has no UTF-8 form: files hold it as an escape."""
    return text.replace("\ud83d", "\\ud83d").encode()


def test_an_object_keeps_its_other_fields_in_their_order(shell, messages, shorten_all) -> None:
    """Only `messages` differs."""
    path = shell.file("session.json", {"model": "m", "messages": messages, "tools": [{"name": "read_file"}]})

    shell.run("compress", path, "-o", shell.folder / "short.json", *shorten_all)

    short = json.loads((shell.folder / "short.json").read_text())
    assert list(short) == ["model", "messages", "tools"]
    assert short["tools"] == [{"name": "read_file"}]


def test_lines_of_untouched_messages_stay_as_they_are_written(shell, messages, shorten_all) -> None:
    """Whatever spelling a line has, it is copied, not written anew."""
    lines = [json.dumps(m) for m in messages]
    lines[0] = lines[0].replace('"role": "user"', '"role"  :  "user", "n": 1.50e3')
    path = shell.file("session.jsonl", "\n".join(lines))

    shell.run("compress", path, "-o", shell.folder / "short.jsonl", *shorten_all)

    short = (shell.folder / "short.jsonl").read_text().split("\n")
    assert short[0] == lines[0]
    assert sum(a == b for a, b in zip(lines, short, strict=True)) == len(lines) - 5


def test_a_name_that_an_object_holds_twice_is_said(shell) -> None:
    """JSON readers take the last one; nobody crashes, and the user hears of it."""
    done = shell.run("compress", shell.file("s.json", '[{"role": "user", "role": "user", "content": "x"}]'))

    assert done.exit_code == 0
    assert "holds 'role' twice" in done.stderr


def test_numbers_that_json_does_not_know_survive(shell, messages, shorten_all) -> None:
    """NaN and infinity are written as they were read."""
    messages[1]["logprob"] = [math.nan, math.inf, -math.inf]
    path = shell.file("s.json", messages)

    shell.run("compress", path, "-o", shell.folder / "short.json", *shorten_all)

    assert "[NaN, Infinity, -Infinity]" in (shell.folder / "short.json").read_text()


def test_the_output_is_for_its_owner_only(shell, messages, shorten_all) -> None:
    """Sessions hold secrets."""
    out = shell.folder / "short.json"

    shell.run("compress", shell.file("s.json", messages), "-o", out, *shorten_all)

    assert out.stat().st_mode & 0o777 == 0o600


def test_the_input_file_is_never_the_output_file(shell, messages, shorten_all) -> None:
    """By its own name, by a link, and for `restore` too; the refusal says what to do."""
    path = shell.file("s.json", messages)
    before = path.read_bytes()
    (shell.folder / "link.json").symlink_to(path)
    os.link(path, shell.folder / "hard.json")

    for out in ("s.json", "link.json", "hard.json"):
        for command, words in (("compress", shorten_all), ("restore", ())):
            done = shell.run(command, path, "-o", shell.folder / out, *words)

            assert done.exit_code == 2
            assert "never changed. Name another file" in " ".join(done.stderr.split())
    assert path.read_bytes() == before
    assert not shell.store.exists()


def test_what_is_no_ordinary_file_is_not_replaced(shell, messages, shorten_all) -> None:
    """A folder, a folder that is not there, a pipe: refused before anything is judged or stored."""
    path = shell.file("s.json", messages)
    os.mkfifo(shell.folder / "pipe")
    (shell.folder / "folder").mkdir()
    refused = {
        "folder": "is a folder",
        "no/short.json": "does not exist",
        "pipe": "no ordinary file",
        "x" * 300: "too long",
    }

    for out, words in refused.items():
        done = shell.run("compress", path, "-o", shell.folder / out, *shorten_all)

        assert done.exit_code == 2
        assert words in done.stderr
    assert shell.names() == {"s.json", "pipe", "folder"}


def test_the_store_is_not_overwritten(shell, messages, shorten_all) -> None:
    """Naming the store as output would lose every original."""
    path = shell.file("s.json", messages)
    shell.run("compress", path, "-o", shell.folder / "short.json", *shorten_all)
    before = shell.store.read_bytes()

    done = shell.run("compress", path, "-o", shell.store, *shorten_all)

    assert done.exit_code == 2
    assert "is the store" in done.stderr
    assert shell.store.read_bytes() == before


def test_a_write_that_fails_half_way_leaves_nothing_behind(shell, messages, shorten_all) -> None:
    """The disk is full after 50,000 bytes; the file that was there before is still there, whole."""
    messages[2]["content"] *= 30
    path = shell.file("s.json", messages)
    shell.run("compress", path, "-o", shell.folder / "short.json", *shorten_all)
    shell.file("back.json", "what was there before")
    before = shell.names()

    process = start(
        "restore",
        shell.folder / "short.json",
        "-o",
        shell.folder / "back.json",
        "--store",
        shell.store,
        most_bytes=50_000,
    )
    _, errors = process.communicate(timeout=60)

    assert process.returncode == 2
    assert b"cannot be written" in errors
    assert shell.names() == before
    assert (shell.folder / "back.json").read_text() == "what was there before"


def test_ctrl_c_ends_with_130_and_leaves_nothing_behind(shell) -> None:
    """The command waits for its input when the signal comes."""
    out = shell.folder / "short.json"
    process = start("compress", "-", "-o", out, "--store", shell.store)
    assert process.stdin is not None
    # More than a pipe holds: once this returns, the command is reading.
    process.stdin.write(b"[" + b" " * 300_000)
    process.stdin.flush()

    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)

    assert process.returncode == 130
    assert b"Interrupted" in errors
    assert b"Traceback" not in errors
    assert shell.names() == set()


def test_the_place_of_a_message_is_known(shell) -> None:
    """Errors name lines where there are lines."""
    lines = read_session(str(shell.file("a.jsonl", f"{GOOD}\n\n{GOOD}\n")))
    listed = read_session(str(shell.file("a.json", f"[{GOOD}, {GOOD}]")))

    assert (lines.where(1), listed.where(1)) == ("line 3", "message 2")
