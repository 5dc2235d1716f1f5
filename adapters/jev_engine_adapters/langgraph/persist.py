"""Writing decisions into a graph's state: replacements by message id, and only of what the store can give back.

Never a message without id, never an id that the state does not hold, and never a rewrite of the whole list: other
branches write at the same time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from jev_engine.errors import StoreError
from jev_engine.host import Adapter, RowChange
from jev_engine.ledger import Ledger, assign_keys
from jev_engine.rebuild import plan_changes, rebuild, validate
from jev_engine.store import Original, OriginalStore
from jev_engine.transcript import ToolCall

__all__ = ["must_outlive_the_process", "replacements"]


async def replacements(
    messages: Sequence[Any], ledger: Ledger, adapter: Adapter, store: OriginalStore, session: str
) -> list[Any]:
    """Messages to write so that the state holds what the ledger decided; those of which an original is not safe stay.

    Raises RebuildError where an edit would be more than was decided, UnknownAdapter or TranscriptError.
    """
    transcript = adapter.read(messages)
    changes = plan_changes(transcript, ledger, adapter, assign_keys(transcript, ledger))
    if not changes:
        return []
    safe = await _safe_units(changes.values(), ledger, store, session)
    changes = {row: change for row, change in changes.items() if _may_be_written(messages[row], change, safe)}
    rebuilt = rebuild(transcript, changes, adapter)
    validate(transcript, rebuilt, adapter)
    written: list[Any] = []
    for row in changes:
        position = rebuilt.index_map[row]
        if position is None:
            written.append(_removal(messages[row].id))
        else:
            written.append(await _without_artifact(rebuilt.messages[position], adapter, store, session))
    return written


async def _safe_units(changes: Any, ledger: Ledger, store: OriginalStore, session: str) -> set[int]:
    """Numbers of the units whose original the store has, after it was given those it did not have."""
    units: dict[int, ToolCall] = {}
    for change in changes:
        units.update({call.number: call for call in [*(c for c, _ in change.results), *change.removed]})
    entries = ledger.by_key
    references = {number: entries[call.key].reference for number, call in units.items()}
    try:
        known = {*await store.known(references.values())}
        missing = [
            Original(references[number], session, call.key, call.tool, call.result or "")
            for number, call in units.items()
            if references[number] not in known
        ]
        if missing:
            known |= await store.save(missing)
    except StoreError:
        return set()
    return {number for number, reference in references.items() if reference in known}


def _may_be_written(message: Any, change: RowChange, safe: set[int]) -> bool:
    calls = [*(call for call, _ in change.results), *change.removed]
    return bool(getattr(message, "id", None)) and all(call.number in safe for call in calls)


async def _without_artifact(message: Any, adapter: Adapter, store: OriginalStore, session: str) -> Any:
    """The message without its artifact, once the store has it whole; the artifact stays where JSON cannot hold it."""
    if getattr(message, "artifact", None) is None:
        return message
    row = adapter.dump(message)
    if "artifact" not in row:
        return message
    try:
        [reference] = await store.save_messages(session, [row])
    except StoreError:
        return message
    edited = {**message.response_metadata["context_editing"], "artifact": reference}
    metadata = {**message.response_metadata, "context_editing": edited}
    return message.model_copy(update={"artifact": None, "response_metadata": metadata})


def _removal(message_id: str) -> Any:
    from langchain_core.messages import RemoveMessage  # noqa: PLC0415  # only where histories of LangChain are written

    return RemoveMessage(id=message_id)


def must_outlive_the_process(store: OriginalStore, what: str) -> None:
    """Raise ConfigError for a store that keeps originals in memory only."""
    from jev_engine.errors import ConfigError  # noqa: PLC0415
    from jev_engine.store.memory import MemoryStore  # noqa: PLC0415

    if isinstance(store, MemoryStore):
        raise ConfigError(
            f"{what} takes results out of the state for good, but the engine's store lives in memory only: "
            "give it one that stays, such as ContextEngine(store=SqliteStore()) or BaseStoreOriginals(store)",
            setting="mode",
        )
