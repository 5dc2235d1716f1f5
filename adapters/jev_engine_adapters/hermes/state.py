"""What the process knows of its sessions: kept here by the host's session id, never on an engine instance.

The host copies engine instances, shares one between agents, and makes temporary ones for a session that is live. None
of that may matter, so an instance only holds what the host itself reads and writes.
"""

from __future__ import annotations

import copy
import logging
import threading
import time
from collections.abc import Callable, MutableSet, Sequence
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
from jev_engine.triggers import Due, Trigger
from jev_engine_adapters.hermes.paused import Paused, default_path
from jev_engine_adapters.hermes.which import Words, here

__all__ = ["Budget", "HostSession", "Out", "Shared", "here", "shared"]

logger = logging.getLogger("jev_engine.hermes")

# The protected end of a small window: a fifth of it, so that a forced pass has something to work on.
NEWEST_SHARE = 5
# An answer is never given more than half of the window.
MOST_RESERVED = 2
# Sessions a long-lived gateway keeps in memory; older ones come back from the store and from their markers.
MOST_SESSIONS = 200
# Helper agents of which it is known whom they help.
MOST_HELPERS = 1_000
# A summariser that failed is tried again after so long, and each time twice as late, up to ten minutes.
COOL_DOWN_SECONDS = 60.0
LONGEST_COOL_DOWN_SECONDS = 600.0
# When the host's own compressor works without an engine of ours: as it does by itself in windows below 512,000 tokens.
WITHOUT_US = EngineConfig(trigger_share=0.75)
RETRY_SECONDS = 30.0
"""Settings that made no engine are read again after so long."""
# Linking two names is one small write.
LINK_SECONDS = 10.0


class Budget(NamedTuple):
    """The model an agent works with, as the host last said."""

    model: str = ""
    base_url: str = ""
    api_key: Any = ""
    """A text, or a function that makes one. For the host's own summariser only; never written down."""
    provider: str = ""
    api_mode: str = ""
    context_length: int = 0
    """0 while the host has not told."""
    max_tokens: int = 0
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
        """Of the agent that asked last: a session may have several, each with a model of its own."""
        self.reserve = 0
        """What the model may answer, as a hook says; 0 where none did."""
        self.passes = self.hand_overs = self.discarded = 0
        self.last: list[Out] = []
        """What the newest pass took out."""
        self.outs: list[Out] = []
        """What the pass that runs has taken out so far."""
        self.last_words = "no pass yet"
        self.last_freed = 0
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
        self.is_paused, self.wants_undo, self.offers_tools = old.is_paused, old.wants_undo, old.offers_tools
        self.reserve, old.wants_undo = old.reserve, False
        self.pending, old.pending, self.pending_texts = old.pending, [], old.pending_texts
        self.rough_tokens, self.rough_at_report = old.rough_tokens, old.rough_at_report
        self.retry_at, self.summariser_failures = old.retry_at, old.summariser_failures
        if old._session is not None:
            self.core.trigger = old.core.trigger

    @property
    def is_paused(self) -> bool:
        """The user wants no passes here. Kept apart from what memory forgets."""
        return self.name in self._shared.paused

    @is_paused.setter
    def is_paused(self, is_so: bool) -> None:
        (self._shared.paused.add if is_so else self._shared.paused.discard)(self.name)

    @property
    def wants_undo(self) -> bool:
        """The user wants the newest pass taken back by the next call. Kept apart from what memory forgets."""
        return self.name in self._shared.undoing

    @wants_undo.setter
    def wants_undo(self, is_so: bool) -> None:
        (self._shared.undoing.add if is_so else self._shared.undoing.discard)(self.name)

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

    def use(self, budget: Budget) -> None:
        """The window that counts from now on: that of the agent which asks. What was learned about growth stays."""
        trigger = self.trigger
        if budget != self.budget or trigger.config.window_tokens != max(1_000, budget.context_length):
            base = self._shared.engine().config if self._shared.trouble is None else WITHOUT_US
            self.budget = budget
            trigger.config = budget.config(base)

    def switch_model(self, budget: Budget) -> None:
        """An agent has got another model or window: counts at once, and what was learned about growth is forgotten."""
        self.use(budget)
        config = self.trigger.config
        self.trigger.switch_model(config.window_tokens, config.output_reserve_tokens)

    def learn_reserve(self, max_tokens: int) -> None:
        """What the model may answer is room the history does not have; no member of the engine is told."""
        if self.reserve != max_tokens:
            self.reserve = max_tokens
            self.use(self.budget._replace(max_tokens=max_tokens))

    def due(self, budget: Budget, tokens: int, grown_tokens: int) -> Due:
        """Whether a pass is due in the window of the agent that asks."""
        self.use(budget)
        return self.trigger.due(tokens or None, grown_tokens=grown_tokens)

    def failed(self, tokens: int | None) -> None:
        """What was to be done has failed: not again before the context has grown."""
        known = tokens or self.trigger.usage_tokens or self.rough_tokens
        self.trigger.ended("failed", tokens_after=known, now=time.monotonic())

    def engine(
        self, *, offers_tools: bool, is_offline: bool = False, budget: Budget | None = None, **given: Any
    ) -> ContextEngine:
        """The process's engine with this session's window, or that of `budget`; `is_offline` asks no judge outside."""
        engine = copy.copy(self._shared.engine())
        tool = EXPAND_TOOL if offers_tools else None
        engine.config = (budget or self.budget).config(engine.config, expand_tool=tool, **given)
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

    def __init__(
        self, make_engine: Callable[[], ContextEngine] | None = None, *, paused: MutableSet[str] | None = None
    ) -> None:
        self._make = make_engine or (lambda: open_engine(load_settings()))
        self._lock = threading.RLock()
        self._engine: ContextEngine | None = None
        self._sessions: dict[str, HostSession] = {}
        self._retry_at = 0.0
        self.trouble: str | None = None
        """Why there is no engine; the host's own compressor then does all the work."""
        self.hooks: set[str] = set()
        """Lifecycle hooks the host took."""
        self.offers_tools = False
        """Some agent of this process was given the tools."""
        self.paused: MutableSet[str] = set() if paused is None else paused
        """Sessions in which the user wants no passes."""
        self.undoing: set[str] = set()
        """Sessions in which the next call is to take the newest pass back."""
        self.parents: dict[str, str] = {}
        """The session that a helper agent works for, by the helper's own."""
        self.is_gateway = False
        """A gateway has been heard dispatching messages."""
        self.is_one_instance = False
        """The host gives one instance to all its agents, as up to 0.17."""
        self.words = Words()
        """What was said in the sessions of such a host."""
        self._conversations: set[str] = set()
        self._serves_many = False

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
            while len(self._sessions) > MOST_SESSIONS:
                del self._sessions[next(iter(self._sessions))]
            return known

    def find(self, name: str) -> HostSession | None:
        """The session of that name, if this process has it."""
        return self._sessions.get(name)

    @property
    def alone(self) -> str:
        """The one session of this process; empty where there is none or more than one."""
        names = list(self._sessions)
        return names[0] if len(names) == 1 else ""

    @property
    def only(self) -> str:
        """The one session of a host that shares one instance; empty where there may be others."""
        names = list(self._conversations)
        return names[0] if len(names) == 1 and not self._serves_many else ""

    def heard_of(self, session: str) -> None:
        """A host that shares one instance works on that session; empty for one it does not name."""
        if not self._serves_many:
            self._conversations.add(session)
            self._serves_many = len(self._conversations) > 1

    def parent_of(self, session: str) -> str:
        """The session a person talks to: that of the agent which a helper helps."""
        seen = set()
        while session in self.parents and session not in seen:
            seen.add(session)
            session = self.parents[session]
        return session

    def helps(self, child: str, parent: str) -> None:
        """A helper agent was started."""
        with self._lock:
            self.parents[child] = parent
            while len(self.parents) > MOST_HELPERS:
                del self.parents[next(iter(self.parents))]

    def rotate(self, old: str, new: str) -> HostSession:
        """A committed compaction: the conversation goes on, maybe under another id, with ledger, archive, counters."""
        with self._lock:
            before = self.session(old)
            if old != new:
                known = self._sessions.get(new)
                if known is None or known.came_from != old:
                    self._sessions[new] = HostSession(new, self, came_from=before)
            after = self._sessions[new]
            if old in self._conversations:
                self._conversations = self._conversations - {old} | {new}
            self.words.move(old, new)
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


_shared = Shared(paused=Paused(default_path()))


def shared() -> Shared:
    """The one of this process."""
    return _shared
