"""`/jev` in a chat: whether the engine works, what its last pass did, which originals are out, and how to go back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jev_engine_adapters.hermes.state import HostSession, Shared
from jev_engine_adapters.hermes.which import chat_session

__all__ = ["COMMAND", "command"]

COMMAND = "jev"
DESCRIPTION = "jev-engine: status, ids, undo, off, on"
MOST_IDS = 20
NOT_TOLD = "this process serves several chats and Hermes does not say which this is, so nothing is shown or changed."
USAGE = "/jev [status | ids | undo | off | on]"


def command(shared: Shared) -> Callable[[str], str]:
    """The handler of the command."""

    def handle(arguments: str = "", *_: Any, **__: Any) -> str:
        words = str(arguments or "").split()
        try:
            return _answer(shared, words[0].lower() if words else "status")
        except Exception as error:  # noqa: BLE001  # a command must not end a chat
            return f"jev-engine: internal fault ({type(error).__name__}), see the log"

    return handle


def _answer(shared: Shared, word: str) -> str:
    if word not in ("status", "ids", "undo", "off", "on"):
        return f"jev-engine: {USAGE}"
    if word == "status" and shared.trouble is not None:
        return f"jev-engine: DEGRADED, the host's own compressor does the work: {shared.trouble}"
    name = _session(shared)
    if name is None:
        return f"jev-engine: {'active; ' if word == 'status' else ''}{NOT_TOLD}"
    session = shared.find(name)
    if word == "status":
        return _status(shared, name, session)
    if not name:
        return "jev-engine: this chat has no session yet."
    if word == "ids":
        return _ids(session)
    if word == "undo":
        shared.undoing.add(name)
        return (
            "jev-engine: type /compress now: instead of shortening, that call brings the results of the last pass back."
            " Passes then stay off in this session until /jev on."
        )
    (shared.paused.add if word == "off" else shared.paused.discard)(name)
    return f"jev-engine: passes are {word} in this session."


def _session(shared: Shared) -> str | None:
    """The session of the chat the command was typed in, empty where it has none; None where nobody can tell."""
    name = chat_session(is_gateway=shared.is_gateway)
    if name is None:
        # One agent, and a host that has no name for it.
        return shared.alone if len(shared) <= 1 else None
    return shared.parent_of(name) or None


def _status(shared: Shared, name: str, session: HostSession | None) -> str:
    state = "OFF in this session (/jev on)" if name in shared.paused else "active"
    if session is None:
        return f"jev-engine: {state}; no pass yet in this chat."
    lines = [f"jev-engine: {state}. {session.passes} passes, {session.hand_overs} handed to the host's summariser."]
    if session.discarded:
        lines.append(f"{session.discarded} passes were thrown away by the host.")
    lines.append(f"Last: {session.last_words}.")
    due = session.core.trigger.due()
    lines.append(f"Next: {'due now' if due.is_due else due.reason}.")
    if not shared.offers_tools:
        lines.append("The tools for reading originals are not offered here (toolset context_engine).")
    lines.append(f"Originals out in the last pass: {len(session.last)} (/jev ids). Take it back: /jev undo.")
    return "\n".join(lines)


def _ids(session: HostSession | None) -> str:
    out = session.last if session is not None else ()
    if not out:
        return "jev-engine: nothing is out in this session."
    lines = [f"{each.reference}  {each.tool[:40]}  {each.chars:,} characters" for each in out[:MOST_IDS]]
    if len(out) > MOST_IDS:
        lines.append(f"and {len(out) - MOST_IDS} more")
    return "\n".join(["jev-engine: left out in the last pass, each intact:", *lines])
