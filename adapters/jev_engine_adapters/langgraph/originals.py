"""Originals in a LangGraph `BaseStore`, for graphs that already have one, such as Postgres.

Everything is plain JSON under namespaces that begin with `jev_engine`, without an index. A store whose async half is
missing, or belongs to another event loop, is used from a thread.
"""

from __future__ import annotations

import json
import time
from base64 import b64decode, b64encode, urlsafe_b64encode
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from anyio import to_thread

from jev_engine.errors import JevEngineError, OriginalNotFound, OriginalUnreadable, StoreError
from jev_engine.ledger import Ledger
from jev_engine.recall.ranking import best, pick_terms
from jev_engine.recall.terms import terms_of
from jev_engine.store import Match, Original, PassHead, PassRecord, Ranking, keyed_reference, message_original

__all__ = ["BaseStoreOriginals"]

ROOT = "jev_engine"
PAGE = 1_000
"""Items of one look-up."""


class BaseStoreOriginals:
    """An `OriginalStore` over any `langgraph.store.base.BaseStore`.

    References are keyed with `secret`, which all processes of one application have to share. Every member raises
    StoreError where the store fails. Two passes of one session that end at the same moment may leave the ledger of one
    of them out of the store; the state of the graph has it.
    """

    def __init__(self, store: Any, *, secret: bytes = b"") -> None:
        self._store = store
        self._secret = secret

    def reference(self, session: str, key: str) -> str:
        """The reference of a unit."""
        return keyed_reference(self._secret, session, key)

    async def save(self, originals: Sequence[Original]) -> set[str]:
        """Save originals; returns the references that are safe now. Raises StoreError where none could be saved."""
        safe: set[str] = set()
        fault: StoreError | None = None
        for original in originals:
            session, key, tool = map(_escaped, (original.session, original.key, original.tool))
            about = {"session": session, "key": key, "chars": len(original.text)}
            value = {**about, "tool": tool, "text": _escaped(original.text)}
            try:
                if await self._get("references", original.reference) is None:
                    await self._put(("originals", _label(original.session)), original.reference, value)
                    # Last: what is known here is safe.
                    await self._put(("references",), original.reference, about)
            except StoreError as error:
                fault = error
            else:
                safe.add(original.reference)
        if fault is not None and not safe:
            raise fault
        return safe

    async def save_messages(self, session: str, rows: Sequence[Any]) -> list[str]:
        """Save whole messages; returns one reference a row."""
        try:
            texts = [json.dumps(row, ensure_ascii=False) for row in rows]
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"a message is no plain JSON value, or nested too deep: {error}") from None
        originals = [message_original(self, session, text) for text in texts]
        if len(await self.save(originals)) < len({original.reference for original in originals}):
            raise StoreError("not all messages could be saved")
        return [original.reference for original in originals]

    async def read(self, reference: str, *, session: str | None = None) -> Original:
        """One original; raises OriginalNotFound or OriginalUnreadable."""
        about = await self._get("references", reference) if _is_name(reference) else None
        owner = "" if about is None else _plain(about["session"])
        if about is None or (session is not None and owner not in await self._chain(session)):
            raise OriginalNotFound(f"no original goes by {reference[:40]!r}")
        value = await self._get("originals", _label(owner), reference)
        if value is None or len(text := _plain(value["text"])) != about["chars"]:
            raise OriginalUnreadable(f"the original {reference} is not as it was saved")
        return Original(reference, owner, _plain(value["key"]), _plain(value["tool"]), text)

    async def known(self, references: Iterable[str]) -> dict[str, tuple[str, int]]:
        """Unit key and length of those references that are here."""
        found = {}
        for reference in set(references):
            about = await self._get("references", reference) if _is_name(reference) else None
            if about is not None:
                found[reference] = (_plain(about["key"]), about["chars"])
        return found

    async def save_pass(self, record: PassRecord) -> None:
        """Save what a pass did, then the head it is found by; raises StoreError for a message that is no plain JSON."""
        number = time.time_ns()
        try:
            originals = json.dumps([[row, value] for row, value in record.originals.items()], ensure_ascii=False)
        except (TypeError, ValueError, RecursionError) as error:
            raise StoreError(f"a message is no plain JSON value, or nested too deep: {error}") from None
        facts = {
            **record._asdict(),
            "session": _escaped(record.session),
            "removed": list(record.removed),
            "originals": _escaped(originals),
        }
        await self._put(("passes",), str(number), facts)
        head = {"rows_out": record.rows_out, "sketch": record.sketch}
        await self._put(("anchors", record.anchor), str(number), head)

    async def find_passes(self, anchor: str, most_rows: int | None = None) -> list[PassHead]:
        """Passes whose output began with such a row and had at most so many rows, newest first."""
        found = [
            PassHead(int(key), value["rows_out"], value["sketch"]) for key, value in await self._all("anchors", anchor)
        ]
        fitting = [head for head in found if most_rows is None or head.rows_out <= most_rows]
        return sorted(fitting, key=lambda head: -head.number)

    async def load_pass(self, number: int) -> PassRecord:
        """One record, by its head's number; raises OriginalNotFound."""
        facts = await self._get("passes", str(number))
        if facts is None:
            raise OriginalNotFound(f"no pass has the number {number}")
        originals = dict(json.loads(_plain(facts["originals"])))
        return PassRecord(**{**facts, "session": _plain(facts["session"]), "originals": originals})

    async def save_ledger(self, session: str, ledger: Mapping[str, Any]) -> None:
        """Join a ledger to the session's; raises StoreError for what is no ledger."""
        try:
            joined = Ledger.from_json(ledger)
            before = await self.load_ledger(session)
            whole = joined if before is None else Ledger.from_json(before).merge(joined)
        except JevEngineError as error:
            raise StoreError(f"the ledger of session {session[:80]!r} cannot be saved: {error}") from None
        await self._put(
            ("ledgers",), _label(session), {"ledger": _escaped(json.dumps(whole.to_json(), ensure_ascii=False))}
        )

    async def load_ledger(self, session: str) -> dict[str, Any] | None:
        """The session's ledger as plain JSON, or None where it has none."""
        found = await self._get("ledgers", _label(session))
        return None if found is None else json.loads(_plain(found["ledger"]))

    async def link_session(self, new: str, old: str) -> None:
        """A fork or rotation: `new` may read what `old` has, and begins with its ledger."""
        if await self._get("links", _label(new)) is not None or new in await self._chain(old):
            return
        await self._put(("links",), _label(new), {"parent": _escaped(old)})
        before = await self.load_ledger(old)
        if before is not None:
            await self.save_ledger(new, before)

    async def rank(self, session: str, query: str, limit: int) -> Ranking:
        """The originals of a session that fit a query best. Of equal texts the newest counts."""
        originals: list[tuple[str, Any]] = []
        for name in await self._chain(session):
            originals.extend(await self._all("originals", _label(name)))
        texts = {_plain(value["text"]): number for number, (_, value) in enumerate(originals)}
        held = {number: terms_of(text) for text, number in texts.items()}
        postings = {term: [n for n, terms in held.items() if term in terms] for term in pick_terms(terms_of(query))}
        found = best(postings, len(held), lambda numbers: {n: len(held[n]) for n in numbers}, limit)
        matches = []
        for number, score in found:
            reference, value = originals[number]
            matches.append(Match(reference, _plain(value["tool"]), value["chars"], score))
        return Ranking(matches)

    async def _chain(self, session: str) -> list[str]:
        """A session and those it was linked to, nearest first."""
        chain = [session]
        while (link := await self._get("links", _label(chain[-1]))) is not None:
            chain.append(_plain(link["parent"]))
        return chain

    async def _get(self, *path: str) -> Any:
        found = await self._run("get", (ROOT, *path[:-1]), path[-1])
        return None if found is None else found.value

    async def _put(self, folder: tuple[str, ...], key: str, value: dict[str, Any]) -> None:
        await self._run("put", (ROOT, *folder), key, value, index=False)

    async def _all(self, *folder: str) -> list[tuple[str, Any]]:
        items: list[tuple[str, Any]] = []
        while True:
            found = await self._run("search", (ROOT, *folder), limit=PAGE, offset=len(items))
            items.extend([(item.key, item.value) for item in found])
            if len(found) < PAGE:
                return items

    async def _run(self, name: str, *given: Any, **named: Any) -> Any:
        try:
            try:
                return await getattr(self._store, f"a{name}")(*given, **named)
            except (NotImplementedError, RuntimeError):
                return await to_thread.run_sync(partial(getattr(self._store, name), *given, **named))
        except Exception as error:
            raise StoreError(f"the store failed to {name}: {type(error).__name__}: {error}") from error


def _label(session: str) -> str:
    """A session's name as a label: any but the empty one, and without dots."""
    return "s" + urlsafe_b64encode(session.encode("utf-8", "surrogatepass")).decode("ascii")


def _is_name(reference: str) -> bool:
    return reference.startswith("jx-") and reference.isascii() and reference.isprintable()


def _escaped(text: str) -> Any:
    """The text, or its bytes where half a character or a NUL is in it: not every store can hold those."""
    try:
        text.encode()
    except UnicodeEncodeError:
        pass
    else:
        if "\0" not in text:
            return text
    return {"bytes": b64encode(text.encode("utf-8", "surrogatepass")).decode("ascii")}


def _plain(kept: Any) -> str:
    return b64decode(kept["bytes"]).decode("utf-8", "surrogatepass") if isinstance(kept, dict) else kept
