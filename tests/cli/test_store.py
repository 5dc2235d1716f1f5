"""`expand`, `search` and `store` from the shell."""

from __future__ import annotations

import json
import stat
import time
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner
from commands import start

from jev_engine.cli import main
from jev_engine.store import Original
from jev_engine.store.sqlite import SqliteStore

TEXT = "def parse_row(header): pass\x1b[31m\r\n" * 50


@pytest.fixture
def filled(shell: Any) -> dict[str, str]:
    """A store with two sessions; references by name."""
    store = SqliteStore(shell.store)

    def made(session: str, key: str, text: str) -> Original:
        return Original(store.reference(session, key), session, key, "read_file", text)

    originals = [made("one", "a", TEXT), made("one", "b", "connection refused"), made("two", "a", "half \ud83d sign")]
    anyio.run(store.save, originals)
    return {f"{each.session}/{each.key}": each.reference for each in originals}


@pytest.mark.parametrize(
    "words", [["expand"], ["search"], ["store"], *[["store", n] for n in ("stats", "prune", "purge", "export")]]
)
def test_help_teaches_by_two_examples(words: list[str]) -> None:
    """Each command shows how it is called."""
    shown = CliRunner().invoke(main, [*words, "--help"])

    assert shown.exit_code == 0
    assert shown.stdout.count("    jev-engine " + words[0]) >= 2


def test_expand_prints_the_original_byte_for_byte(shell: Any, filled: dict[str, str]) -> None:
    """To a file or a pipe; half a character as its three bytes."""
    done = shell.run("expand", filled["one/a"])
    half = shell.run("expand", filled["two/a"])

    assert done.exit_code == 0
    assert done.stdout_bytes == TEXT.encode()
    assert half.stdout_bytes == "half \ud83d sign".encode("utf-8", "surrogatepass")


def test_expand_prints_a_page_and_says_how_to_go_on(shell: Any, filled: dict[str, str]) -> None:
    """As JSON for scripts, too."""
    done = shell.run("expand", filled["one/a"], "--offset", "5", "--limit", "10")
    told = json.loads(shell.run("expand", filled["one/a"], "--offset", "5", "--limit", "10", "--json").stdout)

    assert done.stdout == TEXT[5:15]
    assert "--offset 15" in done.stderr
    assert told == {
        "id": filled["one/a"], "session": "one", "tool": "read_file", "offset": 5, "total_chars": len(TEXT),
        "next_offset": 15, "text": TEXT[5:15],
    }  # fmt: skip


def test_expand_refuses_what_is_not_there_and_what_belongs_to_others(shell: Any, filled: dict[str, str]) -> None:
    """Bad usage, with what to do; nothing on standard output."""
    for words in (["jx-0000000000000000"], [filled["one/a"], "--session", "two"], ["\x1b[2J"]):
        done = shell.run("expand", *words)

        assert done.exit_code == 2
        assert done.stdout == ""
        assert "Copy the id from its marker" in done.stderr
        assert "\x1b" not in done.stderr


def test_expand_without_a_store_creates_none(shell: Any) -> None:
    """A question leaves no trace."""
    assert shell.run("expand", "jx-0000000000000000").exit_code == 2
    assert not shell.store.parent.exists()


def test_search_shows_the_best_first_without_control_characters(shell: Any, filled: dict[str, str]) -> None:
    """Of the session that was asked for."""
    done = shell.run("search", "parse the row", "--session", "one")
    told = json.loads(shell.run("search", "connection", "--session", "one", "--json").stdout)

    assert done.stdout.startswith(filled["one/a"])
    assert "\x1b" not in done.stdout
    assert [hit["id"] for hit in told["hits"]] == [filled["one/b"]]
    assert told["hits"][0]["text"] == "connection refused"


def test_search_without_a_session_takes_the_one_used_last(shell: Any, filled: dict[str, str]) -> None:
    """And an unknown one is bad usage; nothing found is not."""
    last = shell.run("search", "half sign")
    nothing = shell.run("search", "nothing_like_it")
    unknown = shell.run("search", "x", "--session", "three")

    assert last.stdout.startswith(filled["two/a"])
    assert (nothing.exit_code, unknown.exit_code) == (0, 2)
    assert "Nothing that was left out of two fits." in nothing.stdout
    assert "store stats" in unknown.stderr


@pytest.mark.usefixtures("filled")
def test_stats_count_what_is_kept(shell: Any) -> None:
    """Of all sessions or of one, for people and for scripts; of a store that is not there, nothing."""
    shown = shell.run("store", "stats").stdout
    told = json.loads(shell.run("store", "stats", "--session", "one", "--json").stdout)

    assert "3 with" in shown
    assert (told["originals"], told["chars"]) == (2, len(TEXT) + len("connection refused"))
    assert [each["name"] for each in told["sessions"]] == ["one"]
    assert shell.run("store", "stats", "--session", "three").exit_code == 2


@pytest.mark.usefixtures("filled")
def test_prune_tells_what_would_go_and_takes_it(shell: Any) -> None:
    """By an age given for this run; the ids then read as expired."""
    old = SqliteStore(shell.store, clock=lambda: time.time() - 9 * 86_400)
    anyio.run(old.save, [Original(old.reference("old", "k"), "old", "k", "read", "text")])
    told = json.loads(shell.run("store", "prune", "--dry-run", "--max-age-days", "7", "--json").stdout)
    before = json.loads(shell.run("store", "stats", "--json").stdout)["originals"]
    done = shell.run("store", "prune", "--max-age-days", "7")
    gone = shell.run("expand", old.reference("old", "k"))

    assert (told["originals"], before) == (1, 4)
    assert done.stdout.startswith("1 original, 0 passes, 1 session gone")
    assert gone.exit_code == 2
    assert "has expired" in gone.stderr


@pytest.mark.parametrize("days", ["nan", "inf", "-1"])
@pytest.mark.usefixtures("filled")
def test_prune_takes_no_age_that_is_none(shell: Any, days: str) -> None:
    """NaN compares with nothing, so it passes any bound."""
    refused = shell.run("store", "prune", "--max-age-days", days)

    assert refused.exit_code == 2
    assert "--max-age-days" in refused.stderr


def test_what_compress_wrote_lasts_until_it_is_taken_out_by_hand(
    shell: Any, messages: Any, shorten_all: tuple[str, ...]
) -> None:
    """Nobody knows how long a file will be wanted; where it was too long, restore says that it expired."""
    source, out = shell.file("s.json", messages), shell.folder / "shorter.json"
    told = shell.run("compress", source, "-o", out, *shorten_all).stdout
    anyio.run(SqliteStore(shell.store, clock=lambda: time.time() + 400 * 86_400).prune)
    listed = shell.run("store", "stats").stdout
    back = shell.run("restore", out)
    by_hand = shell.run("store", "prune", "--max-age-days", "0")
    gone = shell.run("restore", out)

    assert "until you take them out" in " ".join(told.split())
    assert ", kept" in listed
    assert json.loads(back.stdout) == messages
    assert "0 originals" not in by_hand.stdout
    assert gone.exit_code == 2
    assert "expired" in gone.stderr


def test_a_full_disk_does_not_stand_between_a_user_and_their_originals(shell: Any, filled: dict[str, str]) -> None:
    """Reading needs no room; where room is needed, the first thing to do is named."""
    store = ("--store", shell.store)
    read, pruned = start("expand", filled["one/a"], *store, most_bytes=0), start("store", "prune", *store, most_bytes=0)
    text, said = read.communicate()[0], pruned.communicate()[1]

    assert text == TEXT.encode()
    assert pruned.returncode == 1
    assert b"free space on it first" in said


def test_purge_asks_first(shell: Any, filled: dict[str, str]) -> None:
    """No means no; --yes is for scripts."""
    asked = shell.run("store", "purge", "--session", "one", stdin="n\n")
    kept = shell.run("expand", filled["one/b"]).stdout
    done = shell.run("store", "purge", "--session", "one", "--yes", "--json")

    assert asked.exit_code == 1
    assert "2 originals" in asked.stderr
    assert f"from {time.strftime('%Y-%m-%d', time.gmtime())}" in asked.stderr
    assert kept == "connection refused"
    assert json.loads(done.stdout)["originals"] == 2
    assert shell.run("expand", filled["one/b"]).exit_code == 2
    assert shell.run("expand", filled["two/a"]).exit_code == 0
    assert shell.run("store", "purge", "--session", "one", "--yes").exit_code == 2


def test_purge_says_from_when_the_originals_are(shell: Any) -> None:
    """Sessions of several days may share a name, because they began alike."""
    for days in (9, 2):
        store = SqliteStore(shell.store, clock=lambda days=days: 1_800_000_000 - days * 86_400)
        anyio.run(store.save, [Original(store.reference("s", f"k{days}"), "s", f"k{days}", "read", "text")])
    asked = shell.run("store", "purge", "--session", "s", stdin="n\n")

    assert "2 originals and 0 passes of 's', from 2027-01-06 to 2027-01-13?" in asked.stderr


def test_export_writes_json_lines_to_a_new_file_for_this_user(shell: Any, filled: dict[str, str]) -> None:
    """Never over a file that is there; nothing is left behind where it fails."""
    out: Path = shell.folder / "out.jsonl"
    done = shell.run("store", "export", out)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    again = shell.run("store", "export", out)
    unknown = shell.run("store", "export", shell.folder / "other.jsonl", "--session", "three")

    assert done.exit_code == 0
    assert stat.S_IMODE(out.stat().st_mode) == 0o600
    assert {row["id"]: row["text"] for row in rows}[filled["one/a"]] == TEXT
    assert {row["session"] for row in rows} == {"one", "two"}
    assert (again.exit_code, unknown.exit_code) == (2, 2)
    assert "other.jsonl" not in shell.names()
