"""A store that may be anybody's: a deadline for every answer, and its faults told as faults of a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Any, cast

import anyio

from jev_engine.errors import JevEngineError, StoreError
from jev_engine.store import Original, OriginalStore, PassRecord

__all__ = ["STORE_SECONDS", "prompt"]

STORE_SECONDS = 10.0
"""For one answer of a store without `deadline_seconds`; the built-in one waits so long for a file others hold."""
ANSWERS: dict[str, type] = {
    "save": Collection,
    "save_messages": Collection,
    "read": Original,
    "known": Mapping,
    "save_pass": object,
    "find_passes": Collection,
    "load_pass": PassRecord,
    "save_ledger": object,
    "load_ledger": object,
    "link_session": object,
    "rank": object,
}
"""What is waited for, and what comes of it."""


class _Prompt:
    """Hands everything on to a store, and waits no longer than that store is given."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._seconds = getattr(store, "deadline_seconds", STORE_SECONDS)

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._store, name)
        return self._timed(name, member) if name in ANSWERS else member

    def _timed(self, name: str, ask: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def answered(*args: Any, **options: Any) -> Any:
            found: Any = None
            try:
                with anyio.move_on_after(self._seconds) as scope:
                    found = await ask(*args, **options)
            except JevEngineError:
                raise
            except Exception as error:
                raise StoreError(f"{self._named(name)} failed: {type(error).__name__}: {error}") from error
            if scope.cancelled_caught:
                raise StoreError(f"{self._named(name)} did not end within {self._seconds:g} s")
            if not isinstance(found, ANSWERS[name]):
                raise StoreError(f"{self._named(name)} returned {type(found).__name__}, not {ANSWERS[name].__name__}")
            return found

        return answered

    def _named(self, name: str) -> str:
        return f"store {type(self._store).__name__}: `{name}`"


def prompt(store: OriginalStore) -> OriginalStore:
    """The same store, each answer of which is there within `store.deadline_seconds` (10), or a StoreError instead.

    A store that never awaits holds the loop, and no deadline reaches it.
    """
    return store if isinstance(store, _Prompt) else cast("OriginalStore", _Prompt(store))
