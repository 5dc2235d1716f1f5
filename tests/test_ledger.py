"""The ledger: identity of units, and decisions in force."""

from __future__ import annotations

from typing import Any

import pytest

from jev_engine.errors import TranscriptError
from jev_engine.ledger import KeyCache, Ledger, LedgerEntry, assign_keys
from jev_engine.testing import call, result, transcript_of, user


def keys_of(*rows: Any, ledger: Ledger | None = None, cache: KeyCache | None = None) -> list[str]:
    transcript = transcript_of(user("Go."), *rows)
    assign_keys(transcript, Ledger() if ledger is None else ledger, cache)
    return [unit.key for unit in transcript.calls]


def entry(key: str, action: str = "truncate", text: str = "[left out]") -> LedgerEntry:
    return LedgerEntry(key, action, "jx-1", text, 900)


def test_a_key_is_made_of_content_and_occurrence() -> None:
    """The third of three equal units has the same digest and number two."""
    same = [call("a", call_id="k"), result("x", call_id="k")]
    first, second, third, other = keys_of(*same, *same, *same, call("a", call_id="k"), result("y", call_id="k"))

    assert second == f"{first}.1"
    assert third == f"{first}.2"
    assert other.partition(".")[0] != first


@pytest.mark.parametrize(
    "other",
    [
        [call("b", call_id="k"), result("x", call_id="k")],
        [call("a", call_id="l"), result("x", call_id="l")],
        [call("a", call_id="k", n=1), result("x", call_id="k")],
        [call("a", call_id="k"), result("x ", call_id="k")],
        [call("a", call_id="k")],
    ],
    ids=["tool", "id", "arguments", "result", "open"],
)
def test_everything_about_a_unit_is_in_its_key(other: list[Any]) -> None:
    """Tool, id, arguments and result."""
    assert keys_of(call("a", call_id="k"), result("x", call_id="k")) != keys_of(*other)


def test_a_marker_has_the_key_of_what_it_stands_for() -> None:
    """So that occurrences are counted alike before and after a pass."""
    rows = [call("a", call_id="k"), result("x", call_id="k"), call("a", call_id="k"), result("x", call_id="k")]
    first, second = keys_of(*rows)
    rows[1] = result("[left out]", call_id="k")

    assert keys_of(*rows, ledger=Ledger.of([entry(first)])) == [first, second]


def test_a_cache_changes_no_key() -> None:
    """Half characters included."""
    rows = [call("a", x="\ud83d"), result("\ud83d"), call("a"), result("x")]
    cache = KeyCache()

    assert keys_of(*rows, cache=cache) == keys_of(*rows, cache=cache) == keys_of(*rows)


def test_equal_units_are_reported_as_repeated() -> None:
    """Such units are shortened at most."""
    same = [call("a", call_id="k"), result("x", call_id="k")]
    transcript = transcript_of(*same, *same, call("b"), result("y"))
    repeated = assign_keys(transcript, Ledger())

    assert repeated == {transcript.calls[0].key}


def test_a_removal_is_stronger_than_a_shortening() -> None:
    """A ledger only grows."""
    ledger = Ledger.of([entry("k", "remove", ""), entry("k")])

    assert [each.action for each in ledger] == ["remove"]
    assert len(ledger) == 1
    assert "k" in ledger


def test_adding_makes_a_new_ledger() -> None:
    """The old one stays as it was."""
    old = Ledger.of([entry("k")])
    new = old.with_entries([entry("l")])

    assert (len(old), len(new)) == (1, 2)
    assert hash(new) == hash(Ledger.of([entry("l"), entry("k")]))


@pytest.mark.parametrize(
    "data",
    [None, [], {}, {"version": 99, "entries": []}, {"version": 1, "entries": [["k"]]}, {"version": 1, "entries": 7},
     {"version": 1, "entries": [["k", "explode", "jx-1", "", 9]]}, {"version": 1}],
)  # fmt: skip
def test_what_is_no_ledger_is_refused(data: Any) -> None:
    """With an error of ours, never a KeyError."""
    with pytest.raises(TranscriptError):
        Ledger.from_json(data)
