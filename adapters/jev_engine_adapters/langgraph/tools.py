"""The tools by which an agent gets back what is out: from the thread's own state first, then from a store.

In view mode the originals never left the state, so expanding works with any checkpointer and without any store.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.tools import StructuredTool
from langgraph.prebuilt import ToolRuntime
from pydantic import BaseModel, ConfigDict, Field

from jev_engine import bridge
from jev_engine.errors import OriginalNotFound, TranscriptError
from jev_engine.ledger import assign_keys
from jev_engine.recall.search import DESCRIPTION as SEARCH_DESCRIPTION
from jev_engine.recall.search import SEARCH_TOOL, search
from jev_engine.recognition import session_of
from jev_engine.store import Original, OriginalStore
from jev_engine.store.expand import DESCRIPTION as EXPAND_DESCRIPTION
from jev_engine.store.expand import EXPAND_TOOL, PAGE_CHARS, expand
from jev_engine.transcript import Transcript
from jev_engine_adapters.langgraph import adapter
from jev_engine_adapters.langgraph.originals import BaseStoreOriginals
from jev_engine_adapters.langgraph.runs import thread_of
from jev_engine_adapters.langgraph.state import LEDGER_KEY, ThreadState

__all__ = ["make_expand_tool", "make_search_tool"]


class ExpandArguments(BaseModel):
    """What the model gives."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    id: str = Field(description="The id in the marker, such as jx-0123456789abcdef.")
    offset: int = Field(0, ge=0, description="Character to begin at; 0 is the start.")
    limit: int = Field(PAGE_CHARS, ge=1, le=PAGE_CHARS, description=f"Characters of this page; {PAGE_CHARS} at most.")
    runtime: ToolRuntime
    """Put in by LangGraph; the model is not shown it."""


class SearchArguments(BaseModel):
    """What the model gives."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    query: str = Field(description="What to find: names, paths, words of the text. More of them find better.")
    runtime: ToolRuntime
    """Put in by LangGraph; the model is not shown it."""


def make_expand_tool(
    originals: OriginalStore | Any | None = None,
    *,
    name: str = EXPAND_TOOL,
    page_chars: int = PAGE_CHARS,
    messages_key: str = "messages",
    ledger_key: str = LEDGER_KEY,
) -> StructuredTool:
    """A tool that shows an original by its id, page by page, byte for byte.

    It looks in the state of the thread, then in `originals`: a store of ours, a LangGraph `BaseStore`, or, where
    nothing is given, the `BaseStore` the graph was compiled with. An id nobody knows is answered in words.
    """

    async def read(id: str, offset: int, limit: int, runtime: ToolRuntime) -> str:  # noqa: A002  # the model's word
        state = _state_of(runtime)
        transcript = adapter.read(state.get(messages_key) or [])
        store = _StateFirst(transcript, state.get(ledger_key), _store_of(originals, runtime))
        session = thread_of(runtime.config) or session_of(transcript)
        page: Any = store
        return (await expand(page, session, id, offset, min(limit, page_chars))).shown

    def read_sync(id: str, runtime: ToolRuntime, offset: int = 0, limit: int = PAGE_CHARS) -> str:  # noqa: A002
        return bridge.run(read, id, offset, limit, runtime)

    async def read_async(id: str, runtime: ToolRuntime, offset: int = 0, limit: int = PAGE_CHARS) -> str:  # noqa: A002
        return await read(id, offset, limit, runtime)

    return StructuredTool.from_function(
        read_sync, coroutine=read_async, name=name, description=EXPAND_DESCRIPTION, args_schema=ExpandArguments
    )


def make_search_tool(
    originals: OriginalStore | Any | None = None,
    *,
    name: str = SEARCH_TOOL,
    expand_tool: str | None = EXPAND_TOOL,
    messages_key: str = "messages",
) -> StructuredTool:
    """A tool that searches the stored originals of a thread; `originals` as for `make_expand_tool`."""

    async def find(query: str, runtime: ToolRuntime) -> str:
        store = _store_of(originals, runtime)
        if store is None:
            return "[jev-engine search: no store of originals is set up, so nothing can be searched]"
        session = thread_of(runtime.config) or session_of(adapter.read(_state_of(runtime).get(messages_key) or []))
        return (await search(store, session, query, expand_tool=expand_tool)).shown

    def find_sync(query: str, runtime: ToolRuntime) -> str:
        return bridge.run(find, query, runtime)

    async def find_async(query: str, runtime: ToolRuntime) -> str:
        return await find(query, runtime)

    return StructuredTool.from_function(
        find_sync, coroutine=find_async, name=name, description=SEARCH_DESCRIPTION, args_schema=SearchArguments
    )


def _state_of(runtime: ToolRuntime) -> dict[str, Any]:
    state = runtime.state
    if isinstance(state, Mapping):
        return dict(state)
    return {"messages": state} if isinstance(state, Sequence) else dict(vars(state))


def _store_of(originals: Any, runtime: ToolRuntime) -> OriginalStore | None:
    found = runtime.store if originals is None else originals
    if found is None or isinstance(found, OriginalStore):
        return found
    return BaseStoreOriginals(found)


class _StateFirst:
    """As much of a store as `expand` asks of one: originals that are still in the state, then those of a store."""

    def __init__(self, transcript: Transcript, state: Any, store: OriginalStore | None) -> None:
        self._transcript = transcript
        self._state = state
        self._store = store

    async def read(self, reference: str, *, session: str | None = None) -> Original:
        """One original; raises what the store raises, OriginalNotFound where there is none."""
        text = self._in_state(reference)
        if text is not None:
            return Original(reference, session or "", "", "", text)
        if self._store is None:
            raise OriginalNotFound(f"no original goes by {reference[:40]!r}")
        return await self._store.read(reference, session=session)

    def _in_state(self, reference: str) -> str | None:
        try:
            ledger = ThreadState.from_json(self._state).ledger
        except TranscriptError:
            return None
        entries = {entry.key: entry for entry in ledger if entry.reference == reference}
        if not entries:
            return None
        assign_keys(self._transcript, ledger)
        for call in self._transcript.calls:
            entry = entries.get(call.key)
            if entry is not None and call.result is not None and call.result != entry.text:
                return call.result
        return None
