"""The tool by which an agent gets an original back, page by page.

The pages of an original, put together, are the original: no character is added to or missing from `Expanded.text`. What
the agent reads is `Expanded.shown`: the page, and a line behind it that says where it is in the whole.
"""

from __future__ import annotations

import re
from typing import Any, Literal, NamedTuple

from jev_engine.errors import OriginalExpired, OriginalNotFound, OriginalUnreadable, StoreError
from jev_engine.markers import WRAPPER
from jev_engine.store import OriginalStore
from jev_engine.store.prompt import prompt

__all__ = [
    "EXPAND_TOOL",
    "PAGE_CHARS",
    "Expanded",
    "expand",
    "expand_tool_schema",
    "expanded_reference",
    "is_page_of",
]

EXPAND_TOOL = "jev_expand"
PAGE_CHARS = 16_000
"""Most characters of a page. Claude Code cuts results of shells at 30,000 characters and of MCP tools at 25,000 tokens,
Codex shows 10,000 tokens of one; 16,000 characters stay below all of them in any script (one token a character in the
worst case is 16,000)."""
LONGEST_ID = 64
"""Of an id that leads to no page so much is repeated in the answer; ours have 19 characters."""
NOTE_OPEN = "\n[jev-engine expand "
ANSWER_OPEN = "[jev-engine expand: "
"""Not how a marker begins: an answer that names an id must not be taken for one."""
# Behind the page, at its very end: what stands in the page itself may look like anything.
NOTE = re.compile(r"\n\[jev-engine expand (jx-[0-9a-f]{16}): [^\n\[\]]{1,300}\]\Z")
# A note has at most 342 characters; blanks and a closing tag of the host may follow.
NOTE_REACH_CHARS = 400

DESCRIPTION = (
    "Read again, byte for byte, a tool result that was left out of this conversation to save room. "
    "Its place says [jev-engine: … intact as jx-…]; give that id. Long results come in pages."
)
PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "id": {"type": "string", "description": "The id in the marker, such as jx-0123456789abcdef."},
        "offset": {"type": "integer", "minimum": 0, "description": "Character to begin at; 0 is the start."},
        "limit": {
            "type": "integer",
            "minimum": 1,
            "maximum": PAGE_CHARS,
            "description": f"Characters of this page; {PAGE_CHARS} at most, which is also the default.",
        },
    },
    "required": ["id"],
    "additionalProperties": False,
}


class Expanded(NamedTuple):
    """A page of an original, or a plain answer why there is none."""

    status: Literal["page", "unknown", "expired", "unreadable", "failed"]
    reference: str
    text: str
    """The characters of the original from `offset` on; empty where there is no page."""
    offset: int
    total_chars: int
    next_offset: int | None
    """Where the next page begins, or None behind the last."""
    shown: str
    """What the agent reads."""

    def __repr__(self) -> str:
        return f"<Expanded {self.reference} {self.status}: {len(self.text)} of {self.total_chars} chars>"


def expand_tool_schema(form: Literal["openai", "anthropic"] = "openai", *, name: str = EXPAND_TOOL) -> dict[str, Any]:
    """The tool as a provider wants it declared; raises ValueError for another form."""
    return tool_schema(form, name, DESCRIPTION, PARAMETERS)


def tool_schema(form: str, name: str, description: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """A tool in one of the two forms; raises ValueError for another."""
    if form == "openai":
        return {"type": "function", "function": {"name": name, "description": description, "parameters": parameters}}
    if form == "anthropic":
        return {"name": name, "description": description, "input_schema": parameters}
    raise ValueError(f"form {form!r} is none of 'openai', 'anthropic'")


async def expand(
    store: OriginalStore, session: str, reference: str, offset: int = 0, limit: int = PAGE_CHARS
) -> Expanded:
    """One page of an original, from a character on, of at most `limit` and never more than `PAGE_CHARS` characters.

    Raises nothing of the store: an unknown id, one of another session, one that expired and one that cannot be read are
    answers in plain English. A page that would end within a surrogate pair ends before it.
    """
    try:
        text = (await prompt(store).read(reference, session=session)).text
    except OriginalNotFound:
        return _answer(
            "unknown", reference, "No original goes by this id in this session. Copy the id from its marker."
        )
    except OriginalExpired:
        return _answer(
            "expired", reference, "The original was kept, but has expired. Call the tool again to have it anew."
        )
    except OriginalUnreadable:
        return _answer(
            "unreadable",
            reference,
            "The original is there but its bytes are damaged. Call the tool again to have it anew.",
        )
    except StoreError as error:
        return _answer(
            "failed", reference, f"The store cannot be read now: {error}. The original is not lost; try later."
        )
    total = len(text)
    start = min(max(0, offset), total)
    end = _page_end(text, start, min(max(1, limit), PAGE_CHARS))
    return Expanded(
        "page",
        reference,
        text[start:end],
        start,
        total,
        end if end < total else None,
        _shown(reference, text, start, end),
    )


def _page_end(text: str, start: int, limit: int) -> int:
    end = min(len(text), start + limit)
    splits = end < len(text) and "\ud800" <= text[end - 1] <= "\udbff" and "\udc00" <= text[end] <= "\udfff"
    return end - 1 if splits and end - 1 > start else end


def _shown(reference: str, text: str, start: int, end: int) -> str:
    total = len(text)
    if start == 0 and end == total:
        where = f"all {total:,} characters, this is the whole original"
    elif start == total:
        where = f"the original has {total:,} characters, nothing is behind them"
    else:
        where = f"characters {start:,} to {end:,} of {total:,}"
        where += f"; for the next page give offset {end}" if end < total else "; this is the end"
    return f"{text[start:end]}{NOTE_OPEN}{reference}: {where}]"


def _answer(status: Literal["unknown", "expired", "unreadable", "failed"], reference: str, why: str) -> Expanded:
    """An answer without a page; of an id that is none of ours only what is harmless is repeated."""
    name = "".join(sign for sign in reference[:LONGEST_ID] if sign.isascii() and sign.isprintable())
    return Expanded(status, reference, "", 0, 0, None, f"{ANSWER_OPEN}{name!r}: {why}]")


def is_page_of(text: str, original: str) -> bool:
    """Whether a result is a page of that original: all it says before the note stands there in one piece."""
    page = text[: text.rfind(NOTE_OPEN)]
    opening = WRAPPER.match(page)
    return page in original or (opening is not None and page[opening.end() :].lstrip("\n") in original)


def expanded_reference(text: str) -> str | None:
    """The original a result is a page of, or None. Hosts may put blanks or a closing tag behind the page."""
    at = text.rfind(NOTE_OPEN, max(0, len(text) - NOTE_REACH_CHARS))
    if at < 0:
        return None
    found = NOTE.match(text[: text.find("]", at) + 1], at)
    return found.group(1) if found else None
