"""Markers: what is left in place of a result."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from strategies import bodies, tools

from jev_engine.config import make_config
from jev_engine.markers import find_reference, shorten
from jev_engine.testing import call, result, transcript_of

REFERENCE = "jx-0123456789abcdef"


def shortened(text: str, tool: str = "read", **settings: Any) -> str | None:
    unit = transcript_of(call(tool), result(text)).calls[0]
    return shorten(unit, REFERENCE, make_config(**settings))


@given(bodies(), tools)
def test_a_marker_saves_room_and_leads_back(text: str, tool: str) -> None:
    """Whatever the text, under every profile: shorter by the bar, with a reference that is found again."""
    for profile, least in (("balanced", 120), ("reference", 1), ("hermes-classic", 1)):
        marker = shortened(text, tool, profile=profile)
        if marker is not None:
            assert len(text) - len(marker) >= least
            assert find_reference(marker) == REFERENCE


def test_a_marker_says_what_how_much_and_that_the_original_is_intact() -> None:
    """So that an agent does not take it for damage."""
    marker = shortened("x" * 9_000, "mcp__files__read")

    assert marker is not None
    for part in ("mcp__files__read", "9,000 characters", "intact", REFERENCE):
        assert part in marker


def test_the_tool_to_expand_is_named_only_where_it_is_offered() -> None:
    """Otherwise the user is the way back."""
    assert "expand_original" in str(shortened("x" * 900, expand_tool="expand_original"))
    assert "expand" not in str(shortened("x" * 900))


OUTCOMES = [
    "exit code 1",
    "Error: no such table",
    "FAILED tests/test_a.py",
    "===== 3 failed in 2 s =====",
    "BUILD FAILED",
]


@pytest.mark.parametrize("line", OUTCOMES)
@pytest.mark.parametrize("place", ["start", "middle", "end"])
def test_lines_that_state_the_outcome_stay_wherever_they_are(line: str, place: str) -> None:
    """G10: a cut keeps them."""
    filler = "ordinary output\n" * 100
    text = {"start": f"{line}\n{filler}", "middle": f"{filler}{line}\n{filler}", "end": f"{filler}{line}"}[place]

    assert line in str(shortened(text))


def test_outcome_lines_are_limited_to_their_characters() -> None:
    """The last ones are the ones that count."""
    text = "".join(f"Error: number {n} {'x' * 60}\n" for n in range(99))
    marker = shortened(text)

    assert marker is not None
    assert "number 98" in marker
    assert "number 3 " not in marker
    assert len(marker) <= 200 + 600


def test_a_head_closes_the_code_fence_it_opens() -> None:
    """Or the rest of the history would be code."""
    marker = shortened("Look:\n```python\n" + "x = 1\n" * 900, profile="reference")

    assert marker is not None
    assert marker.count("```") == 2


@pytest.mark.parametrize("newline", ["", "\n"])
def test_a_wrapper_is_closed_again(newline: str) -> None:
    """Hosts mark untrusted output by a tag; half a tag would let it out."""
    text = f'<untrusted source="web">{newline}{"words " * 900}{newline}</untrusted>'
    marker = shortened(text, profile="reference")

    assert marker is not None
    assert marker.startswith('<untrusted source="web">')
    assert marker.count("<untrusted") == marker.count("</untrusted>") == 1


def test_a_head_never_ends_in_half_a_character() -> None:
    """Texts of some hosts hold characters as two halves."""
    marker = shortened("x" * 299 + "\ud83d\ude42" * 900, profile="reference")

    assert marker is not None
    assert marker.startswith("x" * 299 + "\n")


def test_a_tool_name_cannot_break_the_note() -> None:
    """Brackets, line breaks and control characters of a name do not reach the marker."""
    marker = shortened("x" * 900, 'x]\n\x1b[31m<b>"' + "y" * 300)

    assert marker is not None
    assert not {"\n", "\x1b", "<", '"'} & set(marker)
    assert find_reference(marker) == REFERENCE


@pytest.mark.parametrize(
    "text", ["", "[jev-engine: ", "jx-0123456789abcdef", "[jev-engine: jx-short]", "x" * 9_000 + "[jev-engine: no id]"]
)
def test_what_names_no_reference_is_no_marker(text: str) -> None:
    """A note without an id, an id without a note."""
    assert find_reference(text) is None


def test_a_text_too_short_to_shorten_stays() -> None:
    """The bar counts on top of the head."""
    assert shortened("x" * 120) is None
    assert shortened("x" * 420, profile="reference") is None
    assert shortened("x" * 421, profile="reference") is not None
