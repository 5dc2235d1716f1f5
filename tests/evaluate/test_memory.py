"""Project memory: two numbers that stay near (1, 0) until there is reason to move."""

from __future__ import annotations

import json
import random

import pytest

from jev_engine.evaluate.memory import ProjectMemory, recall


def drawn(seed, true_shift, sessions, rows=200):
    """Sessions of a project whose true log-odds are shifted against the judge's."""
    generator = random.Random(seed)  # noqa: S311  # a test needs repeatable numbers, not secret ones
    for _ in range(sessions):
        predicted = [generator.uniform(0.01, 0.4) for _ in range(rows)]
        yield predicted, [generator.random() < recall(p, (1.0, true_shift)) for p in predicted]


def fitted(seed, true_shift, sessions):
    memory = ProjectMemory()
    for predicted, needed in drawn(seed, true_shift, sessions):
        memory.add_session(predicted, needed)
    return memory.fit()


def test_nothing_seen_is_the_shipped_judge():
    """Cold start."""
    assert ProjectMemory().fit() == (1.0, 0.0)
    assert recall(0.2, (1.0, 0.0)) == pytest.approx(0.2)


@pytest.mark.parametrize("shift", [-1.5, 0.0, 1.0])
def test_many_sessions_find_the_shift_of_the_project(shift):
    """What the judge gets wrong in one project is learned."""
    memory = fitted(1, shift, sessions=60)

    assert recall(0.2, memory) == pytest.approx(recall(0.2, (1.0, shift)), abs=0.04)


def test_few_sessions_move_less_than_many():
    """Shrinkage towards the shipped judge."""
    moves = [abs(fitted(2, -1.5, sessions)[1]) + abs(fitted(2, -1.5, sessions)[0] - 1) for sessions in (1, 6, 60)]

    assert moves[0] < moves[2]
    assert moves[0] < 1.0


def test_a_session_of_many_rows_does_not_outvote_the_rest():
    """Its rows are cuts of one history."""
    memory = ProjectMemory()
    memory.add_session([0.2] * 10_000, [True] * 10_000)
    for predicted, needed in drawn(3, 0.0, 40):
        memory.add_session(predicted, needed)

    assert recall(0.2, memory.fit()) < 0.5


def test_extreme_sessions_give_finite_numbers():
    """Everything needed, nothing needed, certainty both ways."""
    for needed in (True, False):
        memory = ProjectMemory()
        memory.add_session([0.0, 1.0, 0.5] * 50, [needed] * 150)
        slope, intercept = memory.fit()

        assert 0 <= slope < 10
        assert -20 < intercept < 20


def test_it_is_stored_as_numbers_and_read_back():
    """JSON without any text of a session."""
    memory = ProjectMemory()
    for predicted, needed in drawn(4, -1.0, 5):
        memory.add_session(predicted, needed)
    back = ProjectMemory.from_dict(json.loads(json.dumps(memory.as_dict())))

    assert back.fit() == memory.fit()
    assert back.sessions == 5


def test_an_unknown_version_is_refused():
    with pytest.raises(ValueError, match="unknown version"):
        ProjectMemory.from_dict({"version": 99})


def test_an_empty_session_counts_for_nothing():
    memory = ProjectMemory()
    memory.add_session([], [])

    assert memory.sessions == 0


def test_sessions_can_be_added_in_any_order():
    """Incremental learning does not depend on when a session was read."""
    sessions = list(drawn(5, 0.5, 6))
    one, two = ProjectMemory(), ProjectMemory()
    for predicted, needed in sessions:
        one.add_session(predicted, needed)
    for predicted, needed in reversed(sessions):
        two.add_session(predicted, needed)

    assert one.fit() == pytest.approx(two.fit())
