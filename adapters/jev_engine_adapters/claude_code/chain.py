"""Which rows of a session file the model still sees.

A session file is a tree that only grows: abandoned branches, forked parallel results and everything that compactions
replaced stay in it. `live_rows` finds the rows of the conversation that is going on.

The rules, in order:

1. The leaf is the last user or assistant row that is not a sidechain row. In a subagent's own file, where every row is
   a sidechain row, those are the conversation.
2. From the leaf, `parentUuid` is followed up to a row without parent or to a compaction boundary, where the walk ends:
   `logicalParentUuid` is not followed, since the summary row below the boundary stands for all that came before it.
3. Where a parent is not in the file, the row before it in the file stands in: better to read too much than to lose
   the first half of a session to one missing line. The same holds where a link leaves the compaction it was written
   under towards a row that the compaction kept or to the call of a re-written result.
   Any other link that leaves a compaction is a rewind to before it: the link is followed, the compaction void.
4. Rows the boundary lists as preserved are seen, although they stand before it.
5. One response is one row per block and parallel results fork, so rows hanging off a live row are seen too if they
   share a live response's `message.id`, carry results, or are host rows below such a result.
6. Of two rows with one `uuid` (a resumed session copies its history) the last counts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["Live", "is_boundary", "live_rows", "response_id"]

_LINKED_TYPES = frozenset({"user", "assistant", "progress", "system", "attachment"})
_TALK_TYPES = frozenset({"user", "assistant"})


class Live:
    """The answer of `live_rows`, by row index."""

    __slots__ = ("boundary", "copied", "main", "rows")

    def __init__(self, main: set[int]) -> None:
        self.main = main
        """Rows that belong to the conversation or to a branch of it: no sidechains, no side rows."""
        self.rows: set[int] = set()
        """Rows the model still sees."""
        self.boundary = -1
        """The compaction in effect, -1 for none."""
        self.copied: set[int] = set()
        """Rows that a later row with the same uuid replaces."""


def live_rows(rows: Sequence[Any]) -> Live:
    """Find the rows the model still sees, in linear time and for any shape of links."""
    main = _main_rows(rows)
    live = Live(set(main))
    where: dict[str, int] = {}
    for i in main:
        uuid = rows[i].get("uuid")
        if uuid.__class__ is str:
            if uuid in where:
                live.copied.add(where[uuid])
            where[uuid] = i
    main = [i for i in main if i not in live.copied]
    leaf = next((i for i in reversed(main) if rows[i]["type"] in _TALK_TYPES), None)
    if leaf is None:
        return live
    _walk(rows, main, where, leaf, live)
    if live.boundary >= 0:
        live.rows |= _preserved_rows(rows[live.boundary], rows, where)
    _attach_forks(rows, main, where, live)
    return live


def is_boundary(row: Any) -> bool:
    """A full compaction happened here."""
    return bool(row.get("type") == "system" and row.get("subtype") == "compact_boundary")


def response_id(row: Any) -> str | None:
    """The id all rows of one model response share."""
    message = row.get("message")
    value = message.get("id") if message.__class__ is dict else None
    return value if value.__class__ is str and value else None


def _main_rows(rows: Sequence[Any]) -> list[int]:
    linked = [
        i
        for i, row in enumerate(rows)
        if row.__class__ is dict and (kind := row.get("type")).__class__ is str and kind in _LINKED_TYPES
    ]
    main = [i for i in linked if not rows[i].get("isSidechain")]
    return main if any(rows[i]["type"] in _TALK_TYPES for i in main) else linked


def _walk(rows: Sequence[Any], main: list[int], where: dict[str, int], leaf: int, live: Live) -> None:
    """Follow the links from the leaf upwards (rules 2 and 3)."""
    before: dict[int, tuple[int, int]] = {}
    kept: dict[int, tuple[set[int], range]] = {}
    previous = boundary = -1
    for i in main:
        before[i] = previous, boundary
        previous = i
        if is_boundary(rows[i]):
            boundary = i
            kept[i] = _kept_rows(rows[i], where)
    i = leaf
    while i >= 0 and i not in live.rows:
        live.rows.add(i)
        if is_boundary(rows[i]):
            live.boundary = i
            return
        previous, boundary = before[i]
        link = rows[i].get("parentUuid")
        if link is None and "parentUuid" in rows[i]:
            return
        parent = where.get(link, -1) if link.__class__ is str else -1
        if parent in (-1, i):
            parent = previous
        elif parent < boundary:
            listed, segment = kept[boundary]
            if parent in listed or parent in segment or _carries_results(rows[i]):
                parent = previous
        i = parent


def _kept_rows(boundary: Any, where: dict[str, int]) -> tuple[set[int], range]:
    """The rows a boundary lists as preserved, and the stretch of the file that holds its preserved segment."""
    metadata = boundary.get("compactMetadata")
    metadata = metadata if metadata.__class__ is dict else {}
    listed = metadata.get("preservedMessages")
    segment = metadata.get("preservedSegment")
    uuids: list[Any] = []
    if listed.__class__ is dict:
        for field in ("uuids", "allUuids"):
            values = listed.get(field)
            uuids += values if values.__class__ is list else []
    rows = {where[uuid] for uuid in uuids if uuid.__class__ is str and uuid in where}
    if segment.__class__ is not dict:
        return rows, range(0)
    head, tail = segment.get("headUuid"), segment.get("tailUuid")
    if head.__class__ is not str or tail.__class__ is not str or head not in where or tail not in where:
        return rows, range(0)
    return rows, range(where[head], where[tail] + 1)


def _preserved_rows(boundary: Any, rows: Sequence[Any], where: dict[str, int]) -> set[int]:
    """The rows from before the boundary that stayed in context (rule 4): those listed, else the segment's chain."""
    listed, segment = _kept_rows(boundary, where)
    if listed or not segment:
        return listed
    chain: set[int] = set()
    i = segment[-1]
    while i >= 0 and i not in chain:
        chain.add(i)
        if i == segment[0]:
            return chain
        link = rows[i].get("parentUuid")
        i = where.get(link, -1) if link.__class__ is str else -1
    return set()  # the segment is torn: the summary alone stands for it


def _attach_forks(rows: Sequence[Any], main: list[int], where: dict[str, int], live: Live) -> None:
    """Add what hangs beside the chain (rule 5); parents precede children, so one pass in file order is enough."""
    seen = live.rows
    responses = {response_id(rows[i]) for i in seen if rows[i]["type"] == "assistant"} - {None}
    forked: set[int] = set()
    for i in main:
        if i in seen:
            continue
        row = rows[i]
        link = row.get("parentUuid")
        parent = where.get(link, -1) if link.__class__ is str else -1
        if parent not in seen:
            continue
        if row["type"] == "assistant":
            belongs = response_id(row) in responses
        else:
            belongs = _carries_results(row) or (parent in forked and bool(row.get("isMeta")))
        if belongs:
            seen.add(i)
            forked.add(i)


def _carries_results(row: Any) -> bool:
    if row["type"] != "user":
        return False
    message = row.get("message")
    content = message.get("content") if message.__class__ is dict else None
    return content.__class__ is list and any(
        block.__class__ is dict and block.get("type") == "tool_result" for block in content
    )
