r"""The form of a trail's lines, the chain that holds them together, and the seal that says who wrote them.

A line is `{"chain":C,"n":N,"prev":P,"seal":S,"hash":H,"event":E}`. One chain per session, so that one session can be
purged. `prev` is the hash of the chain's line before, 64 zeros at its start; it is written on the first line of a chain
in each file. With B, the SHA-256 of `P N E` (the event's bytes as they stand):

    H = SHA-256 of `B S`                     anybody can compute it: it finds accidents, and what was moved or taken out
    S = BLAKE2b-128 of `C B` under the key   only who has the key can: it finds what was made up

A line without `seal` has B as its hash: it was written where there was no key.

>>> start, head = seal("c1", Head(0, START), b'{"kind":"x"}', with_prev=True, key=b"k" * 32)
>>> found = parse(start + b'{"kind":"x"}' + LINE_END)
>>> body = body_of(found.prev, 1, found.event)
>>> found.n, hash_of(body, found.seal) == found.hash == head.hash, seal_of(b"k" * 32, "c1", body) == found.seal
(1, True, True)
"""

from __future__ import annotations

import re
from hashlib import blake2b, sha256
from typing import NamedTuple

__all__ = ["LINE_END", "START", "Head", "Line", "body_of", "hash_of", "parse", "seal", "seal_of"]

LINE_END = b"}\n"
START = "0" * 64
"""What stands before the first line of a chain."""
PURPOSE = b"jev audit line"
"""Keeps seals apart from the digests that are made with the same key."""
_LINE = re.compile(
    rb'\{"chain":"([0-9a-z]{1,64})","n":([1-9][0-9]{0,15}),(?:"prev":"([0-9a-f]{64})",)?(?:"seal":"([0-9a-f]{32})",)?'
    rb'"hash":"([0-9a-f]{64})","event":(\{.*\})\}'
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
    seal: str | None
    hash: str
    event: bytes


def seal(chain: str, head: Head, event: bytes, *, with_prev: bool, key: bytes | None = None) -> tuple[bytes, Head]:
    """What stands before an event in the line that holds it, `LINE_END` being behind, and the chain's new head."""
    n = head.lines + 1
    body = body_of(head.hash, n, event)
    made = None if key is None else seal_of(key, chain, body)
    digest = hash_of(body, made)
    prev = f'"prev":"{head.hash}",' if with_prev else ""
    sealed = "" if made is None else f'"seal":"{made}",'
    return f'{{"chain":"{chain}","n":{n},{prev}{sealed}"hash":"{digest}","event":'.encode(), Head(n, digest)


def body_of(prev: str | None, n: int, event: bytes) -> str:
    """The digest of what a line says and of where it stands."""
    digest = sha256(f"{prev or START} {n} ".encode())
    digest.update(event)
    return digest.hexdigest()


def seal_of(key: bytes, chain: str, body: str) -> str:
    """What a line's seal must be."""
    return blake2b(f"{chain} {body}".encode(), key=key, digest_size=16, person=PURPOSE).hexdigest()


def hash_of(body: str, seal: str | None) -> str:
    """What a line's hash must be."""
    return body if seal is None else sha256(f"{body} {seal}".encode()).hexdigest()


def parse(raw: bytes) -> Line | None:
    """A line of a trail, or None for anything else, such as one that was cut off."""
    found = _LINE.fullmatch(raw.rstrip(b"\n"))
    if found is None:
        return None
    chain, n, prev, made, digest, event = found.groups()
    return Line(
        chain.decode(),
        int(n),
        None if prev is None else prev.decode(),
        None if made is None else made.decode(),
        digest.decode(),
        event,
    )
