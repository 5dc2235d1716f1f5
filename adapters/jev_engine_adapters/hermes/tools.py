"""The tools by which an agent of Hermes gets back what was left out."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from jev_engine.bridge import run
from jev_engine.errors import StoreError
from jev_engine.recall.search import HITS, SEARCH_TOOL, WINDOW_CHARS, search, search_tool_schema
from jev_engine.store import OriginalStore
from jev_engine.store.expand import EXPAND_TOOL, PAGE_CHARS, Expanded, expand, expand_tool_schema
from jev_engine_adapters.hermes.state import HostSession

__all__ = ["answer", "error", "schemas"]

TOOL_SECONDS = 20.0
"""Longest a tool may take: a store that is locked by another process gives up sooner."""
# The host spills a result to a file beyond 15 % of the window, at 4 characters a token, and never below 8,000.
SPILL_CHARS_PER_TOKEN = 0.6
LEAST_SPILL_CHARS = 8_000
NOTE_CHARS = 500
"""What stands around a page or a hit."""
MOST_ANCESTORS = 20


def schemas() -> list[dict[str, Any]]:
    """Name, description and parameters of each tool; the host wraps them itself."""
    return [expand_tool_schema()["function"], search_tool_schema()["function"]]


def error(words: str) -> str:
    """A plain answer where there is none."""
    return json.dumps({"error": words})


def answer(session: HostSession, name: str, args: Any, session_db: Any = None, *, window: int = 0) -> str:
    """What a call of one of the tools brings; faults of store and arguments are answers too.

    `window` is that of the agent that asks, 0 for that of the one which asked last.
    """
    given: Mapping[str, Any] = args if isinstance(args, Mapping) else {}
    store = session.engine(offers_tools=True).store
    room = int(max(LEAST_SPILL_CHARS, SPILL_CHARS_PER_TOKEN * (window or session.budget.context_length))) - NOTE_CHARS
    try:
        if name == EXPAND_TOOL:
            reference = str(given.get("id") or "")
            offset, limit = _number(given.get("offset"), 0), _number(given.get("limit"), PAGE_CHARS)
            page = run(
                _expanded, store, session.name, reference, offset, min(limit, room), session_db,
                timeout_seconds=TOOL_SECONDS,
            )  # fmt: skip
            return page.shown
        if name == SEARCH_TOOL:
            hits = max(1, min(HITS, room // (WINDOW_CHARS + NOTE_CHARS)))
            query = str(given.get("query") or "")
            return run(search, store, session.name, query, limit=hits, timeout_seconds=TOOL_SECONDS).shown
    except TimeoutError:
        return error(f"{name} did not answer within {TOOL_SECONDS:.0f} seconds; nothing is lost, try again")
    return error(f"no tool goes by {name[:60]!r}; there are {EXPAND_TOOL} and {SEARCH_TOOL}")


async def _expanded(
    store: OriginalStore, session: str, reference: str, offset: int, limit: int, session_db: Any
) -> Expanded:
    """A page. A branch of a conversation holds markers of the one it came from, and may read what they stand for."""
    page = await expand(store, session, reference, offset, limit)
    if page.status != "unknown":
        return page
    for older in _ancestors(session_db, session):
        found = await expand(store, older, reference, offset, limit)
        if found.status != "unknown":
            with suppress(StoreError):
                await store.link_session(session, older)
            return found
    return page


def _ancestors(session_db: Any, session: str) -> Iterator[str]:
    """Sessions that the host's database names as those this one came from, nearest first."""
    seen = {session}
    for _ in range(MOST_ANCESTORS):
        try:
            row = session_db.get_session(session)
            parent = row.get("parent_session_id") if row else None
        except Exception:  # noqa: BLE001  # the host's own database, maybe of another version
            return
        if not isinstance(parent, str) or not parent or parent in seen:
            return
        seen.add(parent)
        session = parent
        yield parent


def _number(value: Any, default: int) -> int:
    """A whole number, however a model wrote it."""
    try:
        return default if isinstance(value, bool) or value is None else int(value)
    except (TypeError, ValueError, OverflowError):
        return default
