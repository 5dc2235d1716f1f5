"""A pass once more from its input and recorded answers: the same bytes, and what another setting would keep."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from zlib import crc32

import anyio
import pytest
from audit_trails import KEY, Hears, messages_of, real_sessions

from jev_engine import ContextEngine, hookimpl, make_config
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.audit.records import read_trail
from jev_engine.audit.replay import differences, is_made_from, swept, thresholds_of
from jev_engine.cli.audit_again import Found, again, find, settings_for
from jev_engine.cli.audit_open import Given
from jev_engine.cli.files import Refused
from jev_engine.judges.asked import AskedJudge
from jev_engine.plugins import load_plugins
from jev_engine.store import Original
from jev_engine.store.expand import expand
from jev_engine.store.sqlite import SqliteStore
from jev_engine.testing import ScriptedAsker, ScriptedJudge, call, history, result


class PinReads:
    """Pins by a rule of a plugin, which a replay does not have."""

    @hookimpl
    def register_pins(self, register: Any) -> None:
        register(lambda call: "our own" if call.number == 4 else None)


class LosesSome(SqliteStore):
    """Cannot save every third original."""

    async def save(self, originals: Sequence[Original]) -> set[str]:
        return await super().save([each for number, each in enumerate(originals) if number % 3])


def engine_of(folder: Path, judge: Any, *, sinks: Any = (), store: Any = None, **settings: Any) -> ContextEngine:
    return ContextEngine(
        config=make_config(**{"min_freed_share": 0.0, "pin_newest_calls": 1, **settings}),
        judge=judge,
        sinks=sinks,
        store=store or SqliteStore(folder / "store.sqlite3"),
        plugins=load_plugins([PinReads()], entry_points=False),
    )


def recorded(
    folder: Path, messages: list[Any], judge: Any, *, force: bool = True, is_dry: bool = False, **given: Any
) -> Any:
    """One pass into a trail, its input beside it; gives the pass's result."""
    (folder / "session.json").write_text(json.dumps(messages))
    (folder / "key").write_bytes(KEY)
    sink = JsonlSink(folder / "trail.jsonl", key=KEY)
    engine = engine_of(folder, judge, sinks=[sink], **given)
    done = anyio.run(lambda: engine.compress(messages, host="openai", force=force, goal="A goal.", dry_run=is_dry))
    sink.close()
    return done


def found_in(folder: Path, session: str = "session.json", which: str | None = None, key: str = "key") -> Found:
    """The pass that was made from a session, by nothing but trail, store and session."""
    given = Given(folder / "trail.jsonl", None, str(folder / "store.sqlite3"), str(folder / key))
    found = find(given, str(folder / session), "auto", which)
    assert found is not None
    return found


def changed_in(found: Found) -> list[Any]:
    """What a replay makes otherwise than the pass did."""
    done = again(found, settings_for(found))
    return [check for check in differences(found.told, done, found.keyed) if not check.is_same]


def jev_like(name: str) -> float:
    """Around 0.15, as Jev answers, a few far above."""
    return round(0.05 + (crc32(name.encode()) % 997) / 4_000 + (0.5 if crc32(name.encode()) % 11 == 0 else 0.0), 4)


JUDGES: dict[str, Callable[[], Any]] = {
    "calibrated": lambda: ScriptedJudge(lambda call: (0.9, (call.number % 7) / 10)),
    "asked": lambda: AskedJudge(ScriptedAsker(lambda name, *_: jev_like(name))),
    "half": lambda: AskedJudge(ScriptedAsker(lambda name, *_: 0.2 if name.endswith(("1", "3", "5")) else None)),
    "flat": lambda: AskedJudge(ScriptedAsker(lambda *_: 0.15)),
    "failing": lambda: ScriptedJudge({}, fails=True, is_calibrated=False),
    "local": lambda: None,
}
SETTINGS: dict[str, dict[str, Any]] = {
    "worth": {},
    "threshold": {"policy": "threshold", "keep_result": 0.4, "keep_call": 0.2, "head_chars": 120},
    "reference": {"profile": "reference"},
    "reference with a default of another profile": {"profile": "reference", "keep_result": 0.35, "guards": True},
    "classic": {"profile": "hermes-classic", "expand_tool": "jev_expand"},
    "protected": {"protect_paths": ("src/2.py",), "protect_ids": ("t5",), "miss_cost": 2.0},
}


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("judge", JUDGES)
def test_a_replay_gives_the_same_bytes(tmp_path: Path, judge: str, settings: str) -> None:
    """Whatever judge answered, under every policy, with pins and patterns the trail does not hold."""
    done = recorded(tmp_path, messages_of(), JUDGES[judge](), **SETTINGS[settings])
    found = found_in(tmp_path)

    assert json.dumps(again(found, settings_for(found)).messages) == json.dumps(done.messages)
    assert changed_in(found) == []


OTHERS: list[dict[str, Any]] = [
    {"policy": "worth", "miss_cost": 0.1},
    {"policy": "worth"},
    {"policy": "worth", "miss_cost": 60.0},
    {"policy": "threshold", "keep_result": 0.10},
    {"policy": "threshold", "keep_result": 0.35},
    {"policy": "threshold", "keep_result": 0.35, "keep_call": 0.4},
]


@pytest.mark.parametrize("force", [False, True])
@pytest.mark.parametrize("settings", ["worth", "threshold", "reference"])
@pytest.mark.parametrize("judge", ["calibrated", "asked", "flat", "local"])
def test_another_setting_does_what_a_pass_under_it_would(
    tmp_path: Path, judge: str, settings: str, *, force: bool
) -> None:
    """The same answers through a real pass: the same outcome, decisions, tokens and expected misses."""
    messages, before = messages_of(40), {"min_freed_share": 0.2, **SETTINGS[settings]}
    recorded(tmp_path, messages, JUDGES[judge](), force=force, **before)
    found = found_in(tmp_path)
    for other in OTHERS:
        config = settings_for(found, **other)
        shown = again(found, config)
        engine = engine_of(tmp_path, JUDGES[judge](), **{**before, **other})
        made = anyio.run(lambda engine=engine: engine.compress(messages, host="openai", force=force, goal="A goal."))

        assert facts_of(shown) == facts_of(made), other


def facts_of(done: Any) -> Any:
    actions = [(decision.label, decision.action) for decision in done.decisions]
    return done.outcome, done.stats.freed_tokens, round(done.stats.expected_misses, 9), actions


def test_a_second_pass_over_markers_is_replayed_too(tmp_path: Path) -> None:
    """Markers of the first pass are known by the trail where the store is gone, and by the store where the trail is."""
    first = recorded(tmp_path, messages_of(), JUDGES["calibrated"]())
    more = [row for n in (50, 51, 52) for row in (call("read", path=f"{n}", call_id=f"m{n}"),
            result(f"later {n}\n" * 400, call_id=f"m{n}"))]  # fmt: skip
    second = recorded(tmp_path, [*first.messages, *more], JUDGES["calibrated"]())
    found = found_in(tmp_path, which="last")
    assert second.changed
    assert found.is_input
    assert changed_in(found) == []

    (tmp_path / "store.sqlite3").unlink()
    (tmp_path / "other").write_bytes(b"o" * 32)
    (tmp_path / "session.json").write_text(json.dumps([*first.messages, *more]))
    without_store = found_in(tmp_path, which="last")
    assert again(without_store, settings_for(without_store)).messages == second.messages
    assert "the store does not know" in changed_in(without_store)[0].detail
    assert changed_in(found_in(tmp_path, key="other")) == []


def test_a_pass_over_markers_of_passes_without_a_trail_is_replayed(tmp_path: Path) -> None:
    """Their originals are known to the store alone."""
    first = engine_of(tmp_path, JUDGES["calibrated"]())
    done = anyio.run(lambda: first.compress(messages_of(), host="openai", force=True))
    more = [call("read", path="m", call_id="m"), result("later\n" * 400, call_id="m"), call("ls"), result("a")]
    second = recorded(tmp_path, [*done.messages, *more], JUDGES["calibrated"](), pin_newest_calls=0)
    found = found_in(tmp_path)

    assert second.changed
    assert found.is_input
    assert changed_in(found) == []


def test_pages_that_were_asked_back_are_replayed(tmp_path: Path) -> None:
    """A page goes out under the id of its original, which is stored already."""
    first = recorded(tmp_path, messages_of(), ScriptedJudge(lambda _: (0.9, 0.0)))
    reference = first.decisions[0].call.reference
    page = anyio.run(lambda: expand(SqliteStore(tmp_path / "store.sqlite3"), first.session, reference)).shown
    later = [row for n in range(12) for row in (call("ls", path=f"d{n}"), result(f"{n}\n"))]
    grown = history(*first.messages, call("jev_expand", id=reference), result(page), *later)
    second = recorded(tmp_path, grown, ScriptedJudge(lambda _: (0.9, 0.0)))
    found = found_in(tmp_path, which="last")

    assert reference in [unit.reference for unit in found.told.out]
    assert json.dumps(again(found, settings_for(found)).messages) == json.dumps(second.messages)
    assert changed_in(found) == []


def test_a_dry_run_is_replayed_too(tmp_path: Path) -> None:
    """It changed nothing, and its decisions are those of the pass it stood for."""
    recorded(tmp_path, messages_of(), JUDGES["calibrated"](), is_dry=True)
    found = found_in(tmp_path)

    assert found.told.outcome == "dry run (committed)"
    assert again(found, settings_for(found)).messages == messages_of()
    assert [unit.label for unit in found.told.out]
    assert changed_in(found) == []


def test_what_could_not_be_saved_stays_in_a_replay_too(tmp_path: Path) -> None:
    """A unit is kept where its original is not safe, and the replay knows which were."""
    store = LosesSome(tmp_path / "store.sqlite3")
    done = recorded(tmp_path, messages_of(), JUDGES["calibrated"](), store=store, **SETTINGS["threshold"])
    kept = [decision.label for decision in done.decisions if "could not be saved" in decision.reason]

    assert done.outcome == "committed"
    assert kept
    assert changed_in(found_in(tmp_path)) == []


def test_a_pass_that_failed_has_nothing_to_replay(tmp_path: Path) -> None:
    """And is not taken for the one that was made from this input."""
    recorded(tmp_path, messages_of(), JUDGES["calibrated"]())
    taken = found_in(tmp_path).told.id
    (tmp_path / "full").write_text("")
    recorded(tmp_path, messages_of(), JUDGES["calibrated"](), store=SqliteStore(tmp_path / "full" / "store.sqlite3"))
    failed = read_trail(tmp_path / "trail.jsonl").find("last")

    assert failed.outcome.startswith("abandoned")
    assert found_in(tmp_path).told.id == taken
    with pytest.raises(Refused, match="no decisions"):
        found_in(tmp_path, which=failed.id)


def test_a_replay_asks_no_rule_and_tells_no_sink(tmp_path: Path) -> None:
    """Plugins that have come since the pass change nothing of it and hear nothing of its replay."""
    recorded(tmp_path, messages_of(), JUDGES["calibrated"]())
    found, hears = found_in(tmp_path), Hears()
    found.opened.engine.plugins.sinks.append(hears)
    found.opened.engine.plugins.pins.append(lambda _: "all of it")

    assert changed_in(found) == []
    assert hears.events == []


def test_what_was_found_shows_neither_history_nor_key(tmp_path: Path) -> None:
    """In a log or a traceback."""
    recorded(tmp_path, messages_of(), JUDGES["calibrated"]())
    shown = repr(found_in(tmp_path))

    assert "line 1 of" not in shown
    assert str(KEY) not in shown


def test_another_input_is_noticed(tmp_path: Path) -> None:
    """One sign of one result, the same length; without the key only another length can be."""
    recorded(tmp_path, messages_of(), JUDGES["calibrated"]())
    for name, of, instead in (("sign.json", "line 1 of", "line X of"), ("length.json", "line 1 of", "line of")):
        (tmp_path / name).write_text((tmp_path / "session.json").read_text().replace(of, instead))
    (tmp_path / "other").write_bytes(b"o" * 32)

    assert not found_in(tmp_path, "sign.json", "last").is_input
    assert not found_in(tmp_path, "length.json", "last").is_input
    assert found_in(tmp_path, "sign.json", "last", key="other").is_input
    assert not found_in(tmp_path, "length.json", "last", key="other").is_input
    assert "input" in [check.what for check in changed_in(found_in(tmp_path, "sign.json", "last"))]


def test_a_history_before_and_after_a_pass_are_two_inputs(tmp_path: Path) -> None:
    """Though the digest of both is one: it is made of the originals."""
    first = recorded(tmp_path, messages_of(), JUDGES["calibrated"]())
    recorded(tmp_path, first.messages, JUDGES["calibrated"](), pin_newest_calls=0)
    one, two = read_trail(tmp_path / "trail.jsonl").passes.values()
    transcripts = [anyio.run(lambda given=given: engine_of(tmp_path, None).inspect(given, host="openai")).transcript
                   for given in (messages_of(), first.messages)]  # fmt: skip
    keyed = found_in(tmp_path, which=two.id).keyed

    assert [is_made_from(one, each, keyed) for each in transcripts] == [True, False]
    assert [is_made_from(two, each, keyed) for each in transcripts] == [False, True]


def test_the_table_parts_the_answers_of_the_pass(tmp_path: Path) -> None:
    """Also where all are far below the seeds' thresholds: every row but theirs lets more go than the one before."""
    judge = ScriptedJudge(lambda call: (0.9, call.number / 1_000))
    recorded(tmp_path, messages_of(40), judge)
    found = found_in(tmp_path)
    thresholds = thresholds_of(found.told)
    rows = [
        swept(each, again(found, settings_for(found, policy="threshold", keep_result=each)), [], found.told)
        for each in thresholds
    ]

    assert {0.10, 0.35} < set(thresholds)
    assert len({row.below for row in rows}) >= 10
    assert [row.out for row in rows] == [row.below for row in rows]
    assert rows[-1].expected_misses == pytest.approx(sum(unit.p_result or 0 for unit in found.told.units.values()))


@pytest.mark.parametrize("answer", [0.0, 1e-9, 0.0999, 0.1, 0.35, 0.999, 1.0])
def test_a_threshold_lies_above_the_answer_it_parts(tmp_path: Path, answer: float) -> None:
    """Whatever the answer is; the surest one has none above it."""
    recorded(tmp_path, messages_of(), ScriptedJudge(lambda _: (0.9, answer)), force=False)
    thresholds = [each for each in thresholds_of(found_in(tmp_path).told) if each not in (0.10, 0.35)]

    assert all(each > answer or answer == 1.0 for each in thresholds)
    assert all(each <= 1.0 for each in thresholds)


def test_raw_answers_have_a_sum_and_no_expectation(tmp_path: Path) -> None:
    """Nobody has fitted them to outcomes."""
    recorded(tmp_path, messages_of(), JUDGES["asked"]())
    found = found_in(tmp_path)
    row = swept(0.9, again(found, settings_for(found, policy="threshold", keep_result=0.9)), [], found.told)

    assert row.expected_misses is None
    assert row.sum_of_answers == pytest.approx(sum(unit.raw_result or 0 for unit in found.told.units.values()))


@pytest.mark.slow
def test_real_sessions_replay_to_the_same_bytes(tmp_path: Path, shared: Path) -> None:
    """With the judge that ships, under both policies; and another policy does what a pass under it would."""
    for index, messages in enumerate(real_sessions(shared, 8)):
        folder = tmp_path / str(index)
        folder.mkdir()
        settings = SETTINGS["threshold"] if index % 2 else {}
        done = recorded(folder, messages, None, force=False, **settings)
        found = found_in(folder)
        assert json.dumps(again(found, settings_for(found)).messages) == json.dumps(done.messages), index
        assert changed_in(found) == []

        other = {"policy": "worth"} if index % 2 else {"policy": "threshold", "keep_result": 0.02}
        engine = engine_of(folder, None, **{**settings, **other})
        made = anyio.run(lambda engine=engine, given=messages: engine.compress(given, host="openai"))
        assert facts_of(again(found, settings_for(found, **other))) == facts_of(made), index
