r"""The form of a trail's lines, and the chain that holds them together.

A line is `{"chain":C,"n":N,"prev":P,"hash":H,"event":E}`. H is the SHA-256 of `P N E` (the previous hash of the same
chain, the number, and the event's bytes as they stand). `prev` is written on the first line of a chain in each file;
on the others it is the hash of the chain's line before. One chain per session, so that one session can be purged.

>>> start, head = seal("c1", Head(0, START), b'{"kind":"x"}', with_prev=True)
>>> found = parse(start + b'{"kind":"x"}' + LINE_END)
>>> found.n, found.hash == head.hash, digest_of(found.prev, 1, found.event) == head.hash
(1, True, True)
"""

from __future__ import annotations

import re
from hashlib import sha256
from typing import NamedTuple

__all__ = ["LINE_END", "START", "Head", "Line", "digest_of", "parse", "seal"]

LINE_END = b"}\n"
START = "0" * 64
"""What stands before the first line of a chain."""
_LINE = re.compile(
    rb'\{"chain":"([0-9a-z]{1,64})","n":([1-9][0-9]{0,15}),(?:"prev":"([0-9a-f]{64})",)?"hash":"([0-9a-f]{64})",'
    rb'"event":(\{.*\})\}'
)


class Head(NamedTuple):
    """The end of a chain."""

    lines: int
    hash: str


class Line(NamedTuple):
    """One whole line."""

    chain: str
    n: int
    prev: str | None
    """Written on the first line of a chain in a file."""
    hash: str
    event: bytes


def seal(chain: str, head: Head, event: bytes, *, with_prev: bool) -> tuple[bytes, Head]:
    """What stands before an event in the line that holds it, `LINE_END` being behind, and the chain's new head."""
    n = head.lines + 1
    digest = digest_of(head.hash, n, event)
    prev = f'"prev":"{head.hash}",' if with_prev else ""
    return f'{{"chain":"{chain}","n":{n},{prev}"hash":"{digest}","event":'.encode(), Head(n, digest)


def digest_of(prev: str | None, n: int, event: bytes) -> str:
    """What a line's hash must be."""
    digest = sha256(f"{prev or START} {n} ".encode())
    digest.update(event)
    return digest.hexdigest()


def parse(raw: bytes) -> Line | None:
    """A line of a trail, or None for anything else, such as one that was cut off."""
    found = _LINE.fullmatch(raw.rstrip(b"\n"))
    if found is None:
        return None
    chain, n, prev, digest, event = found.groups()
    return Line(chain.decode(), int(n), None if prev is None else prev.decode(), digest.decode(), event)
