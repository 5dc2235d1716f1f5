"""Searching what is out: up to three originals, each shown by the part that fits best.

Shown are 8,000 characters at most: half of the originals agents need are shorter than that, and such a window at the
best chunk meets 82 % of needs where the original is right (555 needs over 697 cuts).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, Literal, NamedTuple

from jev_engine.errors import OriginalUnreadable, StoreError
from jev_engine.recall.ranking import pick_terms
from jev_engine.recall.terms import terms_of
from jev_engine.store import OriginalStore
from jev_engine.store.expand import EXPAND_TOOL, tool_schema
from jev_engine.store.prompt import prompt

__all__ = ["HITS", "SEARCH_TOOL", "WINDOW_CHARS", "Found", "Hit", "search", "search_tool_schema", "window_of"]

SEARCH_TOOL = "jev_search"
HITS = 3
"""Originals of one answer: three hold 78 % of what agents need, five 87 % at 40,000 characters
(555 needs over 697 cuts of public sessions)."""
WINDOW_CHARS = 8_000
"""Characters shown of an original: around its best chunk they meet 82 % of needs, 4,000 meet 68 % [same needs]."""
CHUNK_LINES = 40
"""Lines of a chunk: any one such chunk would hold all needed lines of 77 % of originals [same needs]."""
STEP_LINES = 20
"""Chunks overlap by half, so that no place lies at the edge of every chunk it is in."""
NOTE_OPEN = "[jev-engine search: "
"""Not how a marker begins: what is found must not be taken for one."""
READ_CHARS = 2_000_000
"""Characters of one original that are looked through for its best chunk, a second of work at most."""

DESCRIPTION = (
    "Search the tool results that were left out of this conversation to save room. "
    "Answers with the best passages and the id of each original, which can be read whole by its id."
)
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "query": {
            "type": "string",
            "description": "What to find: names, paths, words of the text. More of them find better.",
        }
    },
    "required": ["query"],
    "additionalProperties": False,
}


class Hit(NamedTuple):
    """An original that fits, and its best part."""

    reference: str
    tool: str
    text: str
    """Characters of the original from `offset` on, as they are."""
    offset: int
    total_chars: int
    score: float


class Found(NamedTuple):
    """What a search brought."""

    hits: list[Hit]
    note: str
    """How it was searched, where that is unusual; empty otherwise."""
    shown: str
    """What the agent reads."""


def search_tool_schema(form: Literal["openai", "anthropic"] = "openai", *, name: str = SEARCH_TOOL) -> dict[str, Any]:
    """The tool as a provider wants it declared; raises ValueError for another form."""
    return tool_schema(form, name, DESCRIPTION, PARAMETERS)


async def search(
    store: OriginalStore, session: str, query: str, *, limit: int = HITS, expand_tool: str | None = EXPAND_TOOL
) -> Found:
    """The originals of a session that fit best, at most `limit`, best first.

    A store that cannot be read is an answer too; an original that cannot be read is left out.
    """
    try:
        store = prompt(store)
        ranking = await store.rank(session, query, limit)
        hits = []
        for match in ranking.matches:
            try:
                text = (await store.read(match.reference, session=session)).text
            except (OriginalUnreadable, LookupError):
                continue
            offset, end = window_of(text, query)
            hits.append(Hit(match.reference, match.tool, text[offset:end], offset, len(text), match.score))
    except StoreError as error:
        return Found([], "", f"{NOTE_OPEN}the store cannot be searched now: {error}]")
    return Found(hits, ranking.note, _shown(hits, ranking.note, expand_tool))


def window_of(text: str, query: str, most: int = WINDOW_CHARS) -> tuple[int, int]:
    """Start and end of the part of a text that fits a query best: its best chunk of lines in the middle."""
    if len(text) <= most:
        return 0, len(text)
    read = text[:READ_CHARS]
    lines = read.split("\n")
    starts = [0, *accumulate([len(line) + 1 for line in lines])]
    wanted = set(pick_terms(terms_of(query)))
    places = range(0, len(lines), STEP_LINES)
    chunks = [terms_of("\n".join(lines[at : at + CHUNK_LINES])) & wanted for at in places]
    held = {term: sum(term in chunk for chunk in chunks) for term in wanted}
    scores = [sum(math.log(1 + len(chunks) / held[term]) for term in chunk) for chunk in chunks]
    best = places[max(range(len(chunks)), key=lambda place: (scores[place], -place))]
    first, last = starts[best], min(len(read), starts[min(best + CHUNK_LINES, len(lines))])
    return _around(text, first, last, starts, most)


def _around(text: str, first: int, last: int, starts: Sequence[int], most: int) -> tuple[int, int]:
    """A window with a chunk in its middle, beginning at a line where that loses nothing of the chunk."""
    start = max(0, min((first + last - most) // 2, len(text) - most)) if last - first < most else first
    line = starts[bisect_right(starts, start) - 1]
    if start != line and start - line < most // 8 and last <= line + most:
        start = line
    return start, min(len(text), start + most)


def _shown(hits: Sequence[Hit], note: str, expand_tool: str | None) -> str:
    if not hits:
        return f"{NOTE_OPEN}nothing that was left out fits this query.{' Note: ' + note + '.' if note else ''}]"
    how = f"; call {expand_tool} with this id for the rest" if expand_tool else ""
    parts = []
    for place, hit in enumerate(hits, 1):
        end = hit.offset + len(hit.text)
        whole = len(hit.text) == hit.total_chars
        where = "whole" if whole else f"characters {hit.offset:,} to {end:,}{how}"
        head = f"hit {place} of {len(hits)}, original {hit.reference} ({hit.total_chars:,} characters), {where}"
        parts.append(f"{NOTE_OPEN}{head}]\n{hit.text}")
    return "\n\n".join(parts) + (f"\n\n{NOTE_OPEN}{note}]" if note else "")
