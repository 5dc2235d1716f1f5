"""Digests with a key of this machine: the same text gives the same one here, and nobody can guess it elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import blake2b

from jev_engine.ledger import Ledger
from jev_engine.transcript import Transcript

__all__ = ["Keyed"]

# What its digest tells keys apart by. No text of a session is this one.
KEY_PROBE = "\0jev-engine audit key\0"


class Keyed:
    """Makes digests of 16 bytes, in hex."""

    __slots__ = ("_start",)

    def __init__(self, key: bytes) -> None:
        self._start = blake2b(key=key, digest_size=16)
        # BLAKE2 works the key in with the first byte that follows it: once here, not once a digest.
        self._start.update(b"\0")

    @property
    def key_digest(self) -> str:
        """Tells this key from another one, and nothing else about it."""
        return self.digest(KEY_PROBE)

    def digest(self, text: str) -> str:
        """The digest of a text."""
        made = self._start.copy()
        made.update(_bytes(text))
        return made.hexdigest()

    def digests(self, texts: Sequence[str | None]) -> list[str | None]:
        """The digest of each text, None for none."""
        copy = self._start.copy
        digests: list[str | None] = []
        for text in texts:
            if text is None:
                digests.append(None)
                continue
            made = copy()
            # As `_bytes`, without the call: a pass makes a thousand.
            made.update(text.encode("utf-8", "surrogatepass"))
            digests.append(made.hexdigest())
        return digests

    def of_input(self, transcript: Transcript) -> str:
        """Of all texts, and of every call with its result (by its key, which is a digest of them)."""
        texts = [entry.text for entry in transcript.entries]
        return self.digest("\0".join([*texts, *[call.key for call in transcript.calls]]))

    def of_output(self, of_input: str, transcript: Transcript, ledger: Ledger, gone: Iterable[str | None]) -> str:
        """Of what an input has become: its own digest, those of this pass's replacements, and the older ones' texts."""
        older = [ledger.get(call.marked) for call in transcript.calls if call.marked is not None]
        texts = [entry.text or entry.action for entry in older if entry is not None]
        return self.digest("\0".join([of_input, *[digest for digest in gone if digest is not None], *texts]))


def _bytes(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
