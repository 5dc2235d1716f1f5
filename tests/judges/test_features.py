"""Features: causal, incremental, bounded, finite."""

from __future__ import annotations

import json
import math

import pytest

from jev_engine.evaluate.corpus import cuts_of, read_messages, read_sessions
from jev_engine.judges.features import FEATURES, FeatureCache, tabulate

AGE, EXCLUSIVE, UNUSED = FEATURES.index("age"), FEATURES.index("exclusive"), FEATURES.index("unused")


def read(name, path, result, **more):
    """A call and its result, as two messages."""
    function = {"name": more.pop("tool", "read"), "arguments": json.dumps({"file_path": path, **more})}
    return [
        {"role": "assistant", "content": "", "tool_calls": [{"id": name, "function": function}]},
        {"role": "tool", "tool_call_id": name, "content": result},
    ]


def session(count=12):
    """A small history: reads, an edit of each third file, some words."""
    messages = [{"role": "user", "content": "fix load_config in src/file_1.py"}]
    for i in range(count):
        body = "\n".join(f"def handler_{i}_{j}(request, limit): return {j}" for j in range(20))
        messages += read(f"r{i}", f"src/file_{i}.py", body)
        if i % 3 == 0:
            new = f"handler_{i}_1 handler_{i}_2"
            messages += read(f"e{i}", f"src/file_{i}.py", "done", tool="edit", new_string=new)
            messages.append({"role": "assistant", "content": f"Changed handler_{i}_3 too.", "reasoning": "fine"})
    return messages


def table(messages, cache=None):
    return tabulate(read_messages(messages), cache or FeatureCache())


def column(name, rows):
    place = FEATURES.index(name)
    return [row[place] for row in rows]


def test_there_is_one_number_per_name():
    """Names are unique and every row has all of them."""
    rows = table(session()).rows

    assert len(set(FEATURES)) == len(FEATURES)
    assert {len(row) for row in rows} == {len(FEATURES)}


def test_ages_count_results_back_from_the_newest():
    assert column("age", table(session(3)).rows) == [4, 3, 2, 1]


def test_open_calls_have_no_row():
    """A call without a result is not judged, but its arguments are read."""
    messages = session(3)

    assert len(table(messages[:-1]).rows) == 3


def test_what_only_a_result_holds_is_exclusive_until_the_agent_writes_it():
    """An atom leaves the count when a message that stays holds it."""
    first = [{"role": "user", "content": "go"}, *read("a", "x.py", "alpha_one beta_two")]
    later = [*first, {"role": "assistant", "content": "alpha_one"}]

    assert table(first).rows[0][EXCLUSIVE] == pytest.approx(math.log1p(2))
    assert table(later).rows[0][EXCLUSIVE] == pytest.approx(math.log1p(1))
    assert table(later).rows[0][UNUSED] == pytest.approx(math.log1p(1))


def test_the_latest_holder_has_the_atom():
    messages = [*read("a", "x.py", "alpha_one"), *read("b", "y.py", "alpha_one")]

    assert [row[EXCLUSIVE] for row in table(messages).rows] == [0.0, pytest.approx(math.log1p(1))]


def test_a_repeated_result_is_superseded_and_its_copy_is_repeated():
    body = "\n".join(f"the line with the number word{i}x in it" for i in range(9))
    rows = table([*read("a", "x.py", body), *read("b", "x.py", body)]).rows

    assert column("superseded", rows) == [1.0, 0.0]
    assert column("repeated", rows) == [0.0, 1.0]


def test_later_touches_of_a_file_are_seen():
    messages = [*read("a", "x.py", "one"), *read("b", "x.py", "two"), *read("c", "x.py", "ok", tool="edit")]
    rows = table(messages).rows

    assert column("later_reads", rows) == [1, 0, 0]
    assert column("later_edits", rows) == [1, 1, 0]
    assert column("earlier_touches", rows) == [0, 1, 2]
    assert column("read_unedited", rows) == [False, False, False]


def test_a_failure_that_succeeded_later_is_resolved():
    bad, good = "error: it broke", "all good"
    messages = [
        *read("a", "", bad, tool="Bash", command="python run.py"),
        *read("b", "", good, tool="Bash", command="python run.py"),
    ]
    rows = table(messages).rows

    assert column("failed", rows) == [True, False]
    assert column("resolved", rows) == [True, False]


def test_features_at_a_cut_equal_those_of_the_truncated_history():
    """Nothing of the future is read: what follows the cut is simply not there."""
    messages = session()
    cache = FeatureCache()
    for row in range(5, len(messages)):
        tabulate(read_messages(messages[:row]), cache)
    cut = 17

    assert tabulate(read_messages(messages[:cut]), cache).rows == table(messages[:cut]).rows


def test_incremental_equals_from_scratch():
    """A pass over a grown history with a warm cache gives what a cold one gives."""
    messages = session()
    cache = FeatureCache()
    table(messages[:9], cache)

    assert table(messages, cache).rows == table(messages).rows


def test_the_cache_is_bounded():
    """Old texts are forgotten; the answers stay the same."""
    cache = FeatureCache(limit_chars=2_000)
    expected = table(session(40)).rows
    for count in (10, 20, 30):
        table(session(count), cache)

    assert table(session(40), cache).rows == expected
    assert len(cache) < 60


def test_a_warm_cache_does_no_work_on_texts():
    cache = FeatureCache()
    table(session(), cache)
    before = len(cache)
    table(json.loads(json.dumps(session())), cache)

    assert len(cache) == before


def test_an_empty_history_has_no_rows():
    assert table([]).rows == []
    assert table([{"role": "user", "content": "hi"}]).rows == []


@pytest.mark.parametrize(
    "text",
    ["", ".-" * 8_000, "\n" * 20_000, "x" * 1_000_000, "\ud800", "\x00\x1b[31m", "{" * 5_000, "数据" * 4_000],
)
def test_hostile_texts_give_finite_numbers(text):
    """As result, as argument, as tool name and as message."""
    function = {"name": text[:300], "arguments": text}
    messages = [
        {"role": "user", "content": text},
        {"role": "assistant", "content": text, "tool_calls": [{"id": "a", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": text},
        *read("b", text[:300], text),
    ]

    rows = table(messages).rows

    assert len(rows) == 2
    assert all(math.isfinite(value) for row in rows for value in row)


def test_deeply_nested_arguments_are_no_trouble():
    function = {"name": "x", "arguments": "[" * 100_000}
    messages = [
        {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "function": function}]},
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
    ]

    assert len(table(messages).rows) == 1


def test_real_sessions_are_read_causally(shared):
    """On real histories too: incremental over growing cuts equals from scratch at each."""
    checked = 0
    for number, each in enumerate(read_sessions(shared / "corpus" / "trajectories.jsonl.gz")):
        if number % 60:
            continue
        for segment in each.segments():
            cache = FeatureCache()
            for row in cuts_of(segment)[:6]:
                warm = tabulate(segment.before(row), cache).rows
                assert warm == tabulate(segment.before(row), FeatureCache()).rows
                checked += 1

    assert checked >= 10
