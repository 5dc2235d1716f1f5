"""The hand-over to a summariser: it works on the pruned history, and what it replaces is stored first.

LangChain's `SummarizationMiddleware` summarises in `before_model` and takes messages out of the state: it is given the
pruned history, and what it takes out is stored first. That of deepagents works within the call of the model and takes
nothing out: see `around`.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware
from langgraph.graph.message import add_messages

from jev_engine import bridge, events
from jev_engine.errors import ConfigError, JevEngineError, StoreError
from jev_engine.trail import Trail
from jev_engine_adapters.langgraph.around import AroundSummarizer
from jev_engine_adapters.langgraph.middleware import JevMiddleware
from jev_engine_adapters.langgraph.overhead import overhead_tokens
from jev_engine_adapters.langgraph.reasoning import bound_digests
from jev_engine_adapters.langgraph.runs import thread_of_runtime
from jev_engine_adapters.langgraph.state import LEDGER_KEY, ThreadState

__all__ = ["AfterPruning", "after_pruning"]

logger = logging.getLogger("jev_engine")


def after_pruning(summarizer: AgentMiddleware[Any, Any, Any], jev: JevMiddleware) -> AgentMiddleware[Any, Any, Any]:
    """The summariser as a middleware that counts and summarises what the model would be shown.

    Put it into the agent's list in place of the summariser, followed by `jev`. One that works within the call of the
    model, as deepagents' does, comes back with `jev` inside: then put it there alone. With the setting
    `handover="never"` it never summarises.
    Raises ConfigError for a `jev` that removes calls: the summariser writes messages back into the state as they were,
    and calls whose results are gone would come back without them.
    """
    if jev.compactor.adapter.can_delete:
        message = "after_pruning needs results that are shortened, not removed: make JevMiddleware with on_drop='stub'"
        raise ConfigError(message, setting="on_drop")
    works_within = type(summarizer).wrap_model_call is not AgentMiddleware.wrap_model_call
    return AroundSummarizer(summarizer, jev) if works_within else AfterPruning(summarizer, jev)


class AfterPruning(AgentMiddleware[Any, Any, Any]):
    """A summariser behind a JevMiddleware."""

    def __init__(self, summarizer: AgentMiddleware[Any, Any, Any], jev: JevMiddleware) -> None:
        super().__init__()
        self.summarizer = summarizer
        self.jev = jev
        self.state_schema = summarizer.state_schema
        self.tools = getattr(summarizer, "tools", [])

    @property
    def name(self) -> str:
        """The summariser's own."""
        return str(self.summarizer.name)

    def before_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Let the summariser look at the pruned history."""
        if self.jev.engine.config.handover == "never":
            return None
        pruned = bridge.run(self._pruned, state)
        update = self.summarizer.before_model(pruned, runtime)
        return bridge.run(self._stored, state, pruned, update, thread_of_runtime(runtime))

    async def abefore_model(self, state: Any, runtime: Any) -> dict[str, Any] | None:
        """Let the summariser look at the pruned history."""
        if self.jev.engine.config.handover == "never":
            return None
        pruned = await self._pruned(state)
        asked = self.summarizer.abefore_model(pruned, runtime)
        update = await asked if isinstance(asked, Awaitable) else asked
        return await self._stored(state, pruned, update, thread_of_runtime(runtime))

    async def _pruned(self, state: Any) -> dict[str, Any]:
        """The state with the messages as the model would be shown them."""
        try:
            known = ThreadState.from_json(state.get(LEDGER_KEY))
            return {**state, "messages": list(self.jev.compactor.view(state["messages"], known))}
        except JevEngineError as error:
            logger.warning("the summariser sees the history as it came: %s: %s", type(error).__name__, error)
            return {**state}

    async def _stored(
        self, state: Any, pruned: dict[str, Any], update: dict[str, Any] | None, thread: str | None
    ) -> dict[str, Any] | None:
        """The summariser's update, once the store has every message it takes out; None where that fails."""
        written = None if update is None else update.get("messages")
        if update is None or not written:
            return update
        before: Sequence[Any] = state["messages"]
        kept = {message.id for message in add_messages(list(before), list(written))}
        gone = [message for message in before if message.id not in kept]
        session = thread or (await self._session_of(before))
        adapter, store = self.jev.compactor.adapter, self.jev.engine.store
        try:
            stored = await store.save_messages(session, [adapter.dump(message) for message in gone]) if gone else []
        except StoreError as error:
            logger.warning("nothing was summarised, because the store failed: %s", error)
            return None
        self._tell(session, gone, len(stored), before)
        # What stays is written back as it was, not as it was shown: shortening is for our own passes.
        originals = {m.id: m for m, shown in zip(before, pruned["messages"], strict=False) if m is not shown}
        restored = [originals.get(getattr(m, "id", None), m) for m in written]
        return {**update, "messages": restored, **self._unbound(state, [m for m in before if m.id in kept])}

    def _unbound(self, state: Any, kept: Sequence[Any]) -> dict[str, Any]:
        """Without what stood before it, the reasoning of what stays is bound to nothing: it is left out from now on."""
        digests = bound_digests(kept, -1, self.jev.compactor.bound_reasoning)
        try:
            known = ThreadState.from_json(state.get(LEDGER_KEY))
        except JevEngineError:
            return {}
        return {LEDGER_KEY: known.merge(ThreadState(stripped=frozenset(digests))).to_json()} if digests else {}

    async def _session_of(self, messages: Sequence[Any]) -> str:
        look = await self.jev.engine.inspect(messages, host="langgraph")
        return look.session

    def _tell(self, session: str, gone: Sequence[Any], stored: int, before: Sequence[Any]) -> None:
        if not self.jev.engine.sinks or not gone:
            return
        trail = Trail(self.jev.engine.sinks, host="langgraph", is_pass=False)
        trail.session = session
        transcript = self.jev.compactor.adapter.read(before)
        tokens = round(transcript.chars() / 4) + overhead_tokens(before)
        facts = {"summariser": self.name, "messages": len(gone), "stored": stored, "tokens_before": tokens}
        trail.emit(events.HandedOver, actor="host", **facts)
