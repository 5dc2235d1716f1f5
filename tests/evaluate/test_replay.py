"""The replay: real engine, hindsight, joint losses, several processes, resumption."""

from __future__ import annotations

import asyncio
import json

import pytest
from recorded_sessions import FAR_BACK, record, recorded, source_text, write_corpus

from jev_engine.config import EngineConfig
from jev_engine.engine import ContextEngine
from jev_engine.evaluate.corpus import Session, read_lines, read_sessions
from jev_engine.evaluate.hindsight import look_back
from jev_engine.evaluate.policies import POLICIES, choose
from jev_engine.evaluate.replay import PASS_FIELDS, replay_session, rows_at, units_lost
from jev_engine.evaluate.runs import Plan, read_recorded, replay_corpus
from jev_engine.evaluate.vocabulary import Vocabulary
from jev_engine.judges.features import FeatureCache
from jev_engine.judges.local import local_probabilities
from jev_engine.testing import ScriptedJudge

NOTHING_COMMON = Vocabulary(frozenset(), {})


def replay(messages=None, policies=POLICIES, session="s1", **options):
    found = Session(session, "ours/site", "claude-code", recorded(1) if messages is None else messages)
    return replay_session(found, list(policies), NOTHING_COMMON, **options)


def numbers(found, policy, field, cut=-1):
    return found["cuts"][cut]["policies"][policy][PASS_FIELDS.index(field)]


def test_what_the_agent_quotes_later_is_needed_and_dropping_it_is_a_miss():
    found = replay(policies=choose(["keep last 3", "oracle (hindsight)"]), cuts=(15,))
    cut = found["cuts"][0]

    # After 15 results the agent quotes those at 20 - 9 = 11 (within the cut), 27 - 9 and 34 - 9 (after it).
    assert [i for i, needed in enumerate(cut["needed"]) if needed] == [20 - FAR_BACK]
    assert numbers(found, "keep last 3", "missed") == 1
    assert numbers(found, "keep last 3", "out") == 12
    assert numbers(found, "oracle (hindsight)", "missed") == 0


def test_a_policy_that_keeps_the_needed_result_misses_nothing():
    found = replay(policies=choose(["keep last 5"]), cuts=(15,))

    assert numbers(found, "keep last 5", "missed") == 0


def test_an_atom_is_lost_only_when_all_its_holders_are_gone():
    messages = recorded(1, quoted=(20,))
    far = 20 - FAR_BACK
    messages[2 * 2 + 2]["content"] = source_text(1, far)  # an older result shows the same text
    segment = Session("s1", "p", "h", messages).segments()[0]
    hindsight = look_back(segment.transcript, lambda _: False)
    row = rows_at(segment, (15,))[0]

    assert units_lost(hindsight, row, {far: ""}) == []
    assert units_lost(hindsight, row, {far: "", 2: ""}) == [far]


def test_what_a_head_still_shows_is_not_lost():
    segment = Session("s1", "p", "h", recorded(1, quoted=(20,))).segments()[0]
    hindsight = look_back(segment.transcript, lambda _: False)
    row = rows_at(segment, (15,))[0]
    far = 20 - FAR_BACK
    text = source_text(1, far)

    assert units_lost(hindsight, row, {far: text[:100]}) == [far]
    assert units_lost(hindsight, row, {far: text[:2_000]}) == []


def test_heads_save_no_more_than_they_leave():
    names = ["all but the last 3 and short results", "the same, 300-character head stays"]
    found = replay(policies=choose(names), cuts=(30,))

    assert numbers(found, names[0], "freed_chars") > numbers(found, names[1], "freed_chars") > 0


def test_the_replay_frees_what_the_engine_frees_with_the_same_answers():
    messages = recorded(1)
    found = replay(messages, choose(["balanced, as shipped"]), cuts=(30,))
    cut = found["cuts"][0]
    history = messages[: cut["row"]]
    segment = Session("s1", "p", "h", messages).segments()[0]
    answers = local_probabilities(segment.before(cut["row"]), FeatureCache())
    engine = ContextEngine(config=EngineConfig(), judge=ScriptedJudge(lambda call: answers[call.number]))

    done = asyncio.run(engine.compress(history))

    out = [decision for decision in done.decisions if decision.action != "keep"]
    assert numbers(found, "balanced, as shipped", "freed_chars") == done.stats.chars_before - done.stats.chars_after
    assert numbers(found, "balanced, as shipped", "out") == len(out)
    assert numbers(found, "balanced, as shipped", "predicted") == pytest.approx(done.stats.expected_misses, abs=1e-4)


def test_every_policy_runs_at_every_cut():
    found = replay()

    assert len(found["cuts"]) > 3
    assert all(set(cut["policies"]) == {policy.name for policy in POLICIES} for cut in found["cuts"])


def test_a_higher_miss_cost_never_frees_more():
    found = replay(policies=choose(["worth"]))

    assert len(found["cuts"]) == 4
    for place in range(len(found["cuts"])):
        freed = [numbers(found, f"worth {cost}", "freed_chars", place) for cost in ("1", "3", "5", "10")]

        assert freed == sorted(freed, reverse=True)


def test_fold_predictions_stand_for_the_local_judge_where_there_are_some():
    shipped = replay(policies=choose(["worth 5"]), cuts=(15,))
    row = shipped["cuts"][0]["row"]
    folds = {("s1", 0, row): dict.fromkeys(range(1, 16), 0.0)}

    unseen = replay(policies=choose(["worth 5"]), cuts=(15,), folds=folds)

    assert not shipped["cuts"][0]["unseen"]
    assert unseen["cuts"][0]["unseen"]
    assert set(unseen["cuts"][0]["p"]["local"]) == {0.5}


def test_nothing_of_a_session_is_in_its_result():
    text = json.dumps(replay(policies=choose(["recency"])))

    for word in ("handler", "part_"):
        assert word in json.dumps(recorded(1))
        assert word not in text


def test_cuts_are_all_of_them_or_some_evenly_or_those_asked_for():
    segment = Session("s1", "p", "h", recorded(1)).segments()[0]
    every = rows_at(segment, None)

    assert rows_at(segment, 2) == [every[len(every) // 2 - 1], every[-1]]
    assert rows_at(segment, 100) == every
    assert rows_at(segment, (15,)) == [every[1]]


@pytest.fixture
def corpus(tmp_path):
    return write_corpus(tmp_path / "ours.jsonl", [record(i, f"ours/p{i % 2}") for i in range(6)])


def without_latency(sessions):
    return [{name: value for name, value in session.items() if name != "latency"} for session in sessions]


def test_the_same_corpus_gives_the_same_numbers_in_one_process_or_two(corpus, tmp_path):
    one = replay_corpus(Plan(corpus, ("recency", "order"), seed=3), tmp_path / "a")
    two = replay_corpus(Plan(corpus, ("recency", "order"), seed=3, jobs=2), tmp_path / "b")

    assert without_latency(one) == without_latency(two)
    assert [session["session"] for session in one] == [f"s{i}" for i in range(6)]


def test_an_interrupted_run_goes_on_where_it_was(corpus, tmp_path):
    plan = Plan(corpus, ("recency",))
    told = []

    def interrupt(done, _):
        told.append(done)
        if done == 4:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay_corpus(plan, tmp_path / "cache", interrupt)
    again = []
    found = replay_corpus(plan, tmp_path / "cache", lambda done, _: again.append(done))

    assert told == [0, 1, 2, 3, 4]
    assert again == [4, 5, 6]
    assert len(found) == 6


def test_other_policies_or_another_seed_are_another_run(corpus, tmp_path):
    replay_corpus(Plan(corpus, ("recency",)), tmp_path / "cache")
    replay_corpus(Plan(corpus, ("recency",), seed=1), tmp_path / "cache")
    replay_corpus(Plan(corpus, ("bound",)), tmp_path / "cache")

    assert len(list((tmp_path / "cache").iterdir())) == 3


def test_a_part_of_the_sessions_is_drawn_by_the_seed(corpus, tmp_path):
    def drawn(seed):
        found = replay_corpus(Plan(corpus, ("bound",), sessions=3, seed=seed), tmp_path / "cache")
        return [session["session"] for session in found]

    assert len(drawn(0)) == 3
    assert len({tuple(drawn(seed)) for seed in range(4)}) > 1


def test_recorded_answers_are_read_from_the_audit_trail_or_plainly(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text(
        '{"kind": "decided", "key": "k1", "raw_call": 0.3, "raw_result": 0.1}\n'
        '{"kind": "pass_ended"}\n{"key": "k2", "p_result": 0.7}\n'
    )

    assert read_recorded(path) == {"k1": (0.3, 0.1), "k2": (None, 0.7)}


def test_a_file_without_answers_is_refused(tmp_path):
    path = tmp_path / "answers.jsonl"
    path.write_text('{"kind": "pass_ended"}\n')

    with pytest.raises(ValueError, match="no recorded answer"):
        read_recorded(path)


@pytest.mark.slow
def test_three_real_sessions_are_replayed_and_the_oracle_misses_nothing(shared, tmp_path):
    lines = [line for _, line in zip(range(3), read_lines(shared / "corpus/trajectories.jsonl.gz"), strict=False)]
    path = tmp_path / "three.jsonl"
    path.write_text("".join(lines), encoding="utf-8")
    assert len(list(read_sessions(path))) == 3

    found = replay_corpus(Plan(path, ("bound", "recency"), cuts=3), tmp_path / "cache")

    cuts = [cut for session in found for cut in session["cuts"]]
    missed = PASS_FIELDS.index("missed")
    assert len(cuts) >= 3
    assert sum(cut["policies"]["oracle (hindsight)"][missed] for cut in cuts) == 0
    assert sum(cut["policies"]["keep last 3"][missed] for cut in cuts) > 0
