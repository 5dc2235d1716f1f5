"""A trail that a newer version wrote is read as far as this one knows it; nonsense is not."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jev_engine import __version__
from jev_engine.audit.chain import LINE_END, START, Head, parse, seal
from jev_engine.audit.records import read_trail
from jev_engine.events import is_newer, read_event


def rewritten(path: Path, change: Callable[[Any], None]) -> None:
    """Every event of a trail as another version would have written it."""
    heads: dict[str, Head] = {}
    made = []
    for raw in path.read_bytes().splitlines():
        line = parse(raw)
        assert line is not None
        event = json.loads(line.event)
        change(event)
        written = json.dumps(event).encode()
        is_first = line.chain not in heads
        start, heads[line.chain] = seal(line.chain, heads.get(line.chain, Head(0, START)), written, with_prev=is_first)
        made.append(start + written + LINE_END)
    path.write_bytes(b"".join(made))


def with_more(event: Any) -> None:
    event["mood"] = {"of": "the judge"}
    event["origin"] |= {"engine_version": "9.1.0", "region": "eu"}
    if "columns" in event:
        event["columns"]["mood"] = ["fair"] * len(event["columns"]["number"])
        event["rule"]["mood"] = 0.5


def test_what_only_a_newer_version_knows_is_left_out(trail: Path) -> None:
    """Fields of every event, of what is in it, and columns: the passes read the same."""
    before = read_trail(trail)
    rewritten(trail, with_more)
    after = read_trail(trail)

    assert (after.unreadable, after.newer) == (0, "9.1.0")
    assert before.newer is None
    for was, now in zip(before.passes.values(), after.passes.values(), strict=True):
        assert (now.outcome, now.units, now.rows) == (was.outcome, was.units, was.rows)


@pytest.mark.parametrize("version", [__version__, "0.0.1", "", "new"])
def test_more_from_this_version_or_an_older_one_is_made_up(trail: Path, version: str) -> None:
    """It never wrote that."""

    def change(event: Any) -> None:
        with_more(event)
        event["origin"]["engine_version"] = version

    lines = len(trail.read_bytes().splitlines())
    rewritten(trail, change)

    assert read_trail(trail).unreadable == lines


@pytest.mark.parametrize("wrong", [{"at": "soon"}, {"origin": 7}, {"kind": "of a newer one"}, {"sequence": None}])
def test_what_does_not_hold_is_unreadable_whatever_version_it_names(trail: Path, wrong: dict[str, Any]) -> None:
    """A newer version may say more, but not otherwise."""
    line = parse(trail.read_bytes().splitlines()[0])
    assert line is not None
    event = json.loads(line.event)
    event["origin"]["engine_version"] = "9.1.0"

    with pytest.raises(ValueError, match="not an event"):
        read_event(json.dumps({**event, **wrong, "mood": 1}))


@pytest.mark.parametrize("version", ["0.1.1", "0.2", "1", "0.10.0.dev1"])
def test_a_version_is_newer_by_its_numbers(version: str) -> None:
    """Of three at most."""
    assert is_newer(version)


@pytest.mark.parametrize("version", [__version__, "0.1.0.dev3", "0.1.0.9", "0.0.9", "0", ""])
def test_any_other_version_is_not(version: str) -> None:
    """Its own, an older one, or none."""
    assert not is_newer(version)
