"""Which session of the host a thread, a history or a command in a chat belongs to. Never a guess: no name is an answer.

Hosts up to 0.17 share one engine between all agents, and a gateway runs commands before it has said whose chat it is.
What one user hides, shortens or takes back must never be another's.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from hashlib import blake2b
from typing import Any

from jev_engine_adapters.openai.messages import text_of

__all__ = ["Words", "asking", "chat_session", "here", "session_of_event"]

# Histories of so few characters may be alike by chance ("hello", "How can I help?").
LEAST_CHARS = 100
# Newest states of a session that are known again; a helper that reviews it in the background adds some of its own.
MOST_STATES = 4
MOST_SESSIONS = 200
# Modules of the host that are loaded only where they serve several chats.
MANY_CHATS = ("tui_gateway.server", "acp_adapter.server")


class _Here(threading.local):
    """The session of the turn that runs in this thread, as the hooks of that turn said; empty between turns."""

    session = ""
    budget_before: Any = None
    """The model of that session before the host named another one to the one instance that all agents share."""


here = _Here()

asking: ContextVar[str | None] = ContextVar("jev_engine_hermes_asking", default=None)
"""The session of the message that a gateway is dispatching in this context: empty if unknown, None if there is none."""


class Words:
    """What was said in each session, as digests: enough to know a history again, whatever became of its tool output."""

    def __init__(self) -> None:
        self._states: dict[str, list[tuple[int, bytes]]] = {}
        self._lock = threading.Lock()

    def note(self, session: str, messages: Any, *, is_whole: bool) -> None:
        """A session's history. `is_whole` says that its last answer is complete, as it is at the end of a turn."""
        said = _said(messages)
        if said and said[-1][0] == "assistant" and not is_whole:
            said.pop()
        if not said:
            return
        state = (len(said), _digest(said))
        with self._lock:
            states = [known for known in self._states.pop(session, []) if known != state]
            self._states[session] = [*states, state][-MOST_STATES:]
            while len(self._states) > MOST_SESSIONS:
                del self._states[next(iter(self._states))]

    def move(self, old: str, new: str) -> None:
        """The conversation goes on under another name."""
        with self._lock:
            if old != new and old in self._states:
                self._states[new] = self._states.pop(old)

    def continues(self, session: str, messages: Any) -> bool:
        """Whether a history is what was said in that session, and what the assistant has said since.

        New words of the user make it another turn, and maybe another user's: two may have begun with the same words.
        """
        said = _said(messages)
        with self._lock:
            states = list(self._states.get(session, ()))
        return any(
            count <= len(said)
            and _digest(said[:count]) == digest
            and not any(role == "user" for role, _ in said[count:])
            for count, digest in states
        )

    def owner(self, messages: Any) -> str:
        """The one session whose history this is, with at most new words of the user behind it; empty where none is."""
        said = _said(messages)
        if said and said[-1][0] == "user":
            said.pop()
        if sum(len(text) for _, text in said) < LEAST_CHARS:
            return ""
        state = (len(said), _digest(said))
        with self._lock:
            found = [session for session, states in self._states.items() if state in states]
        return found[0] if len(found) == 1 else ""


def _said(messages: Any) -> list[tuple[str, str]]:
    """Words in order; those of one side in a row are one, as the host joins them itself."""
    parts: list[tuple[str, list[str]]] = []
    for message in messages if isinstance(messages, Sequence) and not isinstance(messages, str | bytes) else ():
        role = message.get("role") if isinstance(message, Mapping) else None
        if role not in ("user", "assistant"):
            continue
        text = text_of(message.get("content"))[0].strip()
        if not text:
            continue
        if parts and parts[-1][0] == role:
            parts[-1][1].append(text)
        else:
            parts.append((str(role), [text]))
    return [(role, "\n\n".join(texts)) for role, texts in parts]


def _digest(said: Sequence[tuple[str, str]]) -> bytes:
    digest = blake2b(digest_size=16)
    for role, text in said:
        digest.update(f"{role}\0{len(text)}\0{text}".encode("utf-8", "surrogatepass"))
    return digest.digest()


def session_of_event(given: Mapping[str, Any]) -> str:
    """The session of a message that a gateway is about to dispatch, as its own table has it; empty where it has none.

    Raises whatever the host raises.
    """
    source = given["event"].source
    key = given["gateway"]._session_key_for_source(source)  # noqa: SLF001  # what the host's own commands ask
    store = given["session_store"]
    if hasattr(store, "peek_session_id"):
        return str(store.peek_session_id(key) or "")
    # Up to 0.17.
    found = [entry.session_id for entry in store.list_sessions() if entry.session_key == key]
    return str(found[0] or "") if len(found) == 1 else ""


def chat_session(*, is_gateway: bool) -> str | None:
    """The session of the chat a command was typed in, as the host says.

    Empty where it serves several and does not say which; None where it serves one and has no name for it.
    """
    told = asking.get()
    if told is not None:
        return told
    if _variable("HERMES_SESSION_PLATFORM", is_bound=True):
        # The host has bound a session to this very context; the process's variable is not asked then.
        return _variable("HERMES_SESSION_ID")
    if is_gateway or _serves_many():
        # The variable of the process names the agent that was made last, whoever it works for.
        return ""
    return _variable("HERMES_SESSION_ID") or None


def _variable(name: str, *, is_bound: bool = False) -> str:
    """A variable of the host's session; with `is_bound` only where this context has a value of its own."""
    process = os.environ.get(name, "")
    try:
        from gateway.session_context import get_session_env  # noqa: PLC0415  # the host's own package

        found = str(get_session_env(name, "") or "")
    except Exception:  # noqa: BLE001  # another version of the host
        found = process
    return "" if is_bound and found == process else found


def _serves_many() -> bool:
    if any(name in sys.modules for name in MANY_CHATS):
        return True
    # A tool of the host loads this one too; only a gateway that runs has put itself there.
    running = getattr(sys.modules.get("gateway.run"), "_gateway_runner_ref", None)
    try:
        if running is not None and running() is not None:
            return True
        from gateway.session_context import session_context_engaged  # noqa: PLC0415  # the host's own package

        return bool(session_context_engaged())
    except Exception:  # noqa: BLE001  # a version without it
        return False
