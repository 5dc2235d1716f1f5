"""`audit list | show | explain | stats | export`: everything a pass had, as words and as JSON."""

from __future__ import annotations

import csv
import io
import json
import re
import shlex
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import pytest
from click.testing import CliRunner

from jev_engine import ContextEngine, make_config
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.cli import main
from jev_engine.judges.asked import AskedJudge
from jev_engine.judges.endpoints import endpoint_for
from jev_engine.judges.jev import JevAsker
from jev_engine.testing.server import FaultServer, Reply


@pytest.fixture
def trail(shell: Any, messages: Any, shorten_all: tuple[str, ...]) -> Path:
    """Of one pass over a session of eight reads, the newest three of which are pinned."""
    path: Path = shell.folder / "trail.jsonl"
    session = shell.file("session.json", messages)
    done = shell.run("compress", session, "-o", shell.folder / "out.json", "--force", "--audit", path, *shorten_all)
    assert done.exit_code == 0, done.output
    return path


def ask(path: Path, store: Path, *words: str, code: int = 0) -> str:
    line = ["audit", "--file", str(path), "--store", str(store), *words]
    done = CliRunner().invoke(main, line, catch_exceptions=False)
    assert done.exit_code == code, done.output
    return done.stdout if code == 0 else done.output


def test_show_as_json_has_settings_judge_state_and_engine(shell: Any, messages: Any, tmp_path: Path) -> None:
    """Nothing the words say is missing, and the failures of the judge are among them."""
    path, session = tmp_path / "t.jsonl", shell.file("session.json", messages)
    with FaultServer({1: Reply(401)}) as server:
        shell.run("compress", session, "-o", tmp_path / "o.json", "--force", "--judge", server.url, "--audit", path)
    shown = json.loads(ask(path, shell.store, "show", "--json"))
    words = ask(path, shell.store, "show")
    host = server.url.split("/")[2]

    assert shown["judge"]["endpoint"] == host
    assert shown["judge"]["privacy"] == "excerpts"
    assert shown["answered"]["requests"] == len(server.requests) == 1
    assert shown["state"]["windows"] == 1
    assert shown["failures"] == ["JudgeUnavailable"]
    assert shown["engine_version"]
    assert shown["host"] == "openai"
    assert shown["started"]["window_tokens"] == 200_000
    assert {"settings", "target_free_tokens", "tokens"} <= shown["started"].keys()
    assert len(shown["pinned"]) + len(shown["units"]) == 8
    for word in (
        host,
        "1 requests",
        "JudgeUnavailable",
        "excerpts",
        "price not known",
        "window of 200,000",
        "host openai",
    ):
        assert word in words


def test_stats_tell_what_was_sent_where_to_and_that_its_price_is_not_known(shell: Any, messages: Any) -> None:
    """And a trail without requests says so."""
    path, session = shell.folder / "t.jsonl", shell.file("session.json", messages)
    shell.run("compress", session, "--audit", path)
    assert "no requests" in ask(path, shell.store, "stats")
    with FaultServer() as server:
        shell.run("compress", session, "--judge", server.url, "--audit", path)
    told = ask(path, shell.store, "stats")

    size = sum(len(each.body) for each in server.requests)
    assert f"{len(server.requests)} requests, {size:,} bytes to {server.url.split('/')[2]}" in told
    assert "price not known" in told
    assert "0.0000 $" not in told


def test_known_and_unknown_prices_and_sums_are_told_apart(shell: Any, messages: Any) -> None:
    """Three passes: one of a judge on this machine, one asked at a price, one asked at no price anybody knows."""
    path = shell.folder / "t.jsonl"
    sink = JsonlSink(path, key=b"k" * 32)
    config = make_config(policy="threshold", keep_result=1.0, keep_call=0.0)
    with FaultServer() as server:
        plain = endpoint_for(server.url)
        for judge in (None, *[AskedJudge(JevAsker(plain._replace(price=price), key="k")) for price in (100.0, None)]):
            engine = ContextEngine(config=config, judge=judge, sinks=[sink])
            anyio.run(lambda e=engine: e.compress(messages, host="openai", force=True))
    sink.close()
    told = ask(path, shell.store, "stats")

    assert re.search(r"0\.\d*[1-9]\d* \$ and 1 requests at an unknown price", told)
    assert re.search(r"(\d\.\d\d) expected \((?!\1)\d\.\d\d of them uncalibrated\)", told)


def test_uncalibrated_sums_are_called_so(shell: Any, messages: Any, shorten_all: tuple[str, ...]) -> None:
    """As `compress` calls them."""
    path, session = shell.folder / "t.jsonl", shell.file("session.json", messages)
    with FaultServer() as server:
        done = shell.run("compress", session, "-o", shell.folder / "o.json", "--force", "--judge", server.url,
                         "--audit", path, *shorten_all)  # fmt: skip
    assert "uncalibrated" in done.output

    assert "expected (uncalibrated)" in ask(path, shell.store, "stats")
    assert "(uncalibrated)" in ask(path, shell.store, "show")
    assert json.loads(ask(path, shell.store, "list", "--json"))["passes"][0]["is_calibrated"] is False


def test_pinned_units_are_shown_and_exported(shell: Any, trail: Path) -> None:
    """With tool, size and reason, in the order of the history."""
    shown = ask(trail, shell.store, "show")
    rows = list(csv.DictReader(io.StringIO(ask(trail, shell.store, "export", "--as", "csv"))))

    assert shown.count("pinned              newest") == 3
    assert [row["number"] for row in rows] == [str(n) for n in range(1, 9)]
    pinned = [row for row in rows if row["action"] == "pinned"]
    assert [(row["tool"], row["reason"]) for row in pinned] == [("read_file", "newest")] * 3
    assert all(int(row["chars"]) > 2_000 for row in pinned)


def test_explain_as_json_is_data_with_the_words_beside(shell: Any, trail: Path) -> None:
    """For a unit that went, and for one that was pinned."""
    gone = json.loads(ask(trail, shell.store, "explain", "t1", "--json"))
    kept = json.loads(ask(trail, shell.store, "explain", "t8", "--json"))

    assert (gone["unit"]["action"], gone["rule"]["policy"], gone["original"]) == ("truncate", "threshold", "intact")
    assert gone["started"]["settings"]["policy"] == "threshold"
    assert gone["words"]["the original"].startswith(f"intact as {gone['unit']['reference']}")
    assert (kept["unit"], kept["pinned"]["reason"], kept["pinned"]["tool"]) == (None, "newest", "read_file")


def test_the_original_is_called_intact_only_where_it_is(shell: Any, trail: Path, tmp_path: Path) -> None:
    """The hint names the store that was given, and looking makes none."""
    told = ask(trail, shell.store, "explain", "t1")
    command = told.partition("jev-engine expand ")[2].splitlines()[0]
    assert "intact as jx-" in told
    assert CliRunner().invoke(main, ["expand", *shlex.split(command)]).exit_code == 0

    other = tmp_path / "other store.sqlite3"
    elsewhere = ask(trail, other, "explain", "t1")
    assert "NOT in the store" in elsewhere
    assert "intact" not in elsewhere
    assert not list(tmp_path.glob("other store*"))


def change(store: Path, *statements: str) -> None:
    with closing(sqlite3.connect(store)) as db, db:
        for statement in statements:
            db.execute(statement)
    db.close()


def test_an_original_that_is_gone_or_damaged_is_called_so(shell: Any, trail: Path) -> None:
    """By what the store says when it is read; looking is no use that would keep an original from its expiry."""
    change(shell.store, "UPDATE originals SET saved_at = 1", "UPDATE sessions SET used_at = 1")
    intact = json.loads(ask(trail, shell.store, "explain", "t1", "--json"))
    change(shell.store, "UPDATE blobs SET body = x'00'")
    damaged = json.loads(ask(trail, shell.store, "explain", "t1", "--json"))
    shell.run("store", "prune", "--max-age-days", "1")
    expired = json.loads(ask(trail, shell.store, "explain", "t1", "--json"))

    assert [told["original"] for told in (intact, damaged, expired)] == ["intact", "damaged", "expired"]
    assert "NOT readable" in damaged["words"]["the original"]
    assert "no longer there" in expired["words"]["the original"]


def test_list_as_json_tells_of_lines_it_could_not_read(shell: Any, trail: Path) -> None:
    """As the words do."""
    with trail.open("a") as file:
        file.write("no line of a trail\n")
    told = json.loads(ask(trail, shell.store, "list", "--json"))

    assert (len(told["passes"]), told["unreadable_lines"]) == (1, 1)


def test_a_label_of_two_sessions_is_refused_with_both_named(shell: Any, messages: Any, trail: Path) -> None:
    """And is explained once one of them is named."""
    other = shell.file("other.json", [{**messages[0], "content": "Another."}, *messages[1:]])
    shell.run("compress", other, "--audit", trail)
    told = ask(trail, shell.store, "explain", "t1", code=2)
    sessions = {row["session"] for row in json.loads(ask(trail, shell.store, "list", "--json"))["passes"]}

    assert len(sessions) == 2
    for session in sessions:
        assert session[:12] in told
        assert session[:12] in ask(trail, shell.store, "--session", session, "explain", "t1")
