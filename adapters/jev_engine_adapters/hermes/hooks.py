"""Lifecycle hooks of the host: what it tells goes into the trail, and a few facts that no member of the engine gets.

A host that lacks a hook, or refuses one, costs detail and nothing else.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from jev_engine_adapters.hermes.lifecycle import HOOKS, told
from jev_engine_adapters.hermes.state import Shared
from jev_engine_adapters.hermes.status import COMMAND
from jev_engine_adapters.hermes.which import asking, here, session_of_event

__all__ = ["LISTENED", "register_hooks"]

logger = logging.getLogger("jev_engine.hermes")

# Told to nobody, but they say which session a thread works for.
PLACES = ("pre_llm_call", "pre_api_request", "post_api_request", "pre_tool_call", "post_tool_call")
# The end of a turn, whatever its name says; its history; a helper and whom it helps; a message of a gateway.
OTHERS = ("on_session_end", "post_llm_call", "subagent_start", "pre_gateway_dispatch")
LISTENED = (*HOOKS, *(name for name in (*PLACES, *OTHERS) if name not in HOOKS))


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
    if hook == "pre_gateway_dispatch":
        _take_dispatch(given, shared)
    elif hook == "subagent_start":
        child, parent = given.get("child_session_id"), given.get("parent_session_id")
        if isinstance(child, str) and isinstance(parent, str) and child and parent:
            shared.helps(child, parent)
    elif hook == "on_session_end":
        # Pool threads serve other users next, and hosts up to 0.17 ask for a pass before they name the new turn.
        here.session = ""
    elif isinstance(session, str) and session:
        _take_place(hook, session, given, shared)
    event = told(hook, given) if shared.is_heard else None
    if event is not None:
        shared.tell(event)


def _take_place(hook: str, session: str, given: Mapping[str, Any], shared: Shared) -> None:
    if hook in PLACES:
        here.session = session
    if shared.is_one_instance:
        shared.heard_of(session)
        if hook in ("pre_llm_call", "post_llm_call"):
            shared.words.note(session, given.get("conversation_history"), is_whole=hook == "post_llm_call")
    if hook == "pre_api_request":
        _take_reserve(session, given, shared)
        _take_request(session, given.get("request_messages"), shared)


def _take_dispatch(given: Mapping[str, Any], shared: Shared) -> None:
    """Commands are carried out before the gateway has said whose chat it is; its own table knows."""
    shared.is_gateway = True
    asking.set("")
    if str(getattr(given.get("event"), "text", "")).startswith(f"/{COMMAND}"):
        asking.set(session_of_event(given))


def _take_reserve(session: str, given: Mapping[str, Any], shared: Shared) -> None:
    known, max_tokens = shared.find(session), given.get("max_tokens")
    if known is None or "max_tokens" not in given or isinstance(max_tokens, bool):
        return
    if max_tokens is None:
        known.learn_reserve(0)
    elif isinstance(max_tokens, int) and max_tokens > 0:
        known.learn_reserve(max_tokens)


def _take_request(session: str, messages: Any, shared: Shared) -> None:
    """A request that shows what a pass did is the proof that the host took it up."""
    known = shared.find(session)
    if known is not None and known.pending and isinstance(messages, list) and known.is_in(messages):
        known.taken_up()
