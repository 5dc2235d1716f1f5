"""What a store keeps and how long, what a full, locked or old file does, and what expired looks like."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing, suppress
from pathlib import Path

import anyio
import pytest
from passing import compress, long_text
from stored_originals import naming, original, texts_in

from jev_engine import ContextEngine, make_config
from jev_engine.errors import OriginalExpired, OriginalNotFound, StoreError
from jev_engine.store import PassRecord
from jev_engine.store.expand import expand
from jev_engine.store.sqlite import Limits, SqliteStore
from jev_engine.testing import ScriptedJudge, call, history, result, user

DAY = 86_400
ALL_GOES = {"pin_newest_calls": 0, "pin_newest_tokens": 0, "min_freed_share": 0.0}
NOW = 1_800_000_000


class Clock:
    """A clock that a test sets."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "jev-engine" / "originals.sqlite3"


def noise(chars: int, seed: int = 0) -> str:
    """Text that cannot be compressed much."""
    return random.Random(seed).randbytes(chars // 2).hex()  # noqa: S311  # no secrets


# --- age --------------------------------------------------------------------------------------------------------------


async def test_a_session_unused_for_longer_than_the_limit_expires_and_says_so(path: Path, clock: Clock) -> None:
    """A32: clock + 31 days, two sessions; expired is neither unknown nor unreadable, and foreign stays unknown."""
    store = SqliteStore(path, clock=clock)
    old, new = original(store, "old", "k"), original(store, "new", "k")
    await store.save([old])
    await store.save_pass(PassRecord("old", "a", "k", 1, 1, [], {0: "x" * 900}))
    await store.save_ledger("old", naming(old))
    clock.now += 31 * DAY
    await store.save([new])

    with pytest.raises(OriginalExpired):
        await store.read(old.reference, session="old")
    with pytest.raises(OriginalExpired):
        await store.read(old.reference)
    with pytest.raises(OriginalNotFound):
        await store.read(old.reference, session="new")
    assert await store.known([old.reference, new.reference]) == {new.reference: ("k", len(new.text))}
    assert await store.find_passes("a") == []
    assert texts_in(path) == 1
    assert (await store.rank("old", "word", 3)).matches == []


async def test_what_the_ledger_of_a_session_in_use_names_is_spared(path: Path, clock: Clock) -> None:
    """A32: a resumed session finds its entries, however old they are; what no marker points to goes."""
    store = SqliteStore(path, clock=clock)
    named, unnamed = original(store, "s", "named"), original(store, "s", "unnamed")
    await store.save([named, unnamed])
    await store.save_ledger("s", naming(named))
    (message,) = await store.save_messages("s", [{"role": "user", "content": "what the host has summarised"}])
    for _ in range(10):
        clock.now += 20 * DAY
        await store.save([original(store, "s", f"at {clock.now}")])

    assert await store.read(named.reference, session="s") == named
    assert "summarised" in (await store.read(message, session="s")).text
    with pytest.raises(OriginalExpired):
        await store.read(unnamed.reference, session="s")


async def test_an_expired_original_that_is_saved_again_is_there_again(path: Path, clock: Clock) -> None:
    """Its tombstone goes."""
    store = SqliteStore(path, clock=clock)
    saved = original(store, "s", "k")
    await store.save([saved])
    clock.now += 40 * DAY
    await store.save([original(store, "other", "k")])
    await store.save([saved])

    assert await store.read(saved.reference, session="s") == saved
    assert (await store.stats()).expired == 0


async def test_a_text_shared_with_a_session_in_use_stays(path: Path, clock: Clock) -> None:
    """Originals and pass records of others hold it."""
    store = SqliteStore(path, clock=clock)
    text = noise(4_000)
    await store.save([original(store, "old", "k", text)])
    clock.now += 20 * DAY
    await store.save_pass(PassRecord("new", "a", "k", 1, 1, [], {0: {"content": text}}))
    clock.now += 20 * DAY
    await store.save([original(store, "new", "l")])
    (head,) = await store.find_passes("a")

    assert (await store.load_pass(head.number)).originals == {0: {"content": text}}
    with pytest.raises(OriginalExpired):
        await store.read(store.reference("old", "k"))


async def test_where_no_ledger_was_saved_everything_of_a_session_in_use_is_spared(path: Path, clock: Clock) -> None:
    """An engine without a session keeps no ledger: nobody can tell what its history needs, so nothing goes."""
    store = SqliteStore(path, clock=clock, limits=Limits(max_originals=12))
    held = [original(store, "s", f"k{number}") for number in range(10)]
    await store.save(held)
    for days in (20, 20, 0.1):
        clock.now += int(days * DAY)
        await store.save_pass(PassRecord("s", "a", "k", 1, 1, [], {}))
        await store.prune()
    with pytest.raises(StoreError, match="full of originals in use"):
        await store.save([original(store, "other", f"k{number}") for number in range(9)])

    assert len(await store.known([each.reference for each in held])) == 10


async def test_what_a_bare_engine_left_out_is_expanded_as_long_as_it_is_restored(path: Path, clock: Clock) -> None:
    """An agent that works on for months, its passes made without a session object."""
    engine = ContextEngine(
        judge=ScriptedJudge(lambda _: (1.0, 0.0)), store=SqliteStore(path, clock=clock), config=make_config(**ALL_GOES)
    )
    whole = history(user("Go."))
    shorter = list(whole)
    references = []
    for month in range(4):
        added = history(call("read"), result(long_text(f"month {month}")), user("On."))
        whole += added
        done = await engine.compress([*shorter, *added], force=True)
        shorter = done.messages
        references += [entry.reference for entry in done.ledger]
        clock.now += 25 * DAY
    pages = {(await expand(engine.store, done.session, reference)).status for reference in references}

    assert (await engine.restore(shorter)).messages == whole
    assert pages == {"page"}


async def test_the_session_another_came_from_is_in_use_with_it(path: Path, clock: Clock) -> None:
    """A fork's history holds markers of its origin, however long that was not used itself."""
    store = SqliteStore(path, clock=clock, limits=Limits(max_originals=12))
    named = original(store, "origin", "k")
    await store.save([named])
    await store.save_ledger("origin", naming(named))
    await store.link_session("fork", "origin")
    await store.link_session("fork of the fork", "fork")
    for day in range(4):
        clock.now += 20 * DAY
        await store.save([original(store, "fork of the fork", f"k{day}")])
    with suppress(StoreError):
        await store.save([original(store, "other", f"k{number}") for number in range(12)])

    assert await store.read(named.reference, session="fork of the fork") == named


async def test_what_is_read_is_in_use(path: Path, clock: Clock) -> None:
    """An original, by its own session or by one that came from it, and the record of a pass."""
    store = SqliteStore(path, clock=clock)
    sessions = ("expanded", "restored", "left alone")
    saved = [original(store, name, "k") for name in sessions]
    await store.save(saved)
    await store.save_pass(PassRecord("restored", "a", "k", 1, 1, [], {}))
    (head,) = await store.find_passes("a")
    for _ in range(4):
        clock.now += 20 * DAY
        await store.read(saved[0].reference, session="expanded")
        await store.load_pass(head.number)
        await store.prune()
    kept = await store.known([each.reference for each in saved])

    assert set(kept) == {saved[0].reference, saved[1].reference}


async def test_reading_waits_for_nobody(path: Path, clock: Clock) -> None:
    """That it is a use cannot be noted while another process writes; the text comes all the same, at once."""
    store = SqliteStore(path, clock=clock, busy_seconds=20)
    saved = original(store, "s", "k")
    await store.save([saved])
    clock.now += 2 * DAY
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    began = anyio.current_time()
    found = await store.read(saved.reference)
    waited = anyio.current_time() - began
    holder.close()

    assert found == saved
    assert waited < 10


async def test_a_kept_session_does_not_expire_by_age(path: Path, clock: Clock) -> None:
    """It goes by hand: in a prune that says so, or in a purge; the next session of its name is none."""
    store = SqliteStore(path, clock=clock)
    kept, other = original(store, "kept", "k"), original(store, "other", "k")
    await store.save([kept, other])
    await store.keep("kept")
    with pytest.raises(OriginalNotFound, match="no session"):
        await store.keep("unknown")
    clock.now += 400 * DAY
    by_itself = await store.prune()
    spared = await store.stats()
    by_hand = await store.prune(takes_kept=True)
    await store.save([kept])

    assert (by_itself.sessions, by_hand.sessions) == (1, 1)
    assert [(each.name, each.is_kept) for each in spared.sessions] == [("kept", True)]
    assert [(each.name, each.is_kept) for each in (await store.stats()).sessions] == [("kept", False)]


async def test_kept_sessions_make_room_last_of_all(path: Path, clock: Clock) -> None:
    """Although they were unused for longer; the store would else take nothing any more."""
    store = SqliteStore(path, clock=clock, limits=Limits(max_originals=20))
    for name in ("kept", "other", "third"):
        await store.save([original(store, name, f"k{number}") for number in range(8)])
        if name == "kept":
            await store.keep(name)
        clock.now += 8 * DAY
    first = {each.name for each in (await store.stats()).sessions}
    await store.save([original(store, "fourth", f"k{number}") for number in range(12)])

    assert first == {"kept", "third"}
    assert {each.name for each in (await store.stats()).sessions} == {"fourth"}


# --- number and size --------------------------------------------------------------------------------------------------


async def test_the_longest_unused_sessions_make_room(path: Path, clock: Clock) -> None:
    """A32: 500 entries; sessions go as a whole, those in use stay."""
    store = SqliteStore(path, clock=clock, limits=Limits(max_originals=500))
    sessions = [f"s{number}" for number in range(8)]
    for name in sessions:
        await store.save([original(store, name, f"k{number}") for number in range(100)])
        clock.now += 3 * DAY
    kept = [each.name for each in (await store.stats()).sessions]

    assert kept == ["s7", "s6", "s5", "s4"]
    assert (await store.stats()).originals == 400


async def test_a_file_full_of_originals_in_use_takes_no_more_and_says_which_limit(path: Path, clock: Clock) -> None:
    """Nothing that is needed goes for it; the unit stays in the history."""
    store = SqliteStore(path, clock=clock, limits=Limits(max_originals=10))
    held = [original(store, "s", f"k{number}") for number in range(10)]
    await store.save(held)
    await store.save_ledger("s", naming(*held))
    clock.now += 2 * DAY
    with pytest.raises(StoreError, match=r"max_originals 10.*purge"):
        await store.save([original(store, "s", "one more")])

    assert len(await store.known([each.reference for each in held])) == 10


async def test_what_no_ledger_names_makes_room_before_that(path: Path, clock: Clock) -> None:
    """Oldest first, and nothing that was saved within the hour."""
    store = SqliteStore(path, clock=clock, limits=Limits(max_originals=10))
    held = [original(store, "s", f"k{number}") for number in range(10)]
    await store.save(held)
    await store.save_ledger("s", naming(*held[:5]))
    clock.now += 2 * DAY
    await store.save([original(store, "s", "one more")])

    assert set(await store.known([each.reference for each in held[:5]])) == {each.reference for each in held[:5]}


def test_a_result_of_200_megabytes_stays_in_the_history(path: Path) -> None:
    """A32: a single size has a limit too, and the others of its pass are saved."""
    store = SqliteStore(path)
    large = "x" * 200_000_000
    messages = history(user("Go."), call("a"), result(large), call("b"), result(long_text("b")), user("On."))
    done = compress(messages, lambda _: (1.0, 0.0), engine={"store": store}, pin_newest_calls=0, pin_newest_tokens=0)
    with pytest.raises(StoreError, match="larger than max_text_bytes"):
        anyio.run(store.save, [original(store, "s", "k", large)])

    assert any(message.get("content") is large for message in done.messages)
    assert anyio.run(store.stats).originals == 1


async def test_the_size_of_the_file_has_a_limit_that_makes_room(path: Path, clock: Clock) -> None:
    """Bytes of texts that cannot be compressed; old sessions go."""
    store = SqliteStore(path, clock=clock, limits=Limits(max_total_bytes=1_000_000))
    for number in range(20):
        await store.save([original(store, f"s{number}", "k", noise(200_000, number))])
        clock.now += 8 * DAY / 4
    found = await store.stats()

    assert 1 <= found.originals < 12
    assert found.used_bytes <= 1_000_000


async def test_a_file_that_may_not_grow_is_an_error_of_ours_and_loses_nothing(path: Path, clock: Clock) -> None:
    """SQLite's own "database or disk is full": with what to do, and everything before it still there."""
    store = SqliteStore(path, clock=clock, limits=Limits(max_total_bytes=400_000))
    saved = original(store, "s", "k")
    await store.save([saved])
    with pytest.raises(StoreError, match="full; the disk is full, or the limit max_total_bytes is reached: free space"):
        await store.save_pass(PassRecord("s", "a", "k", 1, 1, [], {0: noise(2_000_000)}))
    with pytest.raises(StoreError, match="max_total_bytes"):
        await store.save([original(store, "s", "l", noise(2_000_000))])

    assert await store.read(saved.reference) == saved
    assert await store.find_passes("a") == []
    with closing(sqlite3.connect(path)) as db, db:
        assert db.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    db.close()


def test_a_full_store_keeps_every_unit(path: Path) -> None:
    """The pass gives the input object back."""
    messages = history(user("Go."), call("a"), result(noise(900_000)), user("On."))
    store = SqliteStore(path, limits=Limits(max_total_bytes=400_000))
    done = compress(messages, lambda _: (1.0, 0.0), engine={"store": store}, pin_newest_calls=0, pin_newest_tokens=0)

    assert done.messages is messages
    assert "max_total_bytes" in done.reason


# --- pruning and purging by hand --------------------------------------------------------------------------------------


async def test_a_dry_run_tells_what_would_go_and_takes_nothing(path: Path, clock: Clock) -> None:
    """The same numbers as the run that follows."""
    store = SqliteStore(path, clock=clock)
    await store.save([original(store, "s", f"k{number}") for number in range(5)])
    clock.now += 31 * DAY
    told = await store.prune(is_dry_run=True)
    before = await store.stats()
    done = await store.prune()

    assert before.originals == 5
    assert told == done
    assert (done.originals, done.sessions) == (5, 1)
    assert (await store.stats()).originals == 0


async def test_a_purged_session_is_unknown_and_its_texts_are_out_of_the_file(path: Path) -> None:
    """Short texts are stored as they are, and terms stand in the index: neither is found in any byte of the folder."""
    store = SqliteStore(path)
    secret, kept = original(store, "mine", "k", "hunter2-passphrase"), original(store, "other", "k", "something else")
    await store.save([secret, kept])
    await store.save_ledger("mine", naming(secret))
    await store.save_pass(PassRecord("mine", "a", "k", 1, 1, [], {0: "hunter2-passphrase"}))
    await store.save_messages("mine", [{"content": "hunter2-passphrase"}])
    await store.link_session("fork", "mine")
    done = await store.purge("mine")

    assert done.originals == 2
    with pytest.raises(OriginalNotFound):
        await store.read(secret.reference, session="mine")
    with pytest.raises(OriginalNotFound):
        await store.read(secret.reference, session="fork")
    assert await store.load_ledger("mine") is None
    assert await store.read(kept.reference) == kept
    for file in path.parent.iterdir():
        assert b"hunter2" not in file.read_bytes()
    with pytest.raises(OriginalNotFound, match="no session"):
        await store.purge("mine")


async def test_pruning_gives_room_back_to_the_disk(path: Path, clock: Clock) -> None:
    """The file is smaller afterwards, and the index still finds what stayed."""
    store = SqliteStore(path, clock=clock)
    await store.save([original(store, "old", f"k{n}", noise(50_000, n)) for n in range(20)])
    clock.now += 31 * DAY
    kept = original(store, "new", "k", "parse_row stays")
    before = (await store.stats()).file_bytes
    await SqliteStore(path, clock=lambda: NOW).save([kept])
    await store.save_ledger("new", naming(kept))
    await store.prune()

    assert (await store.stats()).file_bytes < before / 2
    assert [match.reference for match in (await store.rank("new", "row", 3)).matches] == [kept.reference]
