"""Search over what is out: terms, the window that is shown, and the answer an agent reads."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jev_engine.markers import find_reference
from jev_engine.recall.ranking import QUERY_TERMS, best, pick_terms
from jev_engine.recall.search import WINDOW_CHARS, search, search_tool_schema, window_of
from jev_engine.recall.terms import terms_of
from jev_engine.store import Original
from jev_engine.store.memory import MemoryStore
from jev_engine.store.sqlite import SqliteStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return MemoryStore() if request.param == "memory" else SqliteStore(tmp_path / "s" / "o.sqlite3")


async def save(store: Any, *texts: str, session: str = "s") -> list[str]:
    originals = [Original(store.reference(session, f"k{n}"), session, f"k{n}", "read", t) for n, t in enumerate(texts)]
    await store.save(originals)
    return [original.reference for original in originals]


# --- terms ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("parseRowFast", "parserowfast parse row fast"),
        ("HTTPServer2", "httpserver2 http server"),
        ("load_user_config", "load_user_config load user config"),
        ("src/app/main.py", "src/app/main.py main.py src app main py"),
        ("os.path.join", "os.path.join os path join"),
        ("The error, of course.", "error course"),
        ("x 12 1234", "1234"),
        ("12→return", "return"),
        ("été", "été"),
        ("世界和平", "世界 界和 和平"),
        ("\ud83d", ""),
        ("", ""),
    ],
)
def test_terms_are_names_whole_and_in_parts(text: str, wanted: str) -> None:
    """Lower case; grammar, single signs and numbers of lines are left out."""
    assert terms_of(text) == set(wanted.split())


@given(st.text(alphabet=st.characters(exclude_categories=()), max_size=300))
def test_terms_of_any_text_can_be_indexed(text: str) -> None:
    """Each is one word for the index: no blanks, no quotes, never empty, never half a character."""
    terms = terms_of(text)

    assert all(term and '"' not in term and len(term.split()) == 1 and len(term) <= 200 for term in terms)
    assert all(term.encode() for term in terms)


def test_what_is_too_long_to_be_searched_for_makes_no_terms() -> None:
    """Encoded data in one word."""
    assert terms_of("a1b2/" * 9_000) == set()


def test_a_long_query_is_looked_up_by_its_most_telling_terms() -> None:
    """Names first, always in the same order."""
    terms = {f"word{'x' * n}" for n in range(90)} | {"load_config", "main.py"}
    picked = pick_terms(terms)

    assert len(picked) == QUERY_TERMS
    assert picked[:2] == ["load_config", "main.py"]
    assert picked == pick_terms(sorted(terms, reverse=True))


def test_rare_terms_and_short_texts_count_more_and_the_newer_of_two_equals_wins() -> None:
    """BM25 with each term counted once."""
    lengths = {1: 10, 2: 10, 3: 500, 4: 10}
    postings = {"rare": [1], "common": [1, 2, 3, 4]}
    found = best(postings, 9, lambda numbers: {n: lengths[n] for n in numbers}, 4)

    assert [number for number, _ in found] == [1, 4, 2, 3]


# --- the window -------------------------------------------------------------------------------------------------------


def test_the_window_lies_around_the_lines_that_fit() -> None:
    """Wherever they are, and it holds as much as it may."""
    lines = [f"nothing of interest in line number {n} of this long file" for n in range(2_000)]
    for place in (0, 700, 1_999):
        text = "\n".join([*lines[:place], "def parse_row(header): pass", *lines[place:]])
        start, end = window_of(text, "parse_row header")

        assert "def parse_row(header): pass" in text[start:end]
        assert WINDOW_CHARS * 7 / 8 <= end - start <= WINDOW_CHARS


@pytest.mark.parametrize("text", ["x" * 50_000, "\n" * 50_000, "word " * 10_000, "a\n" + "y" * 9_000])
def test_the_window_of_odd_texts_is_within_them(text: str) -> None:
    """One line without end, nothing but line ends."""
    start, end = window_of(text, "word not there")

    assert 0 <= start < end <= len(text)
    assert end - start <= WINDOW_CHARS


# --- search -----------------------------------------------------------------------------------------------------------


async def test_three_originals_at_most_each_with_its_id_and_where_it_is(store: Any) -> None:
    """What the agent reads has the text as it is."""
    texts = [f"part {n}: parse_row is called with the header" for n in range(5)]
    long = "other lines\n" * 2_000 + "def parse_row(header, strict): call parse_row with the header\n"
    references = await save(store, *texts, long)
    found = await search(store, "s", "parse_row strict header")

    assert len(found.hits) == 3
    assert found.hits[0].reference == references[-1]
    assert found.hits[0].text == long[found.hits[0].offset :][: len(found.hits[0].text)]
    assert "def parse_row(header, strict)" in found.hits[0].text
    assert f"original {references[-1]} ({len(long):,} characters), characters " in found.shown
    assert "whole]" in found.shown
    assert "jev_expand" in found.shown
    assert find_reference((await search(store, "s", "part 4")).shown) is None


async def test_what_is_found_belongs_to_the_session(store: Any) -> None:
    """Also where another session has the same words, and more of them."""
    (mine,) = await save(store, "the parse_row function")
    await save(store, *["parse_row " * 9 + str(n) for n in range(9)], session="another")

    assert [hit.reference for hit in (await search(store, "s", "parse_row")).hits] == [mine]
    assert (await search(store, "a new session", "parse_row")).hits == []


async def test_equal_texts_are_one_hit(store: Any) -> None:
    """The newest of them."""
    references = await save(store, "parse_row first", "parse_row first", "parse_row second")
    found = [hit.reference for hit in (await search(store, "s", "parse_row first")).hits]

    assert found == references[1:]


async def test_messages_that_were_handed_over_are_found(store: Any) -> None:
    """Summarised text can be searched like results."""
    (reference,) = await store.save_messages("s", [{"role": "user", "content": "Never change the signature."}])

    assert [hit.reference for hit in (await search(store, "s", "signature change")).hits] == [reference]


async def test_where_nothing_fits_the_answer_says_so(store: Any) -> None:
    """Also of an empty store and an empty query."""
    empty = await search(store, "s", "parse")
    await save(store, "text")

    for found in (empty, await search(store, "s", "nothing_like_it"), await search(store, "s", "")):
        assert found.hits == []
        assert found.shown == "[jev-engine search: nothing that was left out fits this query.]"


async def test_a_common_word_of_a_long_session_does_not_hide_the_telling_one(store: Any) -> None:
    """More originals than are looked at for one term."""
    await save(store, "the needle_name is here", *[f"return value number{n}" for n in range(1_200)])
    found = await search(store, "s", "return value of needle_name")
    common = await search(store, "s", "return value")

    assert "needle_name" in found.hits[0].text
    assert len(common.hits) == 3


async def test_damaged_originals_are_left_out_and_a_store_that_is_none_is_an_answer(tmp_path: Path) -> None:
    """The agent's turn goes on."""
    store = SqliteStore(tmp_path / "s" / "o.sqlite3")
    _, good = await save(store, "parse_row one", "parse_row two")
    with closing(sqlite3.connect(store.path)) as db, db:
        db.execute("UPDATE blobs SET body = x'00' WHERE number = 1")
    db.close()
    (tmp_path / "bad.sqlite3").write_bytes(b"not a database" * 400)

    assert [hit.reference for hit in (await search(store, "s", "parse_row")).hits] == [good]
    assert "cannot be searched now" in (await search(SqliteStore(tmp_path / "bad.sqlite3"), "s", "x1")).shown


def test_the_tool_is_declared_in_both_forms() -> None:
    """As OpenAI and Anthropic take it."""
    assert search_tool_schema()["function"]["parameters"]["required"] == ["query"]
    assert search_tool_schema("anthropic", name="find")["name"] == "find"
