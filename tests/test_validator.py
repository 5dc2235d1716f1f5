"""The validator catches every corruption of a rebuilt history, and never cries wolf."""
# ruff: noqa: ARG001 - all corruptions take the same arguments, not each needs them

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from jev_engine.errors import RebuildError
from jev_engine.ledger import Ledger, LedgerEntry, assign_keys
from jev_engine.rebuild import Rebuilt, plan_changes, rebuild, validate
from jev_engine.testing import assistant, call, calls, history, result, user
from jev_engine.transcript import Transcript
from jev_engine_adapters.openai import adapter

HISTORIES = 70
Corruption = Callable[[random.Random, list[Any], "Case"], list[Any] | None]


class Case:
    """A history, what was decided about it, and the correct output."""

    def __init__(self, rng: random.Random) -> None:
        self.messages = make_history(rng)
        self.transcript: Transcript = adapter.read(self.messages)
        repeated = assign_keys(self.transcript, Ledger())
        decided = []
        for unit in self.transcript.calls:
            action = rng.choice(["keep", "truncate", "truncate", "remove"])
            if action != "keep":
                text = f"[left out {unit.label}]" if action == "truncate" else ""
                decided.append(LedgerEntry(unit.key, action, "jx-" + "0" * 16, text, 9))
        changes = plan_changes(self.transcript, Ledger.of(decided), adapter, repeated)
        self.right = rebuild(self.transcript, changes, adapter)

    @property
    def edited(self) -> list[int]:
        """Rows of the output that are edits."""
        rows = [self.right.index_map[row] for row in self.right.changes]
        return [row for row in rows if row is not None]

    @property
    def untouched(self) -> list[int]:
        """Rows of the output that are the input's own objects."""
        return [row for row in range(len(self.right.messages)) if row not in self.edited]


def make_history(rng: random.Random) -> list[Any]:
    rows: list[Any] = [user("Fix the parser.")]
    for turn in range(rng.randint(2, 7)):
        count = rng.choice([1, 1, 2, 3])
        said = rng.choice([None, None, f"Step {turn}."])
        rows.append(calls(*(("read", {"path": f"{turn}-{n}.py"}) for n in range(count)), text=said))
        for n in range(count):
            content: Any = f"text {turn} {n} " * rng.randint(1, 30)
            if rng.random() < 0.3:
                content = [{"type": "text", "text": content}, {"type": "image_url", "image_url": {"url": "data:"}}]
            rows.append(result(content, is_error=rng.random() < 0.2))
        if rng.random() < 0.4:
            rows.append(rng.choice([user, assistant])(f"And then {turn}."))
    return history(*rows, call("test"))


# --- one corruption each; None where the history offers no place for it -----------------------------------------------


def replaced(rows: list[Any], place: int, row: Any) -> list[Any]:
    return [*rows[:place], row, *rows[place + 1 :]]


def drop_a_row(rng: random.Random, rows: list[Any], case: Case) -> list[Any]:
    place = rng.randrange(len(rows))
    return rows[:place] + rows[place + 1 :]


def drop_the_last_row(rng: random.Random, rows: list[Any], case: Case) -> list[Any]:
    return rows[:-1]


def duplicate_a_row(rng: random.Random, rows: list[Any], case: Case) -> list[Any]:
    place = rng.randrange(len(rows))
    return [*rows[:place], rows[place], *rows[place:]]


def swap_two_rows(rng: random.Random, rows: list[Any], case: Case) -> list[Any]:
    place = rng.randrange(len(rows) - 1)
    return [*rows[:place], rows[place + 1], rows[place], *rows[place + 2 :]]


def add_a_row(rng: random.Random, rows: list[Any], case: Case) -> list[Any]:
    place = rng.randint(0, len(rows))
    return [
        *rows[:place],
        rng.choice([user("Go on."), {"role": "tool", "tool_call_id": "x", "content": ""}]),
        *rows[place:],
    ]


def equal_copy_of_an_untouched_row(rng: random.Random, rows: list[Any], case: Case) -> list[Any]:
    place = rng.choice(case.untouched)
    return replaced(rows, place, copy.deepcopy(rows[place]))


def equal_copy_of_a_part(rng: random.Random, rows: list[Any], case: Case) -> list[Any] | None:
    places = [place for place in case.edited if isinstance(rows[place].get("content"), list)]
    if not places:
        return None
    place = rng.choice(places)
    parts = [copy.deepcopy(part) for part in rows[place]["content"]]
    return replaced(rows, place, {**rows[place], "content": parts})


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Paths of all texts in a row."""
    if isinstance(value, dict):
        for name, item in value.items():
            yield from leaves(item, (*path, name))
    elif isinstance(value, list):
        for slot, item in enumerate(value):
            yield from leaves(item, (*path, slot))
    elif isinstance(value, str):
        yield path


def changed_at(value: Any, path: tuple[Any, ...], change: Callable[[Any], Any]) -> Any:
    """A copy of the row that differs at one place only; everything else is the same object."""
    if not path:
        return change(value)
    new = copy.copy(value)
    new[path[0]] = changed_at(value[path[0]], path[1:], change)
    return new


def change_a_character(rng: random.Random, text: str) -> str:
    place = rng.randrange(len(text)) if text else 0
    return text[:place] + "~" + text[place + 1 :]


def character_in_an_untouched_row(rng: random.Random, rows: list[Any], case: Case) -> list[Any]:
    place = rng.choice(case.untouched)
    path = rng.choice(list(leaves(rows[place])))
    return replaced(rows, place, changed_at(rows[place], path, lambda text: change_a_character(rng, text)))


def character_in_an_edited_row(rng: random.Random, rows: list[Any], case: Case) -> list[Any] | None:
    if not case.edited:
        return None
    place = rng.choice(case.edited)
    path = rng.choice(list(leaves(rows[place])))
    return replaced(rows, place, changed_at(rows[place], path, lambda text: change_a_character(rng, text)))


def field_lost_in_an_edited_row(rng: random.Random, rows: list[Any], case: Case) -> list[Any] | None:
    if not case.edited:
        return None
    place = rng.choice(case.edited)
    lost = rng.choice(list(rows[place]))
    return replaced(rows, place, {name: value for name, value in rows[place].items() if name != lost})


def field_added_to_an_edited_row(rng: random.Random, rows: list[Any], case: Case) -> list[Any] | None:
    if not case.edited:
        return None
    place = rng.choice(case.edited)
    return replaced(rows, place, {**rows[place], "note": "shortened"})


def fields_moved_in_an_edited_row(rng: random.Random, rows: list[Any], case: Case) -> list[Any] | None:
    if not case.edited:
        return None
    place = rng.choice(case.edited)
    return replaced(rows, place, dict(reversed(rows[place].items())))


def edit_undone(rng: random.Random, rows: list[Any], case: Case) -> list[Any] | None:
    edited = [row for row in case.right.changes if case.right.index_map[row] is not None]
    if not edited:
        return None
    row = rng.choice(edited)
    return replaced(rows, case.right.index_map[row] or 0, case.messages[row])


def marker_of_another_unit(rng: random.Random, rows: list[Any], case: Case) -> list[Any] | None:
    places = [place for place in case.edited if rows[place]["role"] == "tool"]
    if not places:
        return None
    place = rng.choice(places)
    wrong = adapter.read([rows[place]]).entries[0].text.replace("left out t", "left out t9")
    content = rows[place]["content"]
    new = (
        wrong if isinstance(content, str) else [{**part, "text": wrong} if "text" in part else part for part in content]
    )
    return replaced(rows, place, {**rows[place], "content": new})


def empty_tool_calls(rng: random.Random, rows: list[Any], case: Case) -> list[Any] | None:
    places = [place for place in case.edited if rows[place]["role"] == "assistant"]
    if not places:
        return None
    place = rng.choice(places)
    return replaced(rows, place, {**rows[place], "tool_calls": []})


def call_lost(rng: random.Random, rows: list[Any], case: Case) -> list[Any] | None:
    places = [place for place, row in enumerate(rows) if len(row.get("tool_calls") or []) > 1]
    if not places:
        return None
    place = rng.choice(places)
    made = rows[place]["tool_calls"]
    gone = rng.randrange(len(made))
    return replaced(rows, place, {**rows[place], "tool_calls": made[:gone] + made[gone + 1 :]})


def calls_swapped(rng: random.Random, rows: list[Any], case: Case) -> list[Any] | None:
    places = [place for place, row in enumerate(rows) if len(row.get("tool_calls") or []) > 1]
    if not places:
        return None
    place = rng.choice(places)
    return replaced(rows, place, {**rows[place], "tool_calls": rows[place]["tool_calls"][::-1]})


def result_without_its_call(rng: random.Random, rows: list[Any], case: Case) -> list[Any]:
    place = rng.choice([place for place, row in enumerate(rows) if row.get("tool_calls")])
    lone = {name: value for name, value in rows[place].items() if name != "tool_calls"}
    return replaced(rows, place, lone)


def call_without_its_result(rng: random.Random, rows: list[Any], case: Case) -> list[Any] | None:
    places = [place for place, row in enumerate(rows) if row["role"] == "tool"]
    if not places:
        return None
    place = rng.choice(places)
    return rows[:place] + rows[place + 1 :]


def removed_unit_comes_back(rng: random.Random, rows: list[Any], case: Case) -> list[Any] | None:
    gone = [row for row, place in enumerate(case.right.index_map) if place is None]
    if not gone:
        return None
    row = rng.choice(gone)
    after = sum(place is not None for place in case.right.index_map[:row])
    return [*rows[:after], case.messages[row], *rows[after:]]


def placeholder_instead_of_a_removed_row(rng: random.Random, rows: list[Any], case: Case) -> list[Any] | None:
    gone = [row for row, place in enumerate(case.right.index_map) if place is None]
    if not gone:
        return None
    after = sum(place is not None for place in case.right.index_map[: rng.choice(gone)])
    return [*rows[:after], assistant("(removed)"), *rows[after:]]


def row_of_another_kind(rng: random.Random, rows: list[Any], case: Case) -> list[Any]:
    return replaced(rows, rng.randrange(len(rows)), rng.choice([None, [], "text", {}]))


def everything_lost(rng: random.Random, rows: list[Any], case: Case) -> list[Any]:
    return []


CORRUPTIONS: list[Corruption] = [
    drop_a_row, drop_the_last_row, duplicate_a_row, swap_two_rows, add_a_row, equal_copy_of_an_untouched_row,
    equal_copy_of_a_part, character_in_an_untouched_row, character_in_an_edited_row, field_lost_in_an_edited_row,
    field_added_to_an_edited_row, fields_moved_in_an_edited_row, edit_undone, marker_of_another_unit, empty_tool_calls,
    call_lost, calls_swapped, result_without_its_call, call_without_its_result, removed_unit_comes_back,
    placeholder_instead_of_a_removed_row, row_of_another_kind, everything_lost,
]  # fmt: skip


def problem_of(case: Case, output: list[Any]) -> str | None:
    try:
        validate(case.transcript, Rebuilt(output, case.right.changes, case.right.index_map), adapter)
    except RebuildError as error:
        return str(error)
    return None


def test_every_injected_corruption_is_caught_and_no_right_output_is_refused() -> None:
    """At least a thousand corruptions over random histories with shortened and removed units."""
    rng = random.Random(7)  # noqa: S311  # the same histories each time
    caught: Counter[str] = Counter()
    missed: list[str] = []
    kinds: Counter[str] = Counter()
    for _ in range(HISTORIES):
        case = Case(rng)
        kinds.update("removed" if place is None else "kept" for place in case.right.index_map)
        assert problem_of(case, case.right.messages) is None
        for corrupt in CORRUPTIONS:
            broken = corrupt(rng, list(case.right.messages), case)
            if broken is None:
                continue
            if problem_of(case, broken) is None:
                missed.append(corrupt.__name__)
            else:
                caught[corrupt.__name__] += 1
    print("\n".join(f"{count:5} {name.replace('_', ' ')}" for name, count in caught.most_common()))  # noqa: T201  # the figures are the point
    print(f"{caught.total()} of {caught.total() + len(missed)} corruptions caught")  # noqa: T201  # the figure is the point

    assert missed == []
    assert caught.total() >= 1_000
    assert set(caught) == {corrupt.__name__ for corrupt in CORRUPTIONS}
    assert kinds["removed"] > 100


@pytest.mark.parametrize("text", [None, "Step."])
def test_a_message_may_go_only_where_nothing_of_it_stays(text: str | None) -> None:
    """An adapter that drops a row with text in it is caught, though the row is gone by the adapter's own word."""
    messages = history(user("Fix it."), call("read", text=text), result("x" * 99))
    transcript = adapter.read(messages)
    assign_keys(transcript, Ledger())
    removed = Ledger.of([LedgerEntry(transcript.calls[0].key, "remove", "jx-1", "", 99)])
    changes = plan_changes(transcript, removed, Careless(), [])
    rebuilt = rebuild(transcript, changes, Careless())

    if text is None:
        validate(transcript, rebuilt, Careless())
    else:
        with pytest.raises(RebuildError, match="something of it stays"):
            validate(transcript, rebuilt, Careless())


class Careless(type(adapter)):  # type: ignore[misc]  # the class of the shipped adapter
    """Drops every row that loses a call."""

    def edit(self, message: Any, change: Any) -> Any:
        return None if change.removed else super().edit(message, change)
