"""A request body: its messages with their places in the text, so that an edit changes nothing around it.

What is not edited goes on as the very text the client wrote, doubled names, odd numbers and blanks included. A request
mostly begins as the one before it did; `Body.read` takes over what it can from a body that is known.

>>> body = Body.read('{"model": "m", "messages": [{"role": "user", "content": "a"}], "n": 1.50}')
>>> body.fields["model"], body.messages[0]["content"]
('m', 'a')
>>> body.write({0: '{"role": "user", "content": "b"}'}).text
'{"model": "m", "messages": [{"role": "user", "content": "b"}], "n": 1.50}'
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

__all__ = ["BadBody", "Body", "Outgoing", "dump"]

_SPACE = re.compile(r"[ \t\n\r]*")
_LIST = "messages"
# Texts up to this length are digested whole, of longer ones the length and both ends. The digest tells conversations
# apart; decisions go by digests of the whole content, see `ledger.content_digest`.
SHORT_CHARS = 120
END_CHARS = 50

_scan: Callable[[str, int], tuple[Any, int]] = vars(json.JSONDecoder())["scan_once"]
"""The C scanner behind `json.loads`: a value from a place on, and where it ends."""
_as_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_as_ascii = json.JSONEncoder(ensure_ascii=True, separators=(",", ":")).encode


class BadBody(ValueError):
    """The body is not a JSON object with one list of messages."""


class Outgoing:
    """A body as it is sent on, cut behind the last message so that more can follow there."""

    __slots__ = ("head", "tail")

    def __init__(self, head: str, tail: str) -> None:
        self.head = head
        self.tail = tail

    @property
    def text(self) -> str:
        """The whole body."""
        return self.head + self.tail

    def encode(self) -> bytes:
        """The whole body as it goes over the wire."""
        return self.text.encode()

    def followed_by(self, messages: Sequence[Any]) -> Outgoing:
        """The same body with more messages at the end."""
        return Outgoing(self.head + "".join(f",{dump(message)}" for message in messages), self.tail)


class Body:
    """A parsed request. Treat it as frozen: bodies share what they have in common."""

    __slots__ = ("chain", "fields", "list_end", "list_start", "messages", "spans", "text", "values")

    def __init__(self, text: str) -> None:
        self.text = text
        self.fields: dict[str, Any] = {}
        """Every top-level field but the messages."""
        self.values: dict[str, tuple[int, int]] = {}
        """Where the value of each field stands in the text."""
        self.messages: list[Any] = []
        self.spans: list[tuple[int, int]] = []
        """Where each message stands in the text."""
        self.chain: list[bytes] = []
        """For each message a digest of all messages up to it, cache marks aside."""
        self.list_start = self.list_end = -1
        """The brackets around the messages."""

    @classmethod
    def read(cls, text: str, known: Body | None = None) -> Body:
        """Parse a body; raises BadBody. `known` is a body that may begin alike."""
        body = cls(text)
        try:
            at = body._take_over(known) if known is not None else 0
            end = body._rest_of_list(at) if at else body._open()
            while end >= 0:
                end = body._field(end)
        except (StopIteration, IndexError, ValueError, RecursionError) as error:
            if isinstance(error, BadBody):
                raise
            raise BadBody(f"not a JSON object: {type(error).__name__}") from None
        if body.list_start < 0:
            raise BadBody("no list of messages")
        return body

    def _take_over(self, known: Body) -> int:
        """Take over the messages both texts begin with; returns where to read on, 0 for the start."""
        shared = common_prefix(self.text, known.text)
        rows = bisect_right(known.spans, shared, key=lambda span: span[1])
        if not rows:
            return 0
        self.list_start = known.list_start
        self.messages, self.spans, self.chain = known.messages[:rows], known.spans[:rows], known.chain[:rows]
        for name, span in known.values.items():
            if span[1] < known.list_start:
                self.values[name], self.fields[name] = span, known.fields[name]
        return self.spans[-1][1]

    def _space(self, at: int) -> int:
        found = _SPACE.match(self.text, at)
        return found.end() if found else at

    def _open(self) -> int:
        at = self._space(0)
        if self.text[at] != "{":
            raise BadBody("not a JSON object")
        return self._space(at + 1)

    def _field(self, at: int) -> int:
        """Read one field from its name on; returns where the next name stands, -1 behind the object."""
        text = self.text
        if text[at] == "}":
            return self._close(at)
        name, at = _scan(text, at)
        at = self._space(at)
        if name.__class__ is not str or text[at] != ":":
            raise BadBody("not a JSON object")
        at = self._space(at + 1)
        if name in self.fields or (name == _LIST and self.list_start >= 0):
            raise BadBody(f"field {name!r} stands twice")
        if name == _LIST and text[at] == "[":
            self.list_start = at
            return self._rest_of_list(at + 1)
        start = at
        self.fields[name], at = _scan(text, at)
        self.values[name] = start, at
        return self._behind_value(at)

    def _rest_of_list(self, at: int) -> int:
        text, messages, spans, chain = self.text, self.messages, self.spans, self.chain
        before = chain[-1] if chain else b""
        at = self._space(at)
        while text[at] != "]":
            if messages:
                if text[at] != ",":
                    raise BadBody("a list that is none")
                at += 1
                if text[at] != "{":
                    at = self._space(at)
            message, end = _scan(text, at)
            messages.append(message)
            spans.append((at, end))
            before = blake2b(before + essence_of(message).encode("utf-8", "surrogatepass"), digest_size=16).digest()
            chain.append(before)
            at = end
            if text[at] != ",":
                at = self._space(at)
        self.list_end = at
        return self._behind_value(at + 1)

    def _behind_value(self, at: int) -> int:
        at = self._space(at)
        if self.text[at] == "}":
            return self._close(at)
        if self.text[at] != ",":
            raise BadBody("not a JSON object")
        return self._space(at + 1)

    def _close(self, at: int) -> int:
        if self._space(at + 1) != len(self.text):
            raise BadBody("something stands behind the object")
        return -1

    def write(self, rows: Mapping[int, str | None], fields: Mapping[str, str] | None = None) -> Outgoing:
        """The body with some messages replaced by other text, or gone (None), and fields with another value.

        The text of a row may hold several messages, separated by commas.
        """
        edits = [(*self.values[name], value) for name, value in (fields or {}).items()]
        gone = {row for row, text in rows.items() if text is None}
        edits += [(*self.spans[row], text) for row, text in rows.items() if text is not None]
        edits += [(*self._with_comma(row, gone), "") for row in gone]
        edits.sort()
        text = self.text
        pieces: list[str] = []
        heads: list[str] | None = None
        at = 0
        for start, end, new in edits:
            if heads is None and start >= self.list_end:
                pieces.append(text[at : self.list_end])
                heads, pieces, at = pieces, [], self.list_end
            pieces += text[at:start], new
            at = end
        if heads is None:
            pieces.append(text[at : self.list_end])
            heads, pieces, at = pieces, [], self.list_end
        pieces.append(text[at:])
        return Outgoing("".join(heads), "".join(pieces))

    def _with_comma(self, row: int, gone: set[int]) -> tuple[int, int]:
        """A row with the comma that goes with it: the one before it, or behind it where no row before it is left."""
        start, end = self.spans[row]
        if any(earlier not in gone for earlier in range(row)):
            return self.spans[row - 1][1], end
        if row + 1 < len(self.spans):
            return start, self.spans[row + 1][0]
        return start, end


def dump(value: Any) -> str:
    """A value as JSON that can be UTF-8: one with half a surrogate pair, which cannot, is written in ASCII.

    >>> dump("é" + chr(0xD83D)).isascii()
    True
    """
    text = _as_text(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        return _as_ascii(value)
    return text


def common_prefix(one: str, other: str) -> int:
    """How many characters two texts have in common at their start."""
    low, high = 0, min(len(one), len(other))
    if one[:high] == other[:high]:
        return high
    while high - low > 1:
        middle = (low + high) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle
    return low


def essence_of(message: Any) -> str:
    """What a message is recognised by: role, ids and texts, whether its content is a text or a list of blocks."""
    if message.__class__ is not dict:
        return f"?{_brief(str(message))}"
    content = message.get("content")
    essence = str(message.get("role"))
    if content.__class__ is str:
        essence += "\0" + (content if len(content) <= SHORT_CHARS else _brief(content))
    elif content.__class__ is list:
        for block in content:
            essence += "\0" + _block(block)
    if "tool_calls" in message:
        calls = message["tool_calls"]
        for call in calls if calls.__class__ is list else ():
            essence += f"\0call {call.get('id')}" if call.__class__ is dict else "\0?"
    if "tool_call_id" in message:
        essence += f"\0result {message['tool_call_id']}"
    return essence


def _block(block: Any) -> str:
    if block.__class__ is not dict:
        return f"?{_brief(str(block))}"
    kind = block.get("type")
    if kind == "tool_result":
        content = block.get("content")
        if content.__class__ is not str:
            content = "\0".join([_block(part) for part in content]) if content.__class__ is list else str(content)
        return f"result {block.get('tool_use_id')} {_brief(content)}"
    if kind == "tool_use":
        return f"call {block.get('id')}"
    if kind == "text":
        return _brief(str(block.get("text")))
    if kind == "thinking":
        return f"thinking {_brief(str(block.get('signature') or block.get('thinking')))}"
    return f"{kind} {_brief(str(block.get('id') or block.get('data') or ''))}"


def _brief(text: str) -> str:
    if len(text) <= SHORT_CHARS:
        return text
    return f"{len(text)} {text[:END_CHARS]}\0{text[-END_CHARS:]}"
