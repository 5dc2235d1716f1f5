"""`/jev undo`: what is said to be back is back as it was, and what is not is said to be out."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
from hosts.hermes_process import BIG, process, started

from jev_engine.store.memory import MemoryStore

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}


def text(words: str) -> dict[str, str]:
    return {"type": "text", "text": words}


CONTENTS: dict[str, Callable[[int], Any]] = {
    "a text": lambda n: f"part {n}\n{BIG}",
    "one part": lambda n: [text(f"part {n}\n{BIG}")],
    "two parts": lambda n: [text(f"part {n}\n{BIG}"), text(f"more {n}\n{BIG}")],
    "parts around an image": lambda n: [text(f"part {n}\n{BIG}"), IMAGE, text(f"more {n}\n{BIG}")],
    "parts with fields of their own": lambda n: [{**text(f"{n}\n{BIG}"), "cache_control": {"x": n}}, text(f"{n}{BIG}")],
    "bare texts": lambda n: [f"part {n}\n{BIG}", f"more {n}\n{BIG}"],
    "an empty part": lambda n: [text(""), text(f"part {n}\n{BIG}"), text("")],
    "lines that look like joints": lambda n: [text(f"part {n}\n\n{BIG}\n"), text(f"\n{BIG}")],
}


def a_history(content: Callable[[int], Any], *, one_id: bool = False) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = [{"role": "user", "content": "Read.", "_db_persisted": True}]
    for number in range(9):
        call = "c" if one_id else f"c{number}"
        function = {"name": "read_file", "arguments": f'{{"path": "{number}.py"}}'}
        rows.append(
            {"role": "assistant", "content": "", "tool_calls": [{"id": call, "type": "function", "function": function}]}
        )
        rows.append({"role": "tool", "tool_call_id": call, "name": "read_file", "content": content(number)})
    return rows


def bare(rows: Any) -> list[Any]:
    return [{field: value for field, value in row.items() if field != "_db_persisted"} for row in rows]


def shortened(store: MemoryStore, given: list[dict[str, Any]]) -> tuple[Any, list[dict[str, Any]]]:
    made = started(process(store=store, handover="never"))
    shorter = made.compress(given, current_tokens=60_000, force=True)
    assert shorter is not given
    made.on_session_start("s1", boundary_reason="compression", old_session_id="s1")
    return made, shorter


def undone(made: Any, shorter: Any) -> list[dict[str, Any]]:
    made.session.wants_undo = True
    back: list[dict[str, Any]] = made.compress(shorter, current_tokens=30_000, force=True)
    return back


@pytest.mark.parametrize("kind", CONTENTS)
@pytest.mark.parametrize("one_id", [False, True])
def test_results_of_any_shape_are_back_as_they_were(kind: str, one_id: bool) -> None:  # noqa: FBT001
    """Also where a provider gives every call the same id: a row's text says whose it is."""
    given = a_history(CONTENTS[kind], one_id=one_id)
    kept = copy.deepcopy(given)
    made, shorter = shortened(MemoryStore(), given)
    out = len(made.session.last)

    assert bare(undone(made, shorter)) == bare(given)
    assert given == kept
    assert made.session.last_words.startswith(f"undone: {out} results are back whole")


@pytest.mark.parametrize("kind", CONTENTS)
def test_rows_the_host_has_added_and_changed_since_do_not_matter(kind: str) -> None:
    """A history from the host's database has other fields, and flattened rows: no record fits it as a whole."""
    given = a_history(CONTENTS[kind])
    made, shorter = shortened(MemoryStore(), given)
    shorter = [{**row, "timestamp": 1.5} for row in shorter]
    shorter[1] = {**shorter[1], "content": "I look."}
    shorter += [{"role": "user", "content": "[System: a todo list]"}, {"role": "assistant", "content": "Go on."}]
    back = undone(made, shorter)

    wanted = [{**row, "timestamp": 1.5} for row in bare(given)]
    wanted[1]["content"] = "I look."
    assert back[: len(given)] == wanted
    assert back[len(given) :] == shorter[len(given) :]


@pytest.mark.parametrize("kind", CONTENTS)
def test_without_its_row_a_result_is_whole_or_stays_out_and_is_told(kind: str) -> None:
    """The text alone does not say where its parts began."""

    class Forgetful(MemoryStore):
        async def find_passes(self, anchor: str, most_rows: int | None = None) -> list[Any]:
            return []

    given = a_history(CONTENTS[kind])
    made, shorter = shortened(Forgetful(), given)
    out = len(made.session.last)
    back = undone(made, shorter)
    same = sum(after["content"] == before["content"] for after, before in zip(back, given, strict=True))
    marked = sum("[jev-engine:" in str(row["content"]) for row in back)

    assert same + marked == len(given)
    back_whole, stay_out = (out, 0) if kind == "a text" else (0, out)
    assert marked == stay_out
    said = re.findall(r"(\d+) (?:results are back whole|cannot be put back)", made.session.last_words)
    assert [int(number) for number in said] == [back_whole, *([stay_out] if stay_out else [])]


def test_only_the_newest_pass_is_taken_back() -> None:
    """Its record is not the oldest one that knows the row."""
    store = MemoryStore()
    given = a_history(CONTENTS["two parts"])
    made, shorter = shortened(store, given)
    more = a_history(lambda n: [text(f"later {n}\n{BIG}"), text(f"and {n}\n{BIG}")], one_id=True)[1:]
    longer = made.compress([*shorter, *more], current_tokens=60_000, force=True)
    new = {each.reference for each in made.session.last}
    out = [n for n, row in enumerate(longer) if any(reference in str(row["content"]) for reference in new)]
    still = [n for n, row in enumerate(longer) if "[jev-engine:" in str(row["content"]) and n not in out]
    back = undone(made, longer)
    before = [*given, *bare(more)]

    assert out
    assert still
    assert all(back[n]["content"] == before[n]["content"] for n in out)
    assert all(back[n]["content"] == longer[n]["content"] for n in still)
