"""`/jev` in a chat: whether the engine works, what its last pass did, which originals are out, and how to go back."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from jev_engine_adapters.hermes.state import HostSession, Shared, here

__all__ = ["COMMAND", "command"]

COMMAND = "jev"
DESCRIPTION = "jev-engine: status, ids, undo, off, on"
MOST_IDS = 20
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
    session = _session(shared)
    if word == "status":
        return _status(shared, session)
    if word not in ("ids", "undo", "off", "on"):
        return f"jev-engine: {USAGE}"
    if session is None:
        return "jev-engine: this chat has no session yet."
    if word == "ids":
        return _ids(session)
    if word == "undo":
        session.wants_undo = True
        return (
            "jev-engine: type /compress now: instead of shortening, that call brings the results of the last pass back."
            " Passes then stay off in this session until /jev on."
        )
    session.is_paused = word == "off"
    return f"jev-engine: passes are {word} in this session."


def _session(shared: Shared) -> HostSession | None:
    """The session of the chat the command was typed in; None where that cannot be told apart from others."""
    names = [_host_session(), here.session]
    found = next((known for name in names if name and (known := shared.find(name)) is not None), None)
    if found is None and len(shared) == 1:
        return shared.find(shared.latest)
    return found


def _host_session() -> str:
    try:
        from gateway.session_context import get_session_env  # noqa: PLC0415  # the host's own package

        return str(get_session_env("HERMES_SESSION_ID", "") or "")
    except Exception:  # noqa: BLE001  # another version of the host
        return os.environ.get("HERMES_SESSION_ID", "")


def _status(shared: Shared, session: HostSession | None) -> str:
    if shared.trouble is not None:
        return f"jev-engine: DEGRADED, the host's own compressor does the work: {shared.trouble}"
    if session is None:
        return "jev-engine: active; no pass yet in this chat."
    state = "OFF in this session (/jev on)" if session.is_paused else "active"
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


def _ids(session: HostSession) -> str:
    out = session.last
    if not out:
        return "jev-engine: nothing is out in this session."
    lines = [f"{each.reference}  {each.tool[:40]}  {each.chars:,} characters" for each in out[:MOST_IDS]]
    if len(out) > MOST_IDS:
        lines.append(f"and {len(out) - MOST_IDS} more")
    return "\n".join(["jev-engine: left out in the last pass, each intact:", *lines])
