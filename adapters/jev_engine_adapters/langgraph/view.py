"""What the model is shown: a pure function of messages and state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from jev_engine.ledger import Ledger
from jev_engine.rebuild import apply
from jev_engine_adapters.langgraph import adapter
from jev_engine_adapters.langgraph.reasoning import strip
from jev_engine_adapters.langgraph.state import ThreadState

__all__ = ["compacted_view"]


def compacted_view(messages: Sequence[Any], ledger: Mapping[str, Any] | Ledger | None) -> list[Any]:
    """The messages as the model should see them; pure and idempotent, and the originals stay untouched.

    `ledger` is what a middleware, a node or `compact_messages` put into the state (`state["jev_ledger"]`).
    Raises TranscriptError for anything else.
    """
    state = ThreadState(ledger) if isinstance(ledger, Ledger) else ThreadState.from_json(ledger or None)
    return list(strip(apply(messages, state.ledger, adapter), state.stripped))
