"""Originals in this process only: the default of the library, and the fastest."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from jev_engine.errors import OriginalNotFound, StoreError
from jev_engine.store import Original, PassRecord, keyed_reference

__all__ = ["MemoryStore"]


class MemoryStore:
    """Keeps originals as long as the object lives. Texts are kept by reference, not copied.

    Without a `secret` references are the same in every process, so that the same input gives the same output.
    """

    def __init__(self, *, secret: bytes = b"") -> None:
        self._secret = secret
        self._originals: dict[str, Original] = {}
        self._passes: dict[str, list[PassRecord]] = defaultdict(list)

    def reference(self, session: str, key: str) -> str:
        """The reference of a unit."""
        return keyed_reference(self._secret, session, key)

    async def save(self, originals: Sequence[Original]) -> set[str]:
        """Save originals; all of them are safe."""
        for original in originals:
            self._originals.setdefault(original.reference, original)
        return {original.reference for original in originals}

    async def read(self, reference: str, *, session: str | None = None) -> Original:
        """One original; raises OriginalNotFound."""
        original = self._originals.get(reference)
        if original is None or (session is not None and original.session != session):
            raise OriginalNotFound(f"no original goes by {reference!r}")
        return original

    async def known(self, references: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Unit key and length of those references that are here."""
        found = {}
        for reference in references:
            original = self._originals.get(reference)
            if original is not None:
                found[reference] = (original.key, len(original.text))
        return found

    async def save_pass(self, record: PassRecord) -> None:
        """Save what a pass did."""
        try:
            copied = {row: _copy(value) for row, value in record.originals.items()}
        except RecursionError:
            raise StoreError("a message is nested too deep, or holds itself") from None
        self._passes[record.anchor].insert(0, record._replace(originals=copied))

    async def find_passes(self, anchor: str) -> list[PassRecord]:
        """Records of passes whose output began with such a row, newest first."""
        return list(self._passes.get(anchor, ()))


def _copy(value: Any) -> Any:
    # The host may change its own lists and dicts later; strings are shared, whatever their size.
    if value.__class__ is dict:
        copied = value.copy()
        for name, item in value.items():
            if item.__class__ is dict or item.__class__ is list:
                copied[name] = _copy(item)
        return copied
    return [_copy(item) for item in value] if value.__class__ is list else value
