"""What the process knows of its sessions: kept here by the host's session id, never on an engine instance.

The host copies engine instances, shares one between agents, and makes temporary ones for a session that is live. None
of that may matter, so an instance only holds what the host itself reads and writes.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jev_engine.audit.lifecycle import Told
from jev_engine.bridge import run
from jev_engine.config import EngineConfig
from jev_engine.engine import ContextEngine
from jev_engine.errors import JevEngineError
from jev_engine.result import CompressionResult, Fate
from jev_engine.sessions import Session
from jev_engine.settings import load_settings, open_engine
from jev_engine.store.expand import EXPAND_TOOL
from jev_engine.trail import Trail
from jev_engine.triggers import Trigger

__all__ = ["Budget", "HostSession", "Out", "Shared", "here", "shared"]

logger = logging.getLogger("jev_engine.hermes")

# The protected end of a small window: a fifth of it, so that a forced pass has something to work on.
NEWEST_SHARE = 5
# An answer is never given more than half of the window.
MOST_RESERVED = 2
# Sessions a long-lived gateway keeps in memory; older ones come back from the store and from their markers.
MOST_SESSIONS = 200
# A summariser that failed is tried again after so long, and each time twice as late, up to ten minutes.
COOL_DOWN_SECONDS = 60.0
LONGEST_COOL_DOWN_SECONDS = 600.0
# When the host's own compressor works without an engine of ours: as it does by itself in windows below 512,000 tokens.
WITHOUT_US = EngineConfig(trigger_share=0.75)
RETRY_SECONDS = 30.0
"""Settings that made no engine are read again after so long."""
# Linking two names is one small write.
LINK_SECONDS = 10.0


class Budget:
    """The model an agent works with, as the host last said."""

    __slots__ = ("api_key", "api_mode", "base_url", "context_length", "max_tokens", "model", "provider")

    def __init__(self) -> None:
        self.model = self.base_url = self.provider = self.api_mode = ""
        self.api_key: Any = ""
        """A text, or a function that makes one. For the host's own summariser only; never written down."""
        self.context_length = 0
        """0 while the host has not told."""
        self.max_tokens = 0
        """What the model may answer; 0 where the host has not told."""

    def config(self, base: EngineConfig, **given: Any) -> EngineConfig:
        """The engine's settings for this model."""
        window = self.context_length or base.window_tokens
        reserve = min(self.max_tokens or base.output_reserve_tokens, window // MOST_RESERVED)
        newest = min(base.pin_newest_tokens, window // NEWEST_SHARE)
        known = {"window_tokens": max(1_000, window), "output_reserve_tokens": reserve, "pin_newest_tokens": newest}
        return base.model_copy(update={**known, **given})


class Out(NamedTuple):
    """An original that was left out."""

    reference: str
    tool: str
    chars: int
    is_removed: bool
    """Its call went too."""


class HostSession:
    """One session of the host in this process: counters and caches; everything else is in the store."""

    def __init__(self, name: str, shared: Shared, *, came_from: HostSession | None = None) -> None:
        self.name = name
        self.lock = threading.Lock()
        """One pass at a time."""
        self.budget: Budget = Budget() if came_from is None else came_from.budget
        self.passes = self.hand_overs = self.discarded = 0
        self.last: list[Out] = []
        """What the newest pass took out."""
        self.outs: list[Out] = []
        """What the pass that runs has taken out so far."""
        self.last_words = "no pass yet"
        self.last_freed = 0
        self.is_paused = self.wants_undo = False
        self.is_approved = False
        """The host was told that a pass is due, and has not asked for it yet."""
        self.offers_tools = False
        """The agent was given the tools; only where the host shares one instance between all agents."""
        self.pending: list[Fate] = []
        """Passes given back to the host, of which it is not known yet whether they were taken up."""
        self.pending_texts: set[str] = set()
        """Texts by which a history shows that it was."""
        self.rough_tokens = self.rough_at_report = 0
        """The host's estimates of the whole request: the newest, and the one before its last report of usage."""
        self.retry_at = 0.0
        self.summariser_failures = 0
        self._shared = shared
        self.came_from = None if came_from is None else came_from.name
        self._session: Session | None = None
        self._plain: Trigger | None = None
        if came_from is not None:
            self._inherit(came_from)

    def _inherit(self, old: HostSession) -> None:
        self.passes, self.hand_overs, self.discarded = old.passes, old.hand_overs, old.discarded
        self.last, self.last_words, self.last_freed = old.last, old.last_words, old.last_freed
        self.is_paused, self.offers_tools = old.is_paused, old.offers_tools
        self.pending, old.pending, self.pending_texts = old.pending, [], old.pending_texts
        self.rough_tokens, self.rough_at_report = old.rough_tokens, old.rough_at_report
        self.retry_at, self.summariser_failures = old.retry_at, old.summariser_failures
        if old._session is not None:
            self.core.trigger = old.core.trigger

    @property
    def core(self) -> Session:
        """The session of the engine that stands behind this one; raises JevEngineError where there is no engine."""
        if self._session is None:
            engine = self._shared.engine()
            self._session = Session(engine, self.name, host="hermes", came_from=self.came_from)
            self._session.trigger.config = self.budget.config(engine.config)
        return self._session

    @property
    def trigger(self) -> Trigger:
        """When a pass is due; without an engine, when the host's own compressor has to work."""
        if self._shared.trouble is None:
            return self.core.trigger
        if self._plain is None:
            self._plain = Trigger(self.budget.config(WITHOUT_US))
        return self._plain

    def switch_model(self, budget: Budget) -> None:
        """Another model, or another window of the same one: counts at once."""
        self.budget, self._plain = budget, None
        if self._session is None:
            return
        trigger = self._session.trigger
        fresh = budget.config(self._shared.engine().config)
        window, reserve = fresh.window_tokens, fresh.output_reserve_tokens
        if (window, reserve) != (trigger.config.window_tokens, trigger.config.output_reserve_tokens):
            trigger.switch_model(window, reserve)

    def engine(self, *, offers_tools: bool, is_offline: bool = False, **given: Any) -> ContextEngine:
        """The process's engine with this session's window; `is_offline` asks no judge outside."""
        engine = copy.copy(self._shared.engine())
        tool = EXPAND_TOOL if offers_tools else None
        engine.config = self.budget.config(engine.config, expand_tool=tool, **given)
        if is_offline:
            engine.judge = None
        return engine

    def taken_up(self) -> None:
        """The host goes on with what it was given."""
        pending, self.pending = self.pending, []
        for fate in pending:
            fate.committed()

    def thrown_away(self, reason: str) -> None:
        """It does not; originals that were stored stay where they are."""
        pending, self.pending = self.pending, []
        self.discarded += bool(pending)
        for fate in pending:
            fate.discarded(reason)

    def is_in(self, messages: Sequence[Any]) -> bool:
        """Whether a history shows what the pending passes did."""
        wanted = self.pending_texts
        rows = (message.get("content") for message in messages if isinstance(message, dict))
        return not wanted or any(isinstance(content, str) and content in wanted for content in rows)

    def given_back(self, done: CompressionResult) -> None:
        """A pass that changed the history: noted without the history itself, which many chats could not hold."""
        if not self.pending:
            self.pending_texts = set()
        if done.fate is not None:
            self.pending.append(done.fate)
        out = [decision for decision in done.decisions if decision.action != "keep"]
        self.pending_texts |= {decision.text for decision in out if decision.action == "truncate"}
        self.outs += [Out(d.call.reference, d.call.tool, len(d.call.result or ""), d.action == "remove") for d in out]

    def summariser_failed(self) -> None:
        """It is left alone for a while."""
        seconds = min(COOL_DOWN_SECONDS * 2**self.summariser_failures, LONGEST_COOL_DOWN_SECONDS)
        self.retry_at = time.monotonic() + seconds
        self.summariser_failures += 1

    def summariser_worked(self) -> None:
        """Success clears the wait."""
        self.retry_at, self.summariser_failures = 0.0, 0


class Shared:
    """The engine of this process and its sessions. Made by `open_engine` of the user's settings, at first need."""

    def __init__(self, make_engine: Callable[[], ContextEngine] | None = None) -> None:
        self._make = make_engine or (lambda: open_engine(load_settings()))
        self._lock = threading.RLock()
        self._engine: ContextEngine | None = None
        self._sessions: dict[str, HostSession] = {}
        self._retry_at = 0.0
        self.trouble: str | None = None
        """Why there is no engine; the host's own compressor then does all the work."""
        self.latest = ""
        """The session that was used last."""
        self.hooks: set[str] = set()
        """Lifecycle hooks the host took."""
        self.offers_tools = False
        """Some agent of this process was given the tools."""

    def __len__(self) -> int:
        return len(self._sessions)

    def engine(self) -> ContextEngine:
        """The engine; raises JevEngineError where the user's settings make none."""
        with self._lock:
            if self._engine is None:
                if self.trouble is not None and time.monotonic() < self._retry_at:
                    raise JevEngineError(self.trouble)
                self._retry_at = time.monotonic() + RETRY_SECONDS
                try:
                    self._engine = self._make()
                    self.trouble = None
                except JevEngineError as error:
                    if self.trouble is None:
                        logger.warning("no engine, the host's own compressor does the work: %s", error)
                    self.trouble = str(error)
                    raise
                except Exception as error:
                    self.trouble = f"{type(error).__name__}: {error}"
                    logger.exception("no engine, the host's own compressor does the work")
                    raise JevEngineError(self.trouble) from error
            return self._engine

    def session(self, name: str) -> HostSession:
        """The session of that name, made where it is new."""
        with self._lock:
            known = self._sessions.pop(name, None)
            self._sessions[name] = known = HostSession(name, self) if known is None else known
            self.latest = name
            while len(self._sessions) > MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            return known

    def find(self, name: str) -> HostSession | None:
        """The session of that name, if this process has it."""
        return self._sessions.get(name)

    def rotate(self, old: str, new: str) -> HostSession:
        """A committed compaction: the conversation goes on, maybe under another id, with ledger, archive, counters."""
        with self._lock:
            before = self.session(old)
            if old != new:
                known = self._sessions.get(new)
                if known is None or known.came_from != old:
                    self._sessions[new] = HostSession(new, self, came_from=before)
            self.latest = new
            after = self._sessions[new]
        if old != new:
            self._link(new, old)
        return after

    def _link(self, new: str, old: str) -> None:
        """The new name may read what the old one has, at once and in other processes too."""
        try:
            run(self.engine().store.link_session, new, old, timeout_seconds=LINK_SECONDS)
        except (JevEngineError, TimeoutError) as error:
            logger.warning("session %s was not linked to %s, the next pass tries again: %s", new, old, error)

    @property
    def is_heard(self) -> bool:
        """Whether there is a trail or another sink; without one nothing has to be made for it."""
        return self._engine is not None and bool(self._engine.sinks)

    def tell(self, told: Told, *, actor: str = "host") -> None:
        """Put what the host told into the trail, if there is one."""
        try:
            sinks = self.engine().sinks
        except JevEngineError:
            return
        if sinks:
            Trail(sinks, host="hermes", is_pass=False).tell(told, actor=actor)


class _Here(threading.local):
    """What the thread that runs an agent is working on, as its hooks say: hosts up to 0.17 share one engine."""

    session = ""


here = _Here()
_shared = Shared()


def shared() -> Shared:
    """The one of this process."""
    return _shared
