"""Look-backs: calls that bring back what an earlier result held.

After the real compactions of a corpus they are compared with pseudo-boundaries where nothing was compacted, since
agents
read again anyway. A property of the corpus: what our own passes would cause cannot be measured without a live agent.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from jev_engine.evaluate.corpus import Session, read_messages, units_of
from jev_engine.evaluate.hindsight import COPY_HOLDERS, REFETCH_CHARS, REFETCH_SHARE, copy_lines
from jev_engine.tools import describe_call
from jev_engine.transcript import ToolCall

__all__ = ["AFTER_CALLS", "boundaries_of"]

AFTER_CALLS = 30
"""Calls after a boundary that are looked at: by then the share is back at that of the control."""
READS = 10
"""So many first reads after a boundary are compared by path with the reads before it."""
CONTROL_EVERY = 50
"""A pseudo-boundary stands after every so many results of a segment: a real one has hundreds before it."""
HELD_LEAST = 12
"""Results before a boundary, real or not, so that there is something to come back to [corpus `SEGMENT_RESULTS`]."""


def boundaries_of(session: Session) -> list[dict[str, Any]]:
    """Every real boundary and every pseudo-boundary of a session, with what happened in the calls after it."""
    edges = [i for i, message in enumerate(session.messages) if message.get("compact_boundary")]
    starts = [0, *[edge + 1 for edge in edges]]
    ends = [*edges, len(session.messages)]
    parts = [units_of(read_messages(session.messages[a:b])) for a, b in zip(starts, ends, strict=True)]
    found = []
    for before, after in pairwise(parts):
        if len(before) >= HELD_LEAST and after:
            found.append(_after(before, after[:AFTER_CALLS], is_real=True))
    for units in parts:
        cuts = range(CONTROL_EVERY, len(units) - AFTER_CALLS + 1, CONTROL_EVERY)
        found += [_after(units[:cut], units[cut : cut + AFTER_CALLS], is_real=False) for cut in cuts]
    return found


def _after(before: Sequence[ToolCall], after: Sequence[ToolCall], *, is_real: bool) -> dict[str, Any]:
    back = _brings_back(before, after)
    infos = [describe_call(call.tool, call.arguments) for call in before]
    known = {info.path for info in infos if info.kind == "read" and info.path}
    later = [describe_call(call.tool, call.arguments) for call in after]
    reads = [info.path in known for info in later if info.kind == "read" and info.path][:READS]
    chars = sum(len(call.result or "") for call, is_back in zip(after, back, strict=True) if is_back)
    return {
        "real": is_real,
        "back": [int(each) for each in back],
        "reads": [int(each) for each in reads],
        "chars": chars,
    }


def _brings_back(before: Sequence[ToolCall], after: Sequence[ToolCall]) -> list[bool]:
    """For each later call, whether one earlier result holds most of what it brought."""
    holders: dict[bytes, list[int]] = defaultdict(list)
    for unit, call in enumerate(before):
        for line in copy_lines(call.result or ""):
            holders[line].append(unit)
    found = []
    for call in after:
        lines = copy_lines(call.result or "")
        total = sum(lines.values())
        shared: Counter[int] = Counter()
        for line, chars in lines.items():
            of = holders.get(line, ())
            if 0 < len(of) <= COPY_HOLDERS:
                shared.update(dict.fromkeys(of, chars))
        most = max(shared.values(), default=0)
        found.append(total >= REFETCH_CHARS and most >= REFETCH_SHARE * total)
    return found
