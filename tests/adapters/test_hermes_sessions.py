"""Sessions of Hermes over many turns, on a small host of our own: rotation, rescue, restraint."""

from __future__ import annotations

import asyncio
import gc
import json
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
from hosts.hermes_fake import FakeBase, FakeHost, NewHost, rough
from hosts.hermes_process import BIG, host_on, host_rows, process, rounds

from jev_engine.errors import StoreError
from jev_engine.judges import JudgeRequest, Verdict
from jev_engine.store.memory import MemoryStore
from jev_engine.store.sqlite import SqliteStore
from jev_engine_adapters.hermes import hooks
from jev_engine_adapters.hermes.compaction import Asked, compact
from jev_engine_adapters.hermes.engine import engine_class
from jev_engine_adapters.hermes.state import here

HOSTS = [FakeHost, NewHost]


def words_of(host: FakeHost) -> list[str]:
    return [m["content"] for m in host.messages if m["role"] in ("user", "assistant")]


@pytest.fixture(autouse=True)
def nothing_remembered() -> Any:
    here.session = ""
    yield
    here.session = ""


# --- long sessions ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", HOSTS)
def test_a_long_session_never_loses_a_word_or_a_turn(kind: type[FakeHost]) -> None:
    """Twelve turns of eight files: several passes, all words still there, the window never full."""
    host = host_on(process(), kind)
    said = []
    for turn in range(12):
        host.turn(f"Turn {turn}", rounds(8, 8 * turn))
        said += [f"Turn {turn}", *["I call read_file."] * 8, f"Answer to Turn {turn}"]

    assert words_of(host) == said
    assert not host.lost_turns
    assert 2 <= len(host.compactions) <= 20
    assert rough(host.messages) < 64_000


@pytest.mark.parametrize("kind", HOSTS)
def test_passes_are_few_where_there_is_nothing_to_gain(kind: type[FakeHost]) -> None:
    """A28: 95 % words. Asked before every call, the engine tries seldom and the host is not sent in circles."""
    host = host_on(process(handover="never"), kind)
    for turn in range(9):
        host.turn(f"{turn} " + "why is it so? " * 900, [("list", "a\nb")])

    assert host.asked <= 3
    assert not host.compactions
    assert not host.lost_turns


def test_asked_again_at_once_it_says_no() -> None:
    """An engine that always says yes is called nine times in seven requests."""
    host = host_on(process())
    host.turn("Read.", rounds(9))

    used = rough(host.messages)

    assert host.compactions
    assert not host.engine.should_compress(used)
    assert not host.engine.should_compress(used)


@pytest.mark.parametrize("in_place", [True, False])
def test_a_committed_pass_keeps_counters_and_archive_under_either_name(in_place: bool) -> None:  # noqa: FBT001
    store = MemoryStore()
    host = host_on(process(store=store), in_place=in_place)
    host.turn("Read.", rounds(9))
    host.turn("Read more.", rounds(9, 9))
    text = next(m["content"] for m in host.messages if "intact as" in str(m["content"]))
    reference = text.split("intact as ")[1][:19]

    assert (host.session == "s1") is in_place
    assert host.engine.session.passes == len(host.compactions) >= 2
    assert "return self.rows[0].name" in host.engine.handle_tool_call("jev_expand", {"id": reference})
    assert host.engine.session.core.trigger is host.engine.shared.session("s1").core.trigger


def test_a_new_session_sees_nothing_of_an_old_one() -> None:
    shared = process()
    first = host_on(shared)
    first.turn("Read.", rounds(9))
    reference = json.dumps(first.messages).split("intact as ")[1][:19]
    second = host_on(shared, session="s2")

    assert second.engine.session.passes == 0
    assert "No original" in second.engine.handle_tool_call("jev_expand", {"id": reference})


def test_after_new_the_same_instance_starts_afresh_and_the_old_session_is_kept() -> None:
    """`/new`: a reset without an id, then the host binds the new one; nothing is deleted."""
    host = host_on(process())
    host.turn("Read.", rounds(9))
    reference = json.dumps(host.messages).split("intact as ")[1][:19]
    host.engine.on_session_end("s1", host.messages)
    host.engine.on_session_reset()
    host.engine.bind_session_state(None, "s9")

    assert host.engine.session.name == "s9"
    assert "No original" in host.engine.handle_tool_call("jev_expand", {"id": reference})
    host.engine.bind_session_state(None, "s1")
    assert "return self.rows[0].name" in host.engine.handle_tool_call("jev_expand", {"id": reference})


class Database:
    """The host's, as far as it tells of branches."""

    def get_session(self, session: str) -> dict[str, Any] | None:
        return {"branch": {"parent_session_id": "s1"}}.get(session)


def test_a_branch_reads_what_its_markers_stand_for() -> None:
    host = host_on(process())
    host.turn("Read.", rounds(9))
    reference = json.dumps(host.messages).split("intact as ")[1][:19]
    host.engine.on_session_reset()
    host.engine.bind_session_state(Database(), "branch")

    assert "return self.rows[0].name" in host.engine.handle_tool_call("jev_expand", {"id": reference})


def test_a_process_that_comes_later_goes_on_where_the_first_stopped(tmp_path: Path) -> None:
    """Ledger and originals are on disk; markers in the history lead to them."""
    first = host_on(process(store=SqliteStore(tmp_path / "o.sqlite3")))
    first.turn("Read.", rounds(9))
    later = host_on(process(store=SqliteStore(tmp_path / "o.sqlite3")))
    later.messages = first.messages
    before = [m["content"] for m in later.messages if "intact as" in str(m["content"])]
    later.turn("Read more.", rounds(9, 9))
    reference = before[0].split("intact as ")[1][:19]

    assert [m["content"] for m in later.messages if "intact as" in str(m["content"])][: len(before)] == before
    assert "No original" not in later.engine.handle_tool_call("jev_expand", {"id": reference})


def test_one_instance_for_all_agents_is_told_apart_by_the_threads_hooks() -> None:
    """Hosts up to 0.17: a helper's start must not rename its parent's session."""
    shared = process()
    engine = engine_class(FakeBase)(shared)
    engine.update_model(model="m", context_length=64_000)
    engine.get_tool_schemas()
    engine.on_session_start("parent")
    listen = hooks._listener("pre_api_request", shared)
    listen(session_id="parent", max_tokens=8_000)
    engine.on_session_start("helper", platform="subagent")
    helper: list[str] = []

    def in_its_thread() -> None:
        listen(session_id="helper")
        helper.append(engine.session.name)

    thread = threading.Thread(target=in_its_thread)
    thread.start()
    thread.join()

    assert engine.session.name == "parent"
    assert helper == ["helper"]
    assert shared.session("parent").offers_tools
    assert not shared.session("helper").offers_tools
    assert shared.session("parent").budget.max_tokens == 8_000


# --- rescue ----------------------------------------------------------------------------------------------------------


class Down:
    """A judge outside that never answers."""

    name, is_calibrated = "down", False

    def __init__(self) -> None:
        self.asked, self.hangs = 0, True

    async def judge(self, request: JudgeRequest) -> Verdict:
        self.asked += 1
        if self.hangs:
            await asyncio.sleep(3_600)
        return Verdict()


@pytest.mark.parametrize("kind", HOSTS)
def test_a_refused_request_is_rescued_without_asking_anybody(kind: type[FakeHost]) -> None:
    """The host calls `compress` unasked; the turn lives only if at least 5 % go."""
    judge = Down()
    host = host_on(process(judge), kind)
    host.limit = 17_000
    host.turn("Read.", rounds(4))

    assert not host.lost_turns
    assert len(host.compactions) == 1
    assert judge.asked == 0
    before, after = host.compactions[0]
    assert after < 0.95 * before


def test_even_the_newest_results_go_where_the_turn_would_be_lost() -> None:
    host = host_on(process())
    host.limit = 6_000
    host.turn("Read.", [("read_file", BIG * 2)])

    assert not host.lost_turns
    assert "intact as" in json.dumps(host.messages)


def test_a_slow_judge_costs_no_more_than_the_deadline() -> None:
    """It is not waited for again: the local judge decides."""
    host = host_on(process(Down()))
    host.messages = [{"role": "user", "content": "Read."}, *host_rows(9)]
    host.engine.should_compress(40_000)
    started = time.monotonic()

    made = compact(host.engine.session, Asked(host.messages, 40_000), deadline_seconds=0.4)

    assert time.monotonic() - started < 2
    assert len(json.dumps(made.messages)) < len(json.dumps(host.messages)) / 2


def test_a_store_that_fails_leaves_everything_in_place() -> None:
    class Broken(MemoryStore):
        async def save(self, originals: Any) -> set[str]:
            raise StoreError("no room")

    host = host_on(process(store=Broken()))
    host.turn("Read.", rounds(9))

    assert not host.compactions
    assert not host.lost_turns
    assert "StoreError" in host.engine.get_status()["last_pass"]


def test_a_refused_request_with_a_store_that_fails_is_not_tried_again_and_again() -> None:
    """Nothing may leave, so the turn is lost; but at once."""

    class Broken(MemoryStore):
        saves = 0

        async def save(self, originals: Any) -> set[str]:
            self.saves += 1
            raise StoreError("no room")

    store = Broken()
    host = host_on(process(store=store))
    messages = [{"role": "user", "content": "Read."}, *host_rows(9)]

    assert host.engine.compress(messages, current_tokens=60_000) is messages
    assert store.saves == 1


def test_a_pass_that_another_one_holds_up_gives_the_list_back() -> None:
    session = host_on(process()).engine.session
    asked = Asked([{"role": "user", "content": "Read."}, *host_rows(9)], 60_000, is_forced=True)

    with session.lock:
        assert compact(session, asked, deadline_seconds=0.1).messages is asked.messages
    assert compact(session, asked).messages is not asked.messages


@pytest.mark.parametrize("how", ["member", "start"])
def test_a_session_that_takes_its_history_along_takes_originals_and_counters_too(how: str) -> None:
    host = host_on(process())
    host.turn("Read.", rounds(9))
    reference = json.dumps(host.messages).split("intact as ")[1][:19]
    if how == "member":
        host.engine.carry_over_new_session_context("s1", "s2")
    else:
        host.engine.on_session_start("s2", old_session_id="s1", carry_over_context=True)

    assert host.engine.session.name == "s2"
    assert host.engine.session.passes == 1
    assert "return self.rows[0].name" in host.engine.handle_tool_call("jev_expand", {"id": reference})


def test_a_provider_that_never_counts_is_served_by_estimates() -> None:
    host = host_on(process())
    host.counts = False
    for turn in range(6):
        host.turn(f"Turn {turn}", rounds(8, 8 * turn))

    assert len(host.compactions) >= 2
    assert rough(host.messages) < 64_000


def test_two_threads_at_once_make_one_pass_after_the_other() -> None:
    host = host_on(process())
    messages = [{"role": "user", "content": "Read."}, *host_rows(9)]
    made: list[Any] = []
    threads = [
        threading.Thread(target=lambda: made.append(host.engine.compress(messages, current_tokens=60_000, force=True)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    shortened = [json.dumps(rows) for rows in made if rows is not messages]
    assert len(made) == 4
    assert len(set(shortened)) == 1


def test_no_history_is_kept_alive_after_a_pass(tmp_path: Path) -> None:
    """A gateway serves many chats: what a pass was made from goes with the host's own list."""

    class Row(dict[str, Any]):
        """A message that can be watched."""

    host = host_on(process(store=SqliteStore(tmp_path / "o.sqlite3")))
    messages = [Row(row) for row in [{"role": "user", "content": "Read."}, *host_rows(9)]]
    watched = [weakref.ref(row) for row in messages]
    made = host.engine.compress(messages, current_tokens=60_000, force=True)
    changed = made is not messages
    host.engine.on_session_start("s1", boundary_reason="compression", old_session_id="s1")
    del messages, made
    gc.collect()

    assert changed
    assert [row() for row in watched if row() is not None] == []


def test_a_host_that_loses_patience_goes_on_and_so_does_the_session() -> None:
    """0.20 and later wait so long and no longer; what comes late is nobody's result."""
    judge = Down()
    host = host_on(process(judge), NewHost)
    host.patience_seconds = 0.2
    host.turn("Read.", rounds(9))
    lost, discarded = host.lost_turns, host.engine.session.discarded
    judge.hangs, host.patience_seconds = False, 120.0
    host.compact(62_000, force=False)

    assert not lost
    assert discarded <= 1
    assert "intact as" in json.dumps(host.messages)


async def test_called_inside_a_running_loop_it_does_not_wait_on_that_loop() -> None:
    """A31."""
    host = host_on(process())
    messages = [{"role": "user", "content": "Read."}, *host_rows(9)]

    made = host.engine.compress(messages, current_tokens=60_000, force=True)

    assert len(json.dumps(made)) < len(json.dumps(messages)) / 2
