"""Server-sent events in pieces as they come: cut into events, and looked into for the usage they report."""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Iterator

from jev_engine.serve.gateway.form import Form, event_data

__all__ = ["EventCutter", "Tap"]

_END = re.compile(rb"\r?\n\r?\n")
MOST_EVENT_BYTES = 32_000_000
"""Longest event of a stream; what goes on beyond it is no stream of events."""
MOST_WHOLE_BYTES = 16_000_000
"""Of an answer that is no stream so much is looked at, for its usage."""


class EventCutter:
    """Cuts a stream of bytes behind each blank line."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Every event that is complete now. Raises ValueError for one beyond all measure."""
        self._buffer += data
        while (found := _END.search(self._buffer, max(0, self._searched - 3))) is not None:
            event = bytes(self._buffer[: found.end()])
            del self._buffer[: found.end()]
            self._searched = 0
            yield event
        self._searched = len(self._buffer)
        if len(self._buffer) > MOST_EVENT_BYTES:
            raise ValueError("an event without end")

    def rest(self) -> bytes:
        """What came after the last blank line."""
        left = bytes(self._buffer)
        self._buffer.clear()
        return left


class Tap:
    """Looks into a response as it passes, for the prompt tokens it reports. Never raises, never holds anything up."""

    def __init__(self, form: Form, *, is_stream: bool, decoder: zlib._Decompress | None = None) -> None:
        self.prompt_tokens: int | None = None
        self._form = form
        self._decoder = decoder
        self._cutter = EventCutter() if is_stream else None
        self._whole = bytearray()
        self._is_off = False

    def feed(self, data: bytes) -> None:
        """Look at the next bytes."""
        if self._is_off:
            return
        try:
            plain = data if self._decoder is None else self._decoder.decompress(data)
            if self._cutter is None:
                self._whole += plain
                self._is_off = len(self._whole) > MOST_WHOLE_BYTES
                return
            for event in self._cutter.feed(plain):
                if b'"usage"' in event:
                    self._look(json.loads(event_data(event)))
        except (ValueError, KeyError, TypeError, AttributeError, zlib.error):
            self._is_off = True

    def end(self) -> int | None:
        """The prompt tokens of the response; None where it did not say."""
        if self._cutter is None and not self._is_off:
            try:
                self._look(json.loads(self._whole))
            except (ValueError, TypeError, AttributeError):
                self._is_off = True
        return self.prompt_tokens

    def _look(self, value: object) -> None:
        tokens = self._form.prompt_tokens(value) if isinstance(value, dict) else None
        self.prompt_tokens = max(tokens or 0, self.prompt_tokens or 0) or None
