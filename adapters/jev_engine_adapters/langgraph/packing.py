"""A ledger in few characters: a checkpointer writes it with every step.

Digests are the bulk of it and hardly compress, so they are kept as bytes; the rest is written by columns, with the
markers' words once for all units that share them.

>>> from jev_engine.ledger import LedgerEntry
>>> of = lambda n: LedgerEntry(f"{n:032x}", "truncate", f"jx-{n:016x}", f"[out jx-{n:016x}]", 900)
>>> ledger = Ledger.of(map(of, range(50)))
>>> packed = pack({"ledger": ledger, "passes": []})
>>> unpack(packed) == {"ledger": ledger, "passes": []}, len(packed) < 50 * 40
(True, True)
"""

from __future__ import annotations

import json
import re
import zlib
from base64 import b85decode, b85encode
from collections.abc import Iterator, Mapping
from typing import Any

from jev_engine.ledger import Ledger, LedgerEntry

__all__ = ["pack", "unpack"]

MOST_BYTES = 64_000_000
"""Of what is unpacked; a session of 100,000 shortened results has about 10 MB."""
KEY = re.compile(r"[0-9a-f]{32}\Z")
REFERENCE = re.compile(r"jx-[0-9a-f]{16}\Z")
KEY_BYTES, REFERENCE_BYTES = 16, 8
STAND_IN = "\0"
"""Stands for the reference in a marker's words."""


def pack(content: Mapping[str, Any]) -> str:
    """ASCII text for plain JSON values, of which `ledger` is a ledger."""
    digests: list[bytes] = []
    columns: dict[str, list[Any]] = {"actions": [], "texts": [], "chars": []}
    words: dict[str, int] = {}
    others = []
    ledger: Ledger = content["ledger"]
    for entry in sorted(ledger):
        if not KEY.match(entry.key) or not REFERENCE.match(entry.reference) or STAND_IN in entry.text:
            others.append(list(entry))
            continue
        digests.append(bytes.fromhex(entry.key) + bytes.fromhex(entry.reference[3:]))
        text = entry.text.replace(entry.reference, STAND_IN)
        columns["actions"].append(entry.action[0])
        columns["texts"].append(words.setdefault(text, len(words)))
        columns["chars"].append(entry.chars)
    ledger_json = {**columns, "words": list(words), "others": others}
    text = json.dumps({**content, "ledger": ledger_json}, ensure_ascii=False, separators=(",", ":"))
    body = zlib.compress(text.encode("utf-8", "surrogatepass"), 9)
    return b85encode(len(body).to_bytes(4, "big") + body + b"".join(digests)).decode("ascii")


def unpack(packed: str) -> dict[str, Any]:
    """What `pack` was given; raises ValueError, KeyError, TypeError or zlib.error for anything else."""
    raw = b85decode(packed)
    end = 4 + int.from_bytes(raw[:4], "big")
    reader = zlib.decompressobj()
    body = reader.decompress(raw[4:end], MOST_BYTES)
    if not reader.eof or len(raw) < end:
        raise ValueError("it is cut off or too large")
    content: dict[str, Any] = json.loads(body.decode("utf-8", "surrogatepass"))
    return {**content, "ledger": Ledger.of(_entries(content["ledger"], raw[end:]))}


def _entries(columns: Mapping[str, Any], digests: bytes) -> Iterator[LedgerEntry]:
    each = KEY_BYTES + REFERENCE_BYTES
    if len(digests) != each * len(columns["chars"]):
        raise ValueError("another number of digests than of decisions")
    actions = {"t": "truncate", "r": "remove"}
    rows = zip(columns["actions"], columns["texts"], columns["chars"], strict=True)
    for at, (action, text, chars) in enumerate(rows):
        digest = digests[at * each : (at + 1) * each]
        reference = f"jx-{digest[KEY_BYTES:].hex()}"
        words = columns["words"][text].replace(STAND_IN, reference)
        yield LedgerEntry(digest[:KEY_BYTES].hex(), actions[action], reference, words, chars)  # type: ignore[arg-type]
    for entry in columns["others"]:
        yield from Ledger.from_json({"version": 1, "entries": [entry]})
