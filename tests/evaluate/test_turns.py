"""Growing sessions: what is out is missed and fetched again, the prefix stays, the bill adds up."""

from __future__ import annotations

import asyncio
import json
from itertools import pairwise

import numpy as np
import pytest
from click.testing import CliRunner
from recorded_sessions import call, record, recorded, result, source_line, write_corpus

from jev_engine.cli import main
from jev_engine.engine import ContextEngine
from jev_engine.evaluate.corpus import Session
from jev_engine.evaluate.fold_models import FoldModels, Forest, forest_of, load_models, save_models
from jev_engine.evaluate.model import Blend, Linear, Member, Tree
from jev_engine.evaluate.runs import Plan, replay_corpus
from jev_engine.evaluate.turn_arms import ARMS, ArmJudge, FrozenZone, choose_arms, parse_arm
from jev_engine.evaluate.turn_files import is_corpus, session_from
from jev_engine.evaluate.turn_tables import TurnResults, summarise_turns
from jev_engine.evaluate.turns import CHARS_PER_TOKEN, Context, Turns, Walk, count_tokens, replay_turns
from jev_engine.evaluate.vocabulary import Vocabulary
from jev_engine.judges.features import FEATURES, FeatureCache
from jev_engine.markers import find_reference
from jev_engine.plugins import load_plugins
from jev_engine_adapters.openai import adapter

NOTHING_COMMON = Vocabulary(frozenset(), {})
WINDOW = 20_000
SYSTEM = 1_000


def replay(messages, *arms, window=WINDOW, system=SYSTEM):
    session = Session("s1", "ours/site", "claude-code", messages)
    found = replay_turns(session, choose_arms(arms), Turns((window,), system_tokens=system), NOTHING_COMMON)
    return found["contexts"][0]["arms"]


class Watched(ArmJudge):
    """Keeps the history it was shown at each pass."""

    def __init__(self):
        super().__init__(FeatureCache(), None)
        self.shown = []

    async def judge(self, request):
        self.shown.append(list(request.transcript.messages))
        return await super().judge(request)


def walk(messages, name, window=WINDOW):
    """A walk that has been made, and its judge."""
    arm = parse_arm(name)
    zone, judge = FrozenZone(), Watched()
    engine = ContextEngine(
        judge=judge, config=arm.config(window), counter=count_tokens,
        plugins=load_plugins([zone], entry_points=False),
    )  # fmt: skip
    judge.way = arm.way
    segment = Session("s1", "ours/site", "claude-code", messages).segments()[0]
    made = Walk(Context(segment, NOTHING_COMMON), arm, engine, zone, SYSTEM)
    asyncio.run(made.run())
    return made, judge


def test_a_need_is_missed_where_the_result_is_out_and_nowhere_else():
    """Each quote is of a result nine calls back. Keeping ten holds it; keeping three has lost it twice.

    The first quote comes before a second pass: what it needs is still there.
    """
    three, ten = "keep last 3, trigger_share=0.6", "keep last 10, trigger_share=0.6"
    arms = replay(recorded(1), three, ten)

    assert arms["no compaction"]["misses"] == 0
    assert arms[three]["misses"] == 2
    assert arms[ten]["misses"] == 0


def test_a_miss_is_counted_against_the_pass_that_took_the_result():
    """Nothing else of the session was needed."""
    passes = replay(recorded(1, quoted=(20,)), "keep last 3")["keep last 3"]["passes"]

    assert sum(each["missed"] for each in passes) == 1


def test_what_was_fetched_again_is_in_the_history_and_is_not_missed_twice():
    """The second quote of the same result finds the copy."""
    messages = recorded(1, quoted=(20,))
    at = next(row for row, message in enumerate(messages) if "go on like this" in message["content"])
    again = "\n".join(source_line(1, 11, line) for line in (21, 22))
    messages.insert(at + 1, {"role": "assistant", "content": f"And like this:\n{again}"})
    arms = replay(messages, "keep last 3")

    assert arms["keep last 3"]["misses"] == 1
    assert arms["keep last 3"]["refetched"] > 0


def test_the_bill_of_three_calls_is_what_a_person_adds_up():
    """Fresh text is written to the cache at 1.25, what stands is read at 0.1."""
    texts = [1_000, 2_000, 3_000]
    messages = [{"role": "user", "content": "u" * 4_000}]
    for number, chars in enumerate(texts):
        messages += [call(number), result(number, "r" * chars)]
    # Contexts of fewer results are not looked at: the rest arrives without a call.
    messages += [result(90 + i, "") for i in range(12)]
    (context,) = replay_turns(
        Session("s1", "p", "h", messages), choose_arms(["no compaction"]), Turns((1_000,), system_tokens=600),
        NOTHING_COMMON,
    )["contexts"]  # fmt: skip

    arguments = 2  # "{}"
    prompts = [600 + 4_000 / 4]
    for chars in texts[:2]:
        prompts.append(prompts[-1] + (arguments + chars) / 4)
    by_hand = 1.25 * prompts[0]
    by_hand += 0.1 * prompts[0] + 1.25 * (prompts[1] - prompts[0])
    by_hand += 0.1 * prompts[1] + 1.25 * (prompts[2] - prompts[1])
    assert context["arms"]["no compaction"]["bill"] == pytest.approx(by_hand)
    assert context["arms"]["no compaction"]["calls"] == 3


def test_a_pass_breaks_the_cached_prefix_once_and_nothing_breaks_it_between():
    """One break for each pass."""
    arms = replay(recorded(1, calls=80))

    assert [name for name, arm in arms.items() if not arm["passes"]] == ["no compaction"]
    assert {name: arm["breaks"] for name, arm in arms.items()} == {n: len(arm["passes"]) for n, arm in arms.items()}


def test_what_never_thaws_leaves_everything_before_the_last_edit_as_it_was():
    """Rows are the same objects from pass to pass."""
    made, judge = walk(recorded(1, calls=90, quoted=()), "worth 5, never thaw")

    assert len(made.passes) > 1
    for before, after in pairwise(judge.shown):
        out = [row for row, message in enumerate(before) if find_reference(message["content"]) is not None]
        assert all(after[row] is before[row] for row in range(max(out, default=-1) + 1))
    assert any(find_reference(message["content"]) for message in judge.shown[-1])


def test_every_pass_can_be_undone_at_the_end():
    """The host kept only what the engine gave it."""
    made, _ = walk(recorded(1, calls=60), "worth 5")

    restored = asyncio.run(made.engine.restore(made.rows, host="openai"))
    assert made.rows != made.originals
    assert restored.messages == made.originals


def test_a_host_summarises_when_nothing_is_left_to_prune():
    """Text alone fills the window: no pass can free it, and no call goes out too long."""
    messages = [{"role": "user", "content": "Write the book."}]
    for number in range(40):
        message = call(number)
        message["content"] = f"chapter {number} " * 300
        messages += [message, result(number, "written")]
    arms = replay(messages, "worth 5", "keep last 10", "summary at the trigger")

    assert arms["no compaction"]["over"] > 0
    for name in ("worth 5", "keep last 10", "summary at the trigger"):
        assert arms[name]["handovers"] > 0
        assert arms[name]["over"] == 0


def test_growing_sessions_fail_in_no_pass():
    """Every arm, every pass."""
    assert all(arm["failed"] == 0 for arm in replay(recorded(1, calls=60)).values())


def test_an_arm_can_be_varied_by_settings():
    """The name says how."""
    arm = parse_arm("worth 5, never thaw, miss_cost=8")

    assert arm.thaw == "never"
    assert arm.config(WINDOW).miss_cost == 8
    assert arm.name == "worth 5, never thaw, miss_cost=8"


@pytest.mark.parametrize("name", ["worth 6", "worth 5, cheap", "worth 5, miss_cost=-1", "worth 5, price=3"])
def test_an_arm_that_cannot_be_is_named(name):
    """A wrong name, a wrong setting, a value out of range."""
    with pytest.raises(ValueError, match=r"\w"):
        choose_arms([name])


def test_a_replay_of_a_corpus_goes_on_where_it_was(tmp_path):
    """Finished sessions are read, not replayed."""
    corpus = write_corpus(tmp_path / "ours.jsonl", [record(i, f"ours/p{i % 2}") for i in range(3)])
    plan = Plan(corpus, turns=Turns((WINDOW,), ("keep last 3",), SYSTEM))
    said = []
    first = replay_corpus(plan, tmp_path / "cache", lambda done, total: said.append((done, total)))
    second = replay_corpus(plan, tmp_path / "cache", lambda done, total: said.append((done, total)))

    assert first == second
    assert said[-1] == (3, 3)
    assert [len(session["contexts"]) for session in first] == [1, 1, 1]


def test_tables_hold_what_was_replayed():
    """Passes, bill, differences and bars."""
    session = Session("s1", "p", "h", recorded(1))
    found = [replay_turns(session, ARMS, Turns((WINDOW,), system_tokens=SYSTEM), NOTHING_COMMON)]
    tables = {table.key.partition("-20000")[0]: table for table in summarise_turns(found, (WINDOW,), 0)}
    results = TurnResults(found, WINDOW, 0)

    assert set(tables) == {"turns-bars", "turns-bill", "turns-paired", "turns-passes"}
    assert [row[0] for row in tables["turns-bill"].rows] == [arm.name for arm in ARMS]
    plain, kept = results.bill("no compaction", 5), results.bill("keep last 3", 5)
    assert results.saving("keep last 3", 5).value == pytest.approx(1 - kept[0] / plain[0])
    assert results.saving("keep last 3", 5).low is None, "one session has no interval"


def test_fold_models_come_back_as_they_were_saved(tmp_path):
    """One tree of two leaves and one logistic, by hand."""
    width = len(FEATURES)
    linear = np.zeros((1, 2 + width))
    linear[0, :2], linear[0, 2 + 1] = (0.5, -1.0), 2.0
    tree = Forest(
        np.array([0], np.int32), np.array([0, -1, -1], np.int32), np.array([4.0, 0, 0]),
        np.array([1, 0, 0], np.int32), np.array([2, 0, 0], np.int32), np.array([0.0, -1.5, 0.25]), linear,
    )  # fmt: skip
    rows = np.zeros((2, width))
    rows[:, 0], rows[:, 1] = (3.9, 4.0), (0.25, 1.0)
    path = tmp_path / "models.npz"
    save_models(FoldModels("c", "h", "columns", {"ours/site": tree}), path)
    known = load_models(path)

    assert known.by_project["ours/site"].log_odds(rows).tolist() == [-1.5 - 0.25, 0.25 + 0.5]
    assert not known.is_current


def test_a_session_in_another_form_is_replayed_as_the_same_texts():
    """Read through its adapter and written in the corpus' form."""
    messages = recorded(1, calls=15)
    session = session_from(adapter.read(messages), "mine", "openai")

    again, before = adapter.read(session.messages), adapter.read(messages)
    assert [each.text for each in again.entries] == [each.text for each in before.entries]
    assert [(c.tool, c.arguments, c.result) for c in again.calls] == [
        (c.tool, c.arguments, c.result) for c in before.calls
    ]


def run(*words):
    return CliRunner().invoke(main, ["evaluate", *map(str, words), "--jobs", "1"], catch_exceptions=False)


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    """No cache of the machine is read or written."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def test_the_command_replays_a_corpus(tmp_path):
    """Tables as JSON, with the command in the stamp."""
    corpus = write_corpus(tmp_path / "ours.jsonl", [record(i) for i in range(2)])
    done = run(corpus, "--turns", "--window", WINDOW, "--system-tokens", SYSTEM, "--arm", "worth 5", "--json")
    data = json.loads(done.stdout)

    assert done.exit_code == 0
    assert "--turns --window 20000" in data["stamp"]["command"]
    assert data["stamp"]["judge"].startswith("local, shipped weights on 2 sessions")
    assert f"turns-passes-{WINDOW}-worth 5" in data["tables"]


def test_the_command_replays_one_session_file(tmp_path):
    """A list of messages, as hosts write it."""
    path = tmp_path / "session.json"
    path.write_text(json.dumps(recorded(1)), encoding="utf-8")
    done = run(path, "--turns", "--window", WINDOW, "--system-tokens", SYSTEM)

    assert not is_corpus(path)
    assert done.exit_code == 0
    assert "Pass by pass: worth 5" in done.stdout


def test_the_command_says_when_no_pass_is_ever_due(tmp_path):
    """And what to do."""
    path = tmp_path / "session.json"
    path.write_text(json.dumps(recorded(1, calls=20)), encoding="utf-8")
    done = run(path, "--turns", "--window", 200_000)

    assert done.exit_code == 2
    assert "smaller --window" in done.stderr


def test_options_of_one_replay_are_refused_by_the_other(tmp_path):
    """Cuts and turns are two things."""
    corpus = write_corpus(tmp_path / "ours.jsonl", [record(1)])

    assert run(corpus, "--turns", "--cuts", "3").exit_code == 2
    assert run(corpus, "--window", "20000").exit_code == 2


def test_one_unit_serves_prompt_engine_and_bill():
    """Four characters are a token, rounded up for the engine."""
    assert count_tokens("abcde") == 2
    assert CHARS_PER_TOKEN == 4


def test_a_blend_as_numbers_says_what_the_blend_says():
    """Trees of different shape, each with its share, and a logistic."""
    width = len(FEATURES)
    leaf = [Tree(-1, 0.0, None, None, float(steps)) for steps in (-300, 40, 125, -7)]
    deep = Tree(3, 2.5, leaf[0], Tree(1, 0.5, leaf[1], leaf[2], 0.0), 0.0)
    flat = Tree(0, 7.0, leaf[3], leaf[2], 0.0)
    weights = np.zeros(width)
    weights[4] = 0.3
    members = [Member("a", (), 2, 4, 0.1, 2, by_size=False), Member("b", (), 0, 0, 0.0, 1, by_size=False)]
    blend = Blend(members, [[deep, flat]], [Linear(-2.0, weights)])
    rows = np.random.default_rng(0).uniform(0, 10, (50, width))

    assert forest_of(blend).log_odds(rows) == pytest.approx(blend.log_odds(rows))
