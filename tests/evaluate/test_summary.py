"""Figures: means over sessions, intervals, matched comparisons, the bill, and the rows a report must have."""

from __future__ import annotations

import numpy as np
import pytest
from recorded_sessions import record, write_corpus

from jev_engine.evaluate.bill import bill_of, break_even_calls
from jev_engine.evaluate.bootstrap import Bootstrap, Measure
from jev_engine.evaluate.policies import POLICIES
from jev_engine.evaluate.replay import PASS_FIELDS
from jev_engine.evaluate.results import Results
from jev_engine.evaluate.runs import Plan, replay_corpus
from jev_engine.evaluate.summary import summarise
from jev_engine.evaluate.tables import Stamp, Table, as_json, as_markdown

STAMP = Stamp("ours.jsonl", "c0ffee", "h2", "0.1", 0, "jev-engine evaluate ours.jsonl --seed 0", "local")


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("corpus")
    records = [record(i, f"ours/p{i % 2}", ("claude-code", "codex")[i % 2], quoted=(20, 27 + i, 38)) for i in range(6)]
    path = write_corpus(folder / "ours.jsonl", records)
    return Results(replay_corpus(Plan(path), folder / "cache"), seed=0)


@pytest.fixture(scope="module")
def tables(results):
    return {table.key: table for table in summarise(results)}


def measured(name, *, freed, missed, predicted=0.0):
    values = dict.fromkeys(PASS_FIELDS, 0) | {"freed_chars": freed, "missed": missed, "predicted": predicted}
    return name, [values[field] for field in PASS_FIELDS]


def session_of(name, *policies):
    cut = {
        "segment": 0,
        "row": 9,
        "unseen": True,
        "chars": 1_000,
        "tokens": 250,
        "calls_left": 20,
        "ahead_tokens": 10_000,
        "growth_tokens": 100,
        "answer_tokens": 300,
        "age": [5, 4],
        "size": [500, 500],
        "kind": ["read", "read"],
        "needed": [1, 0],
        "refetched": [0, 0],
        "policies": dict(policies),
        "p": {"local": [0.5, 0.1], "rules": [0.5, 0.1], "asked": [None, 0.1]},
    }
    return {"session": name, "project": "p", "harness": "h", "cuts": [cut], "lookback": [], "latency": []}


def test_every_session_counts_once_however_many_cuts_it_has():
    boot = Bootstrap(["a", "a", "a", "b"], seed=0)

    assert boot.mean(np.array([0.0, 0.0, 0.0, 1.0])).value == 0.5


def test_an_interval_holds_its_mean_and_shrinks_with_more_sessions():
    values = np.array([0.0, 1.0] * 50)
    few = Bootstrap([str(i) for i in range(10)], seed=0).mean(values[:10])
    many = Bootstrap([str(i) for i in range(100)], seed=0).mean(values)

    assert few.low < few.value < few.high
    assert many.high - many.low < few.high - few.low


def test_the_same_seed_gives_the_same_interval():
    values = np.arange(7.0)
    names = list("abcdefg")

    assert Bootstrap(names, 1).mean(values) == Bootstrap(names, 1).mean(values)


def test_half_as_many_misses_are_fifty_per_cent_fewer():
    boot = Bootstrap(list("abcd"), seed=0)
    fewer = boot.fewer(np.ones(4), 2 * np.ones(4))

    assert fewer == Measure(0.5, 0.5, 0.5)


def test_numbers_are_shown_with_their_interval_and_nothing_is_minus_zero():
    assert str(Measure(0.434, 0.4, 0.4561)) == "43.4 [40.0, 45.6]"
    assert str(Measure(-0.00001, form=".2f")) == "0.00"
    assert str(Measure(float("nan"))) == "-"
    assert Measure(0.434, -0.4, 0.4561).interval() == "-40.0…45.6"


def test_misses_at_a_freed_share_mix_the_two_nearest_prices():
    sessions = [
        session_of(name, measured("worth 1", freed=600, missed=2), measured("worth 5", freed=200, missed=0))
        for name in "ab"
    ]
    results = Results(sessions, seed=0)

    assert results.at_freed(["worth 1", "worth 5"], 0.4).tolist() == pytest.approx([1.0, 1.0])
    assert results.at_freed(["worth 1", "worth 5"], 0.9) is None


def test_a_bill_is_what_is_saved_less_what_is_written_anew_and_missed():
    name, _ = measured("worth 5", freed=0, missed=0)
    values = {
        "freed_chars": 400,
        "freed_tokens": 100,
        "missed": 1,
        "suffix_tokens": 40,
        "refetch_tokens": 20,
        "changed": 1,
    }
    cost = [values.get(field, 0) for field in PASS_FIELDS]
    results = Results([session_of("a", (name, cost))], seed=0)
    bill = bill_of(results, name)

    assert bill.total[0] == pytest.approx(0.1 * 10_000 + 1.15 * 100)
    assert bill.saved[0] == pytest.approx(0.1 * 100 * 20)
    assert bill.rewritten[0] == pytest.approx(1.15 * 40)
    assert bill.per_call[0] == pytest.approx(0.1 * 150 + 5 * 300)
    assert bill.net(5)[0] == pytest.approx(bill.saved[0] - bill.rewritten[0] - 5 * bill.per_call[0] - bill.refetched[0])
    assert break_even_calls(results, name).tolist() == pytest.approx([1.15 * 40 / (0.1 * 100)])


def test_every_standard_table_is_there(tables):
    assert list(tables) == [
        "summary",
        "corpus",
        "policies",
        "matched-average",
        "matched-bytes",
        "judges",
        "predicted",
        "bill",
        "needed-by-age",
        "needed-by-size",
        "needed-by-kind",
        "by-harness",
        "by-project",
        "by-context",
        "latency",
    ]


def test_negative_results_are_rows_of_the_summary(tables):
    questions = " ".join(str(row[0]) for row in tables["summary"].rows)

    for part in (
        "“oldest first” against “random”",
        "300-character head",
        "2,000-character head",
        "superseded reads by path",
        "Harness codex",
        "lowest p first” against",
    ):
        assert part in questions


def test_every_policy_has_a_row_and_every_share_an_interval(tables):
    rows = tables["policies"].rows

    assert [row[0] for row in rows] == [policy.name for policy in POLICIES]
    assert all(isinstance(cell, Measure) for row in rows for cell in row[1:])
    assert all(row[1].low is not None for row in rows)


def test_the_oracle_frees_and_misses_nothing(tables):
    oracle = next(row for row in tables["policies"].rows if row[0] == "oracle (hindsight)")

    assert oracle[1].value > 0.3
    assert oracle[4].value == 0


def test_look_backs_are_called_a_property_of_the_corpus():
    sessions = [session_of("a", measured("worth 5", freed=0, missed=0))]
    back = {"real": True, "back": [1] * 5 + [0] * 25, "reads": [1, 0], "chars": 90}
    sessions[0]["lookback"] = [back, {**back, "real": False, "back": [0] * 30}]
    table = next(table for table in summarise(Results(sessions, 0)) if table.key == "look-back")

    assert "cannot be measured without a live agent" in table.about.replace("\n", " ")
    assert [str(row[3]) for row in table.rows] == ["100.0 [100.0, 100.0]", "0.0 [0.0, 0.0]"]


def test_a_report_over_few_policies_leaves_out_what_it_cannot_say(results):
    few = [
        {
            **session,
            "cuts": [{**cut, "policies": {"keep last 10": cut["policies"]["keep last 10"]}} for cut in session["cuts"]],
        }
        for session in results.sessions
    ]
    tables = {table.key for table in summarise(Results(few, 0))}

    assert "policies" in tables
    assert "matched-bytes" not in tables


def test_every_table_names_its_origin_in_markdown_and_json(tables):
    text = as_markdown(list(tables.values()), STAMP)
    data = as_json(list(tables.values()), STAMP)

    assert text.count(STAMP.line()) == len(tables)
    assert all(word in STAMP.line() for word in ("c0ffee", "h2", "0.1", "seed 0", "jev-engine evaluate"))
    assert data["stamp"]["corpus_hash"] == "c0ffee"


def test_json_keeps_numbers_and_what_is_not_finite_becomes_null():
    table = Table("t", "T", "", ("a", "b"), [["x", Measure(float("nan"))], ["y", Measure(0.5, 0.4, 0.6)]])
    rows = as_json([table], STAMP)["tables"]["t"]["rows"]

    assert rows == [["x", {"value": None, "low": None, "high": None}], ["y", {"value": 0.5, "low": 0.4, "high": 0.6}]]
