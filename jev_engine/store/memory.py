"""Originals in this process only: the default of the library, and the fastest."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jev_engine.errors import JevEngineError, OriginalNotFound, StoreError
from jev_engine.ledger import Ledger
from jev_engine.recall.ranking import best, pick_terms
from jev_engine.recall.terms import terms_of
from jev_engine.store import Match, Original, PassHead, PassRecord, Ranking, keyed_reference, message_original

__all__ = ["MemoryStore"]


class MemoryStore:
    """Keeps originals as long as the object lives. Texts are kept by reference, not copied.

    Without a `secret` references are the same in every process, so that the same input gives the same output.
    Nothing expires here; the terms of a text are taken when it is first searched for.
    """

    reference_waits = False

    def __init__(self, *, secret: bytes = b"") -> None:
        self._secret = secret
        self._originals: dict[str, Original] = {}
        self._passes: list[PassRecord] = []
        self._by_anchor: dict[str, list[int]] = defaultdict(list)
        self._by_session: dict[str, list[str]] = defaultdict(list)
        self._terms: dict[str, set[str]] = {}
        self._ledgers: dict[str, Ledger] = {}
        self._parents: dict[str, str] = {}

    def reference(self, session: str, key: str) -> str:
        """The reference of a unit."""
        return keyed_reference(self._secret, session, key)

    async def save(self, originals: Sequence[Original]) -> set[str]:
        """Save originals; all of them are safe."""
        for original in originals:
            if original.reference not in self._originals:
                self._originals[original.reference] = original
                self._by_session[original.session].append(original.reference)
        return {original.reference for original in originals}

    async def save_messages(self, session: str, rows: Sequence[Any]) -> list[str]:
        """Save whole messages; returns one reference a row."""
        try:
            texts = [json.dumps(row, ensure_ascii=False) for row in rows]
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"a message is no plain JSON value, or nested too deep: {error}") from None
        originals = [message_original(self, session, text) for text in texts]
        await self.save(originals)
        return [original.reference for original in originals]

    async def read(self, reference: str, *, session: str | None = None) -> Original:
        """One original; raises OriginalNotFound."""
        original = self._originals.get(reference)
        if original is None or (session is not None and original.session not in self._chain(session)):
            raise OriginalNotFound(f"no original goes by {reference[:40]!r}")
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
        """Keep a copy of what a pass did; raises StoreError for a message nested too deep, or one that holds itself."""
        try:
            copied = {row: _copy(value) for row, value in record.originals.items()}
        except RecursionError:
            raise StoreError("a message is nested too deep, or holds itself") from None
        self._by_anchor[record.anchor].append(len(self._passes))
        self._passes.append(record._replace(originals=copied))

    async def find_passes(self, anchor: str, most_rows: int | None = None) -> list[PassHead]:
        """Passes whose output began with such a row and had at most so many rows, newest first."""
        heads = [
            PassHead(number, self._passes[number].rows_out, self._passes[number].sketch)
            for number in reversed(self._by_anchor.get(anchor, ()))
        ]
        return [head for head in heads if most_rows is None or head.rows_out <= most_rows]

    async def load_pass(self, number: int) -> PassRecord:
        """One record, by its head's number; raises OriginalNotFound."""
        if not 0 <= number < len(self._passes):
            raise OriginalNotFound(f"no pass has the number {number}")
        return self._passes[number]

    async def save_ledger(self, session: str, ledger: Mapping[str, Any]) -> None:
        """Join a ledger to the session's; raises StoreError for what is no ledger."""
        try:
            joined = Ledger.from_json(ledger)
        except JevEngineError as error:
            raise StoreError(f"the ledger of session {session[:80]!r} cannot be saved: {error}") from None
        before = self._ledgers.get(session)
        self._ledgers[session] = joined if before is None else before.merge(joined)

    async def load_ledger(self, session: str) -> dict[str, Any] | None:
        """The session's ledger as plain JSON, or None where it has none."""
        ledger = self._ledgers.get(session)
        return None if ledger is None else ledger.to_json()

    async def link_session(self, new: str, old: str) -> None:
        """A fork or rotation: `new` may read what `old` has, and begins with its ledger."""
        if new in self._parents or new in self._chain(old):
            return
        self._parents[new] = old
        before, own = self._ledgers.get(old), self._ledgers.get(new)
        if before is not None:
            self._ledgers[new] = before if own is None else before.merge(own)

    async def rank(self, session: str, query: str, limit: int) -> Ranking:
        """The originals of a session that fit a query best. Of equal texts the newest counts."""
        references = [reference for name in self._chain(session) for reference in self._by_session.get(name, ())]
        texts = {self._originals[reference].text: number for number, reference in enumerate(references)}
        held = {number: self._terms_of(references[number]) for number in texts.values()}
        postings = {term: [n for n, terms in held.items() if term in terms] for term in pick_terms(terms_of(query))}
        found = best(postings, len(held), lambda numbers: {n: len(held[n]) for n in numbers}, limit)
        matches = []
        for number, score in found:
            original = self._originals[references[number]]
            matches.append(Match(original.reference, original.tool, len(original.text), score))
        return Ranking(matches)

    def _terms_of(self, reference: str) -> set[str]:
        known = self._terms.get(reference)
        if known is None:
            known = self._terms[reference] = terms_of(self._originals[reference].text)
        return known

    def _chain(self, session: str) -> list[str]:
        """A session and those it was linked to, nearest first."""
        chain = [session]
        while (parent := self._parents.get(chain[-1])) is not None:
            chain.append(parent)
        return chain


def _copy(value: Any) -> Any:
    # The host may change its own lists and dicts later; strings are shared, whatever their size.
    if value.__class__ is dict:
        copied = value.copy()
        for name, item in value.items():
            if item.__class__ is dict or item.__class__ is list:
                copied[name] = _copy(item)
        return copied
    return [_copy(item) for item in value] if value.__class__ is list else value
