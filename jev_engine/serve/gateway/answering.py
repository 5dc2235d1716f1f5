"""Answers in which calls may have to be answered here, round by round, until what is left is the client's to do."""

from __future__ import annotations

import json
import logging
from typing import Any, Protocol

import httpx

from jev_engine.serve.gateway.body import dump
from jev_engine.serve.gateway.brain import Brain, Prepared
from jev_engine.serve.gateway.form import Reply
from jev_engine.serve.gateway.stream import EventCutter
from jev_engine.serve.gateway.upstream import close, raw_parts

__all__ = ["Answering", "Wire"]

logger = logging.getLogger("jev_engine")

MOST_ROUNDS = 16
"""Responses that one answer is put together from; a model that asks on and on would never come to an end."""


class Wire(Protocol):
    """What an answer needs of the exchange it belongs to."""

    async def send_on(self, content: bytes, *, must_read: bool) -> httpx.Response:
        """Send a body to the provider."""
        ...

    async def start(self, response: httpx.Response, *, changed: bool = False) -> None:
        """Begin the answer to the client."""
        ...

    async def write(self, data: bytes, *, is_last: bool = False) -> None:
        """Pass bytes on to the client."""
        ...


class Answering:
    """One answer."""

    def __init__(self, wire: Wire, brain: Brain, prepared: Prepared, reply: Reply) -> None:
        self.wire = wire
        self.brain = brain
        self.prepared = prepared
        self.reply = reply
        self._rounds = 0
        self._is_raw = False

    async def run(self, response: httpx.Response) -> None:
        """Pass the answer on."""
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            await self._stream(response)
        else:
            await self._whole(response)

    async def _next(self) -> httpx.Response | None:
        """The response to what was answered here; None where there have been too many."""
        self._rounds += 1
        outgoing = self.prepared.outgoing
        if outgoing is None or self._rounds > MOST_ROUNDS:
            return None
        texts = await self.brain.answers(self.prepared, self.reply)
        self.prepared.outgoing = outgoing.followed_by(self.reply.answered(texts))
        return await self.wire.send_on(self.prepared.content, must_read=True)

    async def _ended(self) -> None:
        """Hidden calls beside those of the client are answered too: their results wait for its next request."""
        if self.reply.calls:
            self.reply.answered(await self.brain.answers(self.prepared, self.reply))
        self.brain.ended(self.prepared, self.reply)
        self.brain.used(self.prepared, self.reply.spent_tokens or None)

    async def _stream(self, response: httpx.Response) -> None:
        await self.wire.start(response, changed=True)
        current: httpx.Response | None = response
        while current is not None:
            try:
                done = await self._one_stream(current)
            finally:
                await close(current)
            if not done:
                return
            if not self.reply.goes_on:
                break
            current = await self._next()
            if current is None or current.status_code != 200:
                await self._break_off(None if current is None else current.status_code)
                if current is not None:
                    await close(current)
                return
        if not self._is_raw:
            await self._ended()
        await self.wire.write(b"", is_last=True)

    async def _one_stream(self, response: httpx.Response) -> bool:
        """Pass one response on, event by event; False where the answer had to be broken off."""
        cutter = EventCutter()
        async with raw_parts(response) as stream:
            async for data in stream:
                if self._is_raw:
                    await self.wire.write(data)
                elif not await self._pass_events(cutter, data):
                    return False
        left = cutter.rest()
        if left:
            await self.wire.write(left)
        return True

    async def _pass_events(self, cutter: EventCutter, data: bytes) -> bool:
        out: list[bytes] = []
        events = list(cutter.feed(data))
        for place, event in enumerate(events):
            try:
                out.append(self.reply.event(event))
            except (ValueError, KeyError, TypeError, IndexError, AttributeError):
                if self.reply.withholds:
                    logger.exception("an answer with a hidden call could not be followed")
                    await self.wire.write(b"".join(out))
                    await self._break_off(None)
                    return False
                # Nothing is held back: the rest goes on as it comes.
                self._is_raw = True
                out += [*events[place:], cutter.rest()]
                break
        joined = b"".join(out)
        if joined:
            await self.wire.write(joined)
        return True

    async def _break_off(self, status: int | None) -> None:
        """An answer that cannot go on ends as a provider's would: with an error, upon which clients ask again."""
        self.brain.counts["answers broken off"] += 1
        why = "the answer could not be continued" + (f" (status {status})" if status else "")
        await self.wire.write(self.reply.error_event(self.prepared.form.error(502, why)), is_last=True)

    async def _whole(self, response: httpx.Response) -> None:
        current = response
        while True:
            data = bytearray()
            try:
                async for part in current.aiter_bytes():
                    data += part
            finally:
                await close(current)
            value = _object(bytes(data)) if current.status_code == 200 else None
            shown = value if value is None else self._shown(value)
            if value is None or shown is not None:
                break
            following = await self._next()
            if following is None:
                raise ValueError("too many hidden calls in one answer")
            current = following
        if value is not None and not self._is_raw:
            await self._ended()
        same = shown is value
        await self.wire.start(current, changed=True)
        await self.wire.write(bytes(data) if same else dump(shown).encode(), is_last=True)

    def _shown(self, value: dict[str, Any]) -> dict[str, Any] | None:
        try:
            return self.reply.whole(value)
        except (ValueError, KeyError, TypeError, IndexError, AttributeError):
            if self.reply.withholds:
                raise
            self._is_raw = True
            return value


def _object(data: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(data)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
