"""The eight real Claude Code sessions beside the project: every unit found, every other row explained."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from jev_engine_adapters.claude_code import adapter

REAL_FILES = {
    "compactions-micro-and-full": {"before the last compaction"},
    "images": {"meta row"},
    "local-commands": {"before the last compaction"},
    "no-compaction": set(),
    "parallel-calls": {"before the last compaction", "meta row"},
    "three-compactions": {"before the last compaction"},
    "two-compactions-unanswered-calls": {"before the last compaction"},
    "unanswered-call": {"before the last compaction"},
}
"""Each real file, and the kinds of odd rows it has beside the host's own records."""

OWN_RECORDS = {"progress row", "side row", "system row"}


@pytest.fixture(scope="module", params=sorted(REAL_FILES))
def real(request, shared):
    """The name and the rows of one real session."""
    path = shared / "sessions" / "claude-code" / f"{request.param}.jsonl"
    if not path.is_file():
        pytest.skip(f"NOT CHECKED AGAINST A REAL SESSION: {path} is missing")
    return request.param, [json.loads(line) for line in path.read_text(encoding="utf-8").split("\n") if line]


def plain_units(rows):
    """Calls and the rows of their results, found without links: main rows below the last boundary."""
    start = max((i for i, row in enumerate(rows) if row.get("subtype") == "compact_boundary"), default=-1)
    calls, results = [], {}
    for i, row in enumerate(rows[start + 1 :], start + 1):
        content = row.get("message", {}).get("content") if row["type"] in {"user", "assistant"} else None
        for block in content if isinstance(content, list) and not row["isSidechain"] else ():
            if block["type"] == "tool_use":
                calls.append((i, block["id"]))
            elif block["type"] == "tool_result":
                results[block["tool_use_id"]] = i
    return [(i, call_id, results.get(call_id, -1)) for i, call_id in calls]


def test_real_sessions_are_read_whole(real):
    """Every unit below the last compaction is found, every other row is explained by a category."""
    name, rows = real
    transcript = adapter.read(rows)

    assert adapter.sniff(rows)
    assert [(c.row, c.call_id, c.result_row) for c in transcript.calls] == plain_units(rows)
    assert transcript.calls
    assert all(call.is_open or call.result_row > call.row for call in transcript.calls)
    assert not any(call.anomaly for call in transcript.calls)
    assert set(transcript.odd) - OWN_RECORDS == REAL_FILES[name]


def test_real_sessions_are_read_at_every_compaction(real):
    """As they stood before each boundary: more calls, some cleared by the host, some never answered."""
    name, rows = real
    cuts = [i for i, row in enumerate(rows) if row.get("subtype") == "compact_boundary"]
    earlier = [adapter.read(rows[:cut]) for cut in cuts]

    for cut, transcript in zip(cuts, earlier, strict=True):
        assert [(c.row, c.call_id, c.result_row) for c in transcript.calls] == plain_units(rows[:cut])
        assert {call.anomaly for call in transcript.calls} <= {None, "cleared by the host"}
    cleared = sum(call.anomaly is not None for transcript in earlier for call in transcript.calls)
    unanswered = sum(call.is_open for transcript in earlier for call in transcript.calls)
    assert (cleared > 0) == ("micro" in name)
    assert (unanswered > 0) == ("unanswered" in name)


def test_entries_of_real_sessions_stand_in_file_order(real):
    """Rows are read once, from first to last."""
    _, rows = real
    entries = adapter.read(rows).entries

    assert all(first.row <= second.row for first, second in pairwise(entries))
    assert all(entry.text or entry.reasoning or entry.calls or entry.images for entry in entries)
