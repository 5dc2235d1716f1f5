"""The tool by which an agent gets an original back: byte for byte, in pages, or a plain answer why not."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jev_engine.markers import find_reference
from jev_engine.store import Original
from jev_engine.store.expand import PAGE_CHARS, expand, expand_tool_schema, expanded_reference
from jev_engine.store.memory import MemoryStore
from jev_engine.store.sqlite import Limits, SqliteStore
from jev_engine.testing.conformance import HARD_TEXTS


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s" / "o.sqlite3")


async def saved(store: Any, text: str, session: str = "s") -> str:
    reference: str = store.reference(session, text[:9])
    await store.save([Original(reference, session, text[:9], "read", text)])
    return reference


async def pages(store: Any, reference: str, limit: int = PAGE_CHARS) -> list[Any]:
    found = [await expand(store, "s", reference, 0, limit)]
    while found[-1].next_offset is not None:
        found.append(await expand(store, "s", reference, found[-1].next_offset, limit))
    return found


@pytest.mark.parametrize("text", HARD_TEXTS, ids=range(len(HARD_TEXTS)))
async def test_all_pages_together_are_the_original(store: Any, text: str) -> None:
    """Half characters, NUL, line ends, three million characters."""
    found = await pages(store, await saved(store, text))

    assert "".join(page.text for page in found) == text
    assert all(page.shown.startswith(page.text) for page in found)
    assert all(len(page.shown) < PAGE_CHARS + 300 for page in found)


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=60), st.integers(1, 9))
async def test_pages_of_any_size_together_are_the_original(text: str, limit: int) -> None:
    """And no page ends within a surrogate pair, unless it has room for one sign only."""
    store = MemoryStore()
    found = await pages(store, await saved(store, text), limit)

    assert "".join(page.text for page in found) == text


async def test_a_page_says_where_it_is_and_how_to_go_on(store: Any) -> None:
    """In the middle, at the end, and where one page is all."""
    reference = await saved(store, "0123456789" * 10)

    first = await expand(store, "s", reference, 0, 40)
    last = await expand(store, "s", reference, 60, 40)
    whole = await expand(store, "s", reference)
    behind = await expand(store, "s", reference, 900)

    assert (first.text, first.next_offset) == ("0123456789" * 4, 40)
    assert first.shown.endswith(f"{reference}: characters 0 to 40 of 100; for the next page give offset 40]")
    assert last.shown.endswith("characters 60 to 100 of 100; this is the end]")
    assert whole.shown.endswith("all 100 characters, this is the whole original]")
    assert (behind.text, behind.next_offset) == ("", None)
    assert "nothing is behind them" in behind.shown


@pytest.mark.parametrize(("offset", "limit"), [(-5, 10), (0, 0), (0, -1), (0, 10**9)])
async def test_numbers_out_of_range_are_brought_into_it(store: Any, offset: int, limit: int) -> None:
    """A model's numbers are no fault of the session."""
    reference = await saved(store, "x" * 3 * PAGE_CHARS)
    page = await expand(store, "s", reference, offset, limit)

    assert page.offset == 0
    assert 1 <= len(page.text) <= PAGE_CHARS


async def test_unknown_expired_and_unreadable_are_three_plain_answers(tmp_path: Path) -> None:
    """G13: and a foreign id reads as unknown, whatever became of it."""
    now = [1_800_000_000.0]
    store = SqliteStore(tmp_path / "s" / "o.sqlite3", limits=Limits(max_age_days=30), clock=lambda: now[0])
    old = await saved(store, "old", "s")
    now[0] += 31 * 86_400
    damaged = await saved(store, "damaged", "t")
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE blobs SET body = x'00'")
    db.close()
    answers = {
        name: await expand(store, session, reference)
        for name, session, reference in (
            ("unknown", "s", "jx-0000000000000000"),
            ("foreign", "s", damaged),
            ("foreign, expired", "t", old),
            ("expired", "s", old),
            ("unreadable", "t", damaged),
        )
    }

    assert [each.status for each in answers.values()] == ["unknown", "unknown", "unknown", "expired", "unreadable"]
    assert answers["foreign"].shown.replace(damaged, "") == answers["foreign, expired"].shown.replace(old, "")
    assert len({each.shown.partition(": ")[2].partition(": ")[2] for each in answers.values()}) == 3
    assert all(find_reference(each.shown) is None for each in answers.values())
    assert all(expanded_reference(each.shown) is None for each in answers.values())
    assert all(each.text == "" and each.shown.startswith("[jev-engine expand: ") for each in answers.values())


async def test_a_store_that_cannot_be_read_is_an_answer_too(tmp_path: Path) -> None:
    """Not an error in the middle of an agent's turn, and not "unknown"."""
    (tmp_path / "o.sqlite3").write_bytes(b"not a database" * 400)
    page = await expand(SqliteStore(tmp_path / "o.sqlite3"), "s", "jx-0000000000000000")

    assert page.status == "failed"
    assert "not lost" in page.shown


@pytest.mark.parametrize("reference", ["\x1b[31m" * 99, "\ud800", "", "jx-" + "0" * 9_999])
async def test_an_id_a_model_made_up_is_answered_without_repeating_it(store: Any, reference: str) -> None:
    """No control characters, no half characters, no kilobytes of it."""
    page = await expand(store, "s", reference)

    assert page.status == "unknown"
    assert page.shown.isprintable()
    assert len(page.shown) < 300


async def test_an_expanded_result_is_recognised_and_stored_once(store: Any) -> None:
    """A33: hosts may put blanks or a closing tag behind it; equal content is one text, one original and one marker."""
    reference = await saved(store, "line of text\n" * 99)
    page = await expand(store, "s", reference, 0, 100)

    for shown in (page.shown, page.shown + "\n", f"<result>\n{page.shown}\n</result>"):
        assert expanded_reference(shown) == reference
    assert await saved(store, "line of text\n" * 99) == reference


async def test_text_that_only_looks_like_a_page_is_none(store: Any) -> None:
    """The note counts at the end only, and in one line."""
    reference = await saved(store, "text")
    page = await expand(store, "s", reference)
    note = page.shown.removeprefix("text")

    assert expanded_reference(note + "x" * 500) is None
    assert expanded_reference("") is None
    assert expanded_reference("text") is None
    assert expanded_reference(note.replace(reference, "jx-1")) is None
    assert expanded_reference(note.replace("all", "a\nll")) is None
    assert find_reference(page.shown) is None


def test_the_tool_is_declared_in_both_forms() -> None:
    """As OpenAI and Anthropic take it, under any name."""
    openai, anthropic = expand_tool_schema(), expand_tool_schema("anthropic", name="more")

    assert openai["type"] == "function"
    assert openai["function"]["parameters"]["required"] == ["id"]
    assert anthropic["name"] == "more"
    assert anthropic["input_schema"] == openai["function"]["parameters"]
    with pytest.raises(ValueError, match="none of"):
        expand_tool_schema("gemini")  # type: ignore[arg-type]
