"""Lifecycle hooks of the host: what it tells goes into the trail, and a few facts that no member of the engine gets.

A host that lacks a hook, or refuses one, costs detail and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from jev_engine_adapters.hermes.lifecycle import HOOKS, told
from jev_engine_adapters.hermes.state import Budget, Shared, here

__all__ = ["LISTENED", "register_hooks"]

logger = logging.getLogger("jev_engine.hermes")

# Told to nobody, but they say which session a thread works for.
PLACES = ("pre_llm_call", "pre_api_request", "post_api_request", "post_tool_call")
LISTENED = (*HOOKS, *(name for name in PLACES if name not in HOOKS))


def register_hooks(ctx: Any, shared: Shared) -> list[str]:
    """Listen to every hook there is a use for; returns the names of those the host took."""
    register = getattr(ctx, "register_hook", None)
    if not callable(register):
        return []
    taken = []
    for name in LISTENED:
        with suppress(Exception):  # a hook of another version
            register(name, _listener(name, shared))
            taken.append(name)
    shared.hooks.update(taken)
    return taken


def _listener(hook: str, shared: Shared) -> Callable[..., None]:
    def heard(**given: Any) -> None:
        try:
            _take(hook, given, shared)
        except Exception:
            logger.exception("hook %s", hook)

    return heard


def _take(hook: str, given: Mapping[str, Any], shared: Shared) -> None:
    session = given.get("session_id")
    if hook in PLACES and isinstance(session, str) and session:
        here.session = session
        if hook == "pre_api_request":
            _take_reserve(session, given.get("max_tokens"), shared)
            _take_request(session, given.get("request_messages"), shared)
    event = told(hook, given) if shared.is_heard else None
    if event is not None:
        shared.tell(event)


def _take_reserve(session: str, max_tokens: Any, shared: Shared) -> None:
    """What the model may answer is room the history does not have; no member of the engine is told."""
    known = shared.find(session)
    if known is None or isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens <= 0:
        return
    if known.budget.max_tokens != max_tokens:
        budget = Budget()
        for field in Budget.__slots__:
            setattr(budget, field, getattr(known.budget, field))
        budget.max_tokens = max_tokens
        known.switch_model(budget)


def _take_request(session: str, messages: Any, shared: Shared) -> None:
    """A request that shows what a pass did is the proof that the host took it up."""
    known = shared.find(session)
    if known is not None and known.pending and isinstance(messages, list) and known.is_in(messages):
        known.taken_up()
