"""After a refusal: what is tried next, so that no client sees one that an edit has caused."""

from __future__ import annotations

from typing import NamedTuple, Protocol

import httpx

from jev_engine.serve.gateway.brain import Brain, Prepared
from jev_engine.serve.gateway.upstream import close

__all__ = ["MAY_BE_OURS", "Tried", "second_try"]

MAY_BE_OURS = (400, 413, 422)
"""Refusals that an edit may have caused."""
MOST_REFUSAL_BYTES = 1_000_000
"""Of a refusal so much is read."""


class Tried(NamedTuple):
    """What was sent last, and what came of it."""

    prepared: Prepared
    response: httpx.Response
    refusal: bytes | None
    """The body of a response that is a refusal again; it is closed then."""


class _Wire(Protocol):
    async def send_on(self, content: bytes, *, must_read: bool) -> httpx.Response: ...


async def second_try(
    wire: _Wire, brain: Brain, prepared: Prepared, response: httpx.Response, *, is_turn: bool
) -> Tried:
    """A shorter request where the prompt was too long, the original where an edit was refused."""
    refusal = await _read_all(response)
    again: Prepared | None = None
    if is_turn and prepared.form.is_overflow(response.status_code, refusal):
        again = await brain.rescue(prepared)
    elif prepared.outgoing is not None:
        again = Prepared(prepared.form, prepared.original)
        again.conversation, again.body = prepared.conversation, prepared.body
    elif is_turn and prepared.form.speaks_of_reasoning(refusal):
        again = brain.without_reasoning(prepared)
    if again is None:
        return Tried(prepared, response, refusal)
    last = Tried(again, await wire.send_on(again.content, must_read=again.reply is not None), None)
    if last.response.status_code in MAY_BE_OURS:
        last = await _last_try(wire, brain, last)
    if is_turn and prepared.outgoing is not None and again.outgoing is None and last.response.status_code == 200:
        brain.refused(last.prepared)
    return last


async def _last_try(wire: _Wire, brain: Brain, tried: Tried) -> Tried:
    """The original was refused as well: without its reasoning, where the provider complains about that.

    What the provider says of the original otherwise is what a client would see without us.
    """
    refusal = await _read_all(tried.response)
    speaks_of_it = tried.prepared.form.speaks_of_reasoning(refusal)
    again = brain.without_reasoning(tried.prepared) if speaks_of_it else None
    if again is None:
        return tried._replace(refusal=refusal)
    response = await wire.send_on(again.content, must_read=False)
    return Tried(again, response, await _read_all(response) if response.status_code in MAY_BE_OURS else None)


async def _read_all(response: httpx.Response) -> bytes:
    """A short response, decoded, and closed."""
    data = bytearray()
    try:
        async for part in response.aiter_bytes():
            data += part
            if len(data) > MOST_REFUSAL_BYTES:
                break
    finally:
        await close(response)
    return bytes(data)
