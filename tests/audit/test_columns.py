"""Keyed digests: the same for the same text, one at a time or many; and the columns of decisions they stand in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jev_engine.answers import Probability
from jev_engine.audit.digests import Keyed
from jev_engine.audit.telling import columns_of
from jev_engine.decisions import Decision
from jev_engine.testing import call, result, transcript_of, user

# Lone surrogates too: hosts hand over whatever a tool wrote.
texts = st.text(st.characters(), max_size=300)


@given(st.lists(st.none() | texts, max_size=8))
def test_many_at_once_are_those_of_each(given_texts: list[str | None]) -> None:
    keyed = Keyed(b"k" * 32)

    assert keyed.digests(given_texts) == [None if text is None else keyed.digest(text) for text in given_texts]


@given(texts, texts)
def test_equal_digests_mean_equal_texts(one: str, other: str) -> None:
    keyed = Keyed(b"k" * 32)

    assert (keyed.digest(one) == keyed.digest(other)) == (one == other)


@given(texts)
def test_another_key_gives_another_digest(text: str) -> None:
    assert Keyed(b"k" * 32).digest(text) != Keyed(b"l" * 32).digest(text)


@pytest.mark.parametrize("answered", [(), (0,), (1,), (0, 1)], ids=["nobody", "first", "second", "both"])
def test_a_column_is_written_where_any_unit_has_a_value(answered: tuple[int, ...]) -> None:
    transcript = transcript_of(user("Go."), call("a"), result("x"), call("b"), result("y"))
    decisions = [
        Decision(each, "keep", "why", Probability(0.5, 0.25, "judge", None) if n in answered else None)
        for n, each in enumerate(transcript.calls)
    ]

    columns = columns_of(decisions, {}, Keyed(b"k" * 32))

    expected = [0.25 if n in answered else None for n in range(2)]
    assert columns.get("p_result", (None, None)) == tuple(expected)
    assert "raw_result" not in columns
    assert columns["number"] == [1, 2]
