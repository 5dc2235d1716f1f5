"""`compress`: what it prints, what it writes, and what it refuses."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from jev_engine.cli.show import CallRow, call_table
from jev_engine.testing import assistant, call, history, result, user
from jev_engine_adapters.openai import adapter

KEYS = (
    "outcome reason messages_before messages_after chars_before chars_after tokens_before tokens_after calls pinned"
    " decisions stats written_to"
).split()
DECISION_KEYS = "label tool action reason p_call p_result chars chars_after".split()
STATS_KEYS = "state_stage state_tokens windows requests expected_misses ms".split()


def test_json_prints_exactly_one_object_with_the_promised_keys(shell, messages, shorten_all) -> None:
    """Scripts rely on these names."""
    done = shell.run("compress", shell.file("s.json", messages), "--json", *shorten_all)

    printed = json.loads(done.stdout)
    assert list(printed) == KEYS
    assert list(printed["decisions"][0]) == DECISION_KEYS
    assert set(STATS_KEYS) <= set(printed["stats"])
    assert printed["outcome"] == "committed"
    assert printed["calls"] == 8 == len(printed["decisions"]) + sum(printed["pinned"].values())
    assert printed["chars_before"] > printed["chars_after"]
    assert printed["tokens_before"] > printed["tokens_after"]
    assert {decision["action"] for decision in printed["decisions"]} == {"truncate"}


def test_without_out_nothing_is_written_or_stored(shell, messages, shorten_all) -> None:
    """A dry run leaves the folder as it was, and says how to write."""
    path = shell.file("s.json", messages)

    done = shell.run("compress", path, *shorten_all)

    assert done.exit_code == 0
    assert shell.names() == {"s.json"}
    assert not shell.store.exists()
    assert done.stdout.rstrip().endswith("add -o OUT.")


def test_dry_run_holds_even_with_out(shell, messages, shorten_all) -> None:
    """--dry-run wins over -o."""
    done = shell.run(
        "compress", shell.file("s.json", messages), "-o", shell.folder / "out.json", "--dry-run", *shorten_all
    )

    assert shell.names() == {"s.json"}
    assert "leave out --dry-run" in done.stdout


def test_the_written_session_is_shorter_and_no_word_of_a_person_is_changed(shell, messages, shorten_all) -> None:
    """Results are shortened; user and assistant texts, calls and arguments are not."""
    out = shell.folder / "out.json"

    done = shell.run("compress", shell.file("s.json", messages), "-o", out, *shorten_all)

    written = json.loads(out.read_text())
    assert f"jev-engine restore {out} --store {shell.store}" in done.stdout
    assert [m for m in written if m["role"] != "tool"] == [m for m in messages if m["role"] != "tool"]
    assert sum("left out to save room" in m["content"] for m in written if m["role"] == "tool") == 5


def test_a_second_pass_changes_nothing(shell, messages, shorten_all) -> None:
    """What is out stays out, and is told apart from what could still go."""
    first, second = shell.folder / "first.json", shell.folder / "second.json"
    shell.run("compress", shell.file("s.json", messages), "-o", first, *shorten_all)

    done = shell.run("compress", first, "-o", second, *shorten_all)

    assert done.exit_code == 0
    assert "5 already out" in done.stdout
    assert second.read_bytes() == first.read_bytes()


def test_a_session_with_nothing_to_take_out_is_written_as_it_came(shell) -> None:
    """A script finds its file, byte for byte, and the exit code is 0."""
    path = shell.file("s.json", b'[ {"role" : "user", "content":"Hello."} ]\n')
    out = shell.folder / "out.json"

    done = shell.run("compress", path, "-o", out)

    assert done.exit_code == 0
    assert "nothing_to_prune" in done.stdout
    assert out.read_bytes() == path.read_bytes()
    assert not shell.store.exists()


def test_a_pass_that_frees_too_little_says_so_and_force_goes_on(shell, messages, shorten_all) -> None:
    """Not worth it is an honest outcome with exit code 0."""
    rows = [*messages, user("x " * 60_000)]
    path = shell.file("s.json", rows)

    done = shell.run("compress", path, *shorten_all)
    forced = shell.run("compress", path, "--force", "--json", *shorten_all)

    assert done.exit_code == 0
    assert "not_worth_it" in done.stdout
    assert "--force" in done.stdout
    assert json.loads(forced.stdout)["tokens_after"] < json.loads(forced.stdout)["tokens_before"]


def test_out_may_be_standard_output(shell, messages, shorten_all) -> None:
    """The session goes to standard output, the table to standard error."""
    done = shell.run("compress", shell.file("s.json", messages), "-o", "-", *shorten_all)

    assert json.loads(done.stdout)[0] == messages[0]
    assert "committed" in done.stderr


def test_claude_code_files_are_judged_without_writing(shell, claude_rows, shorten_all) -> None:
    """What is written with -o is a session of its own, see test_new_session."""
    path = shell.file("s.jsonl", "".join(json.dumps(row) + "\n" for row in claude_rows))

    judged = shell.run("compress", path, *shorten_all)

    assert judged.exit_code == 0
    assert "shortened" in judged.stdout
    assert shell.names() == {"s.jsonl"}


def test_a_store_that_does_not_work_ends_with_1_and_leaves_the_session_alone(shell, messages, shorten_all) -> None:
    """Nothing leaves a history that could not be stored."""
    shell.store.parent.mkdir()
    shell.store.write_text("no database")

    done = shell.run("compress", shell.file("s.json", messages), "-o", shell.folder / "out.json", *shorten_all)

    assert done.exit_code == 1
    assert "failed" in done.stdout
    assert "it is no store: name another file" in " ".join(done.stdout.split())
    assert not (shell.folder / "out.json").exists()


@pytest.mark.parametrize(
    ("words", "option"),
    [
        (("--keep-result", "1.01"), "--keep-result"),
        (("--keep-result", "-0.1"), "--keep-result"),
        (("--keep-call", "1.01"), "--keep-call"),
        (("--keep-call", "nan"), "--keep-call"),
        (("--miss-cost", "-1"), "--miss-cost"),
        (("--miss-cost", "inf"), "--miss-cost"),
        (("--window", "999"), "--window"),
        (("--window", "many"), "--window"),
        (("--policy", "best"), "--policy"),
        (("--profile", "best"), "--profile"),
        (("--thresold", "0.5"), "--thresold"),
    ],
)
def test_a_setting_out_of_range_is_refused_by_its_name(shell, messages, words, option) -> None:
    """A threshold of 1.5 once deleted everything; here it ends with 2 before the file is read."""
    done = shell.run("compress", shell.file("s.json", messages), *words)

    assert done.exit_code == 2
    assert option in done.stderr
    assert shell.names() == {"s.json"}


def test_a_setting_without_effect_is_said(shell, messages) -> None:
    """A threshold does nothing under `worth`."""
    done = shell.run("compress", shell.file("s.json", messages), "--keep-result", "0.5")

    assert done.exit_code == 0
    assert "--keep-result has no effect under --policy worth" in done.stderr


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("read_*", "protected tool"),
        ("src/part_2.py", "protected path"),
        ("part_2*", "protected path"),
        ("t3", "protected id"),
        ("call_3", "protected id"),
        ("tool:read_file", "protected tool"),
        ("path:src/*", "protected path"),
        ("id:t3", "protected id"),
    ],
)
def test_protect_takes_tools_paths_and_ids(shell, messages, shorten_all, pattern, reason) -> None:
    """Without a prefix a pattern is tried as all three."""
    done = shell.run("compress", shell.file("s.json", messages), "--protect", pattern, "--json", *shorten_all)

    assert json.loads(done.stdout)["pinned"][reason] >= 1
    assert done.stderr == ""


def test_protect_that_matches_nothing_is_said(shell, messages) -> None:
    """Most likely a slip of the pen, and the user would only notice when the result is gone."""
    done = shell.run("compress", shell.file("s.json", messages), "--protect", "path:src/prat_2.py")

    assert "matches no call" in done.stderr


def test_json_and_the_session_cannot_share_standard_output(shell, messages) -> None:
    """Two things in one stream help nobody."""
    done = shell.run("compress", shell.file("s.json", messages), "-o", "-", "--json")

    assert done.exit_code == 2


HOSTILE = "\x1b[31mred\x1b[0m\x1b]0;title\x07 \u202eevil\u2066 \x9b2J \x00 [red]markup[/red] :smile: \ud83d"


@pytest.mark.parametrize("command", ["compress", "inspect"])
def test_control_characters_and_markup_of_a_session_reach_no_terminal(shell, shorten_all, command) -> None:
    """Escape sequences, C1, bidirectional controls and half characters appear as escapes, markup as it is written."""
    rows = history(
        user("Look."),
        *(row for n in range(6) for row in (call(f"{HOSTILE}{n}", command=HOSTILE), result(HOSTILE * 60))),
        assistant(HOSTILE),
    )
    path = shell.file(f"{'x' if command == 'compress' else 'y'}.json", rows)
    words = (*shorten_all, "--protect", "\x1b[1m*") if command == "compress" else ("--show-state",)

    done = shell.run(command, path, *words)

    assert done.exit_code == 0
    assert "\\x1b[31mred" in done.stdout
    assert not re.search("[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]", done.output)
    if command == "inspect":
        assert "[red]markup[/red] :smile:" in done.stdout


def test_a_file_name_with_an_escape_sequence_is_shown_plain(shell) -> None:
    """Names come from downloads and archives."""
    done = shell.run("compress", shell.folder / "\x1b[2Jx.json")

    assert done.exit_code == 2
    assert "\\x1b[2Jx.json" in done.stderr
    assert "\x1b" not in done.stderr


def test_a_long_session_shows_the_changes_and_a_choice_of_the_rest(shell, shorten_all) -> None:
    """A screen, not a scroll; --all shows every call."""
    reads = [row for n in range(90) for row in (call("read", n=n), result(f"{n} " * (400 + n)))]
    path = shell.file("s.json", history(user("Look."), *reads))

    some, everything = shell.run("compress", path, *shorten_all), shell.run("compress", path, "--all", *shorten_all)

    assert len(re.findall(r"^ t\d+ ", some.stdout, re.MULTILINE)) == 30
    assert "Not shown: 57 shortened, 3 pinned (--all shows every call)" in " ".join(some.stdout.split())
    assert len(re.findall(r"^ t\d+ ", everything.stdout, re.MULTILINE)) == 90


def test_the_summary_says_what_it_comes_to(shell, messages, shorten_all) -> None:
    """Counts, tokens, expected misses, break-even, where the originals are; no colour in a pipe."""
    done = shell.run("compress", shell.file("s.json", messages), *shorten_all)

    text = " ".join(done.stdout.split())
    assert "8: 5 shortened, 3 pinned (3 newest)" in text
    assert re.search(r"tokens [\d,]+ → [\d,]+, \d+ % freed", text)
    assert "expected misses" in text
    assert "pays off" in text
    assert f"would go to {shell.store}" in text
    assert "\x1b" not in done.output


def on_a_terminal(shell: Any, *words: str | Path, **environment: str) -> str:
    """What the command prints on a terminal of its own."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "jev_engine", *map(str, words), "--store", str(shell.store)],
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
        env={"PATH": os.defpath, "TERM": "xterm", "PYTHONPATH": os.pathsep.join(sys.path), **environment},
    )
    os.close(theirs)
    printed = b""
    with suppress(OSError):  # how Linux says that nobody holds the other end any more
        while piece := os.read(ours, 65_536):
            printed += piece
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return printed.decode()


def test_colour_appears_on_a_terminal_unless_no_color_is_set(shell, messages, shorten_all) -> None:
    """Yellow for what is shortened; NO_COLOR switches it off."""
    path = shell.file("s.json", messages)

    coloured = on_a_terminal(shell, "compress", path, *shorten_all)
    without = on_a_terminal(shell, "compress", path, *shorten_all, NO_COLOR="1")

    assert "\x1b[33mshortened" in coloured
    assert "Judging 18 messages" in coloured
    assert "shortened" in without
    assert "\x1b[33m" not in without


@pytest.mark.parametrize("with_judgement", [True, False])
@pytest.mark.parametrize("width", [20, 24, 30, 36, 40, 54, 60, 70, 80, 90, 120, 200])
def test_a_table_leaves_columns_out_before_it_cuts_a_number(messages, width, with_judgement) -> None:
    """Which call it is and what becomes of it stand at any width of a terminal."""
    messages[2]["content"] *= 10
    calls = adapter.read(messages).calls
    rows = [CallRow(call, 1_000, "shortened", "not worth its tokens", 0.034, 500) for call in calls]
    console = Console(width=width, file=io.StringIO())
    console.print(call_table([rows], console, with_judgement=with_judgement))
    _, head, _, *lines = console.file.getvalue().rstrip().split("\n")

    assert [line.split()[0] for line in lines] == [call.label for call in calls]
    assert all("shortened" in line for line in lines)
    assert "…" not in head
    assert ("Size" in head) == ("31,200" in lines[0])
    assert ("Age" in head) == ("1,000" in lines[0])
    assert ("Tool" in head) == (width >= 24)


def test_the_example_is_compressed_with_default_settings(shell, root) -> None:
    """The README's first command; what the user asked for is still there, and so is everything else."""
    example = root / "examples/parser_fix.json"
    done = shell.run("compress", example, "-o", shell.folder / "short.json", "--json")
    back = shell.run("restore", shell.folder / "short.json", "-o", shell.folder / "back.json")

    assert json.loads(done.stdout)["outcome"] == "committed"
    assert "never change the public signature" in (shell.folder / "short.json").read_text()
    assert back.exit_code == 0
    assert (shell.folder / "back.json").read_bytes() == example.read_bytes()
