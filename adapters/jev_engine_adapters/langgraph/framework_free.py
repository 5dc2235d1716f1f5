"""Passes over LangChain messages without any graph, for loops of one's own and for the Functional API."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

from jev_engine import bridge
from jev_engine.engine import ContextEngine
from jev_engine.result import CompressionResult
from jev_engine_adapters.langgraph.overhead import overhead_tokens
from jev_engine_adapters.langgraph.planning import MIN_BATCH_TOKENS, Asked, Compactor
from jev_engine_adapters.langgraph.reasoning import BoundReasoning
from jev_engine_adapters.langgraph.state import ThreadState

__all__ = ["CompactedMessages", "acompact_messages", "compact_messages"]

# Engines keep no state of a session; answers that were paid for are kept here as long as the engine lives.
_compactors: WeakKeyDictionary[ContextEngine, dict[Any, Compactor]] = WeakKeyDictionary()


class CompactedMessages(NamedTuple):
    """The messages to send, and what to keep for the next time."""

    messages: list[Any]
    """The same objects, except for shortened results."""
    ledger: dict[str, Any]
    """Plain JSON: give it back next time, together with the original messages."""
    reason: str
    """Why a pass was made, or why not."""
    report: CompressionResult | None = None
    """The pass, where one was made."""


async def acompact_messages(
    messages: Sequence[Any],
    *,
    engine: ContextEngine,
    ledger: Mapping[str, Any] | None = None,
    session: str | None = None,
    always: bool = False,
    min_batch_tokens: int = MIN_BATCH_TOKENS,
    bound_reasoning: BoundReasoning = "auto",
) -> CompactedMessages:
    """Shorten old results if a pass is due, or `always`, whatever the sizes; what is decided holds in either case.

    `messages` are the originals, which are not changed. `session` names whose they are for the store; without it a name
    is made from how they begin. Raises TranscriptError for a ledger that is none, RebuildError, or AdapterError where
    LangChain is not installed.
    """
    compactor = _compactor(engine, min_batch_tokens, bound_reasoning)
    asked = Asked(session=session, overhead_tokens=overhead_tokens(messages), ignores_trigger=always)
    prepared = await compactor.prepare(messages, ThreadState.from_json(ledger), asked)
    return CompactedMessages(list(prepared.view), prepared.state.to_json(), prepared.reason, prepared.done)


def compact_messages(messages: Sequence[Any], **options: Any) -> CompactedMessages:
    """`acompact_messages` for callers that are not async, within a running loop too."""
    return bridge.run(acompact_messages, messages, **options)


def _compactor(engine: ContextEngine, min_batch_tokens: int, bound_reasoning: BoundReasoning) -> Compactor:
    made = _compactors.setdefault(engine, {})
    key = (min_batch_tokens, bound_reasoning)
    if key not in made:
        made[key] = Compactor(engine, min_batch_tokens=min_batch_tokens, bound_reasoning=bound_reasoning)
    return made[key]
