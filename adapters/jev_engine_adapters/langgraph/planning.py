"""One look at a history before the model is called: is a pass due, what did it decide, what is the model shown.

What a pass depends on is in its arguments. A `Compactor` holds only caches: answers that were paid for, and the
decisions of the newest passes, which a step that is run again after a fault gets without asking.
"""

from __future__ import annotations

import copy
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jev_engine.engine import ContextEngine
from jev_engine.judges.paid import PaidAnswers
from jev_engine.passes import Pass
from jev_engine.result import CompressionResult
from jev_engine.triggers import Due, Trigger
from jev_engine_adapters.langgraph.messages import kind_of
from jev_engine_adapters.langgraph.persist import replacements
from jev_engine_adapters.langgraph.reasoning import BoundReasoning, bound_digests, strip
from jev_engine_adapters.langgraph.state import PassMark, ThreadState

__all__ = ["Asked", "Compactor", "Prepared"]

MIN_BATCH_TOKENS = 8_000
"""Tokens that must be judgeable before a pass asks anybody: each pass breaks the provider's cached prefix once."""
MOST_SESSIONS = 256
"""Threads whose paid answers are remembered in this process."""
MOST_REPEATS = 64
"""Passes whose decisions are remembered for a step that is run again."""
CHANGED = ("committed", "over_capacity")


class Asked(NamedTuple):
    """What is known about one call of the model besides its messages."""

    session: str | None = None
    """The thread; without one a name is made from how the history began."""
    overhead_tokens: int = 0
    """System prompt, tools and what of the messages is neither text nor result."""
    window_tokens: int | None = None
    """The model's window, where it is known."""
    counter: Callable[[Sequence[Any]], int] | None = None
    """The caller's own counter of a prompt, given the messages the model would be shown."""
    is_forced: bool = False
    ignores_trigger: bool = False
    """A pass whatever the size, of history and batch."""


class Prepared(NamedTuple):
    """What the model is shown, and why."""

    view: Sequence[Any]
    """The given object itself where nothing is out."""
    state: ThreadState
    has_news: bool
    """Whether the state has to be written."""
    reason: str
    done: CompressionResult | None = None
    """The pass, where one was made just now."""
    session: str = ""


class Compactor:
    """Makes passes over LangChain messages. Safe to use from several threads and event loops."""

    def __init__(
        self,
        engine: ContextEngine,
        *,
        host: str = "langgraph",
        min_batch_tokens: int = MIN_BATCH_TOKENS,
        bound_reasoning: BoundReasoning = "auto",
    ) -> None:
        self.engine = engine
        self.host = host
        self.min_batch_tokens = min_batch_tokens
        self.bound_reasoning: BoundReasoning = bound_reasoning
        self.adapter = engine.find_adapter((), host)
        self._paid: OrderedDict[str, PaidAnswers] = OrderedDict()
        self._repeats: OrderedDict[Any, ThreadState] = OrderedDict()
        self._sized: dict[int, ContextEngine] = {}
        self._lock = threading.Lock()

    async def prepare(self, messages: Sequence[Any], state: ThreadState, asked: Asked) -> Prepared:
        """Make a pass if one is due, and show the history with all decisions in force.

        Raises JevEngineError where the history cannot be read or rebuilt; a pass that fails is no error.
        """
        engine = self._engine_for(asked.window_tokens)
        look = await engine.inspect(messages, host=self.host, session=asked.session, ledger=state.ledger)
        tokens = self._tokens(messages, look, state, asked)
        due = self._due(engine, look, messages, state, asked, tokens)
        if not due:
            return Prepared(self.view(messages, state), state, has_news=False, reason=due.reason, session=look.session)
        ids = tuple([getattr(message, "id", None) for message in messages])
        repeated = (look.session, due.is_forced, look.sizes.chars, state, ids)
        known = self._repeats.get(repeated) if all(ids) else None
        if known is not None:
            view = self.view(messages, known)
            return Prepared(view, known, has_news=True, reason="decided before", session=look.session)
        done = await engine.compress(
            messages,
            tokens,
            force=due.is_forced,
            host=self.host,
            session=look.session,
            ledger=state.ledger,
            paid=self._paid_of(look.session),
        )
        after = self._after(messages, state, done, tokens)
        if done.outcome != "failed":
            with self._lock:
                self._repeats[repeated] = after
                while len(self._repeats) > MOST_REPEATS:
                    self._repeats.popitem(last=False)
        view = self.view(messages, after)
        return Prepared(view, after, has_news=True, reason=done.reason, done=done, session=done.session)

    def view(self, messages: Sequence[Any], state: ThreadState) -> Sequence[Any]:
        """The messages as the model sees them; raises RebuildError."""
        shown: Sequence[Any] = strip(self.engine.apply(messages, state.ledger, host=self.host), state.stripped)
        return shown

    async def written(self, messages: Sequence[Any], prepared: Prepared, *, as_marker: bool = False) -> list[Any]:
        """What to write so that a state holds what is decided: replacements by id, or one marker for our reducers.

        Raises RebuildError or TranscriptError.
        """
        found = await replacements(messages, prepared.state.ledger, self.adapter, self.engine.store, prepared.session)
        if not as_marker or not found:
            return found
        from jev_engine_adapters.langgraph.reducers import compact_marker  # noqa: PLC0415  # imports LangGraph

        marker = compact_marker(messages, found)
        return [] if marker is None else [marker]

    def _due(
        self,
        engine: ContextEngine,
        look: Pass,
        messages: Sequence[Any],
        state: ThreadState,
        asked: Asked,
        tokens: int,
    ) -> Due:
        trigger = Trigger(engine.config)
        for mark in _still_counting(state, messages):
            trigger.ended(mark.outcome, tokens_after=mark.tokens_after, now=mark.at)
        # The model has replied since the last pass, or there was none: what is known now is of today.
        trigger.report(tokens)
        due = trigger.due()
        if asked.is_forced:
            return Due(is_due=True, is_forced=True, reason="asked for")
        if asked.ignores_trigger and not due:
            due = Due(is_due=True, is_forced=False, reason="asked for")
        gain = look.stats.best_gain_tokens
        if due and not due.is_forced and not asked.ignores_trigger and gain < self.min_batch_tokens:
            reason = f"{gain:,} tokens are judgeable, a pass is made from {self.min_batch_tokens:,}"
            return Due(is_due=False, is_forced=False, reason=reason)
        return due

    def _tokens(self, messages: Sequence[Any], look: Pass, state: ThreadState, asked: Asked) -> int:
        """Tokens of the prompt: as reported where the report is of the time after the last pass, else as counted."""
        reported = _reported(messages, look, state)
        if reported is not None:
            return reported
        if asked.counter is not None:
            return asked.counter(self.view(messages, state))
        return look.stats.tokens_before + asked.overhead_tokens

    def _after(self, messages: Sequence[Any], state: ThreadState, done: CompressionResult, tokens: int) -> ThreadState:
        """The state with a pass in it."""
        newest = next((m.id for m in reversed(messages) if kind_of(m) == "ai"), None)
        number = state.passes[-1].number + 1 if state.passes else 1
        after = max(0, tokens - done.stats.freed_tokens)
        mark = PassMark(number, done.outcome, after, round(time.time(), 1), newest or "")
        new = {entry.key for entry in done.ledger if entry.key not in state.ledger}
        rows = [min(c.row, c.result_row) if self.adapter.can_delete else c.result_row
                for c in done.transcript.calls if c.key in new]  # fmt: skip
        stripped = bound_digests(messages, min(rows), self.bound_reasoning) if rows else set()
        ledger = done.ledger if done.outcome != "failed" else state.ledger
        return state.merge(ThreadState(ledger, frozenset(stripped), (mark,)))

    def _engine_for(self, window_tokens: int | None) -> ContextEngine:
        """The engine, at the window of the model; a window the user set stays."""
        config = self.engine.config
        if window_tokens is None or window_tokens < 1_000 or "window_tokens" in config.model_fields_set:
            return self.engine
        known = self._sized.get(window_tokens)
        if known is None:
            known = self._sized[window_tokens] = copy.copy(self.engine)
            known.config = config.model_copy(update={"window_tokens": window_tokens})
        return known

    def _paid_of(self, session: str) -> PaidAnswers:
        with self._lock:
            paid = self._paid.setdefault(session, PaidAnswers())
            self._paid.move_to_end(session)
            while len(self._paid) > MOST_SESSIONS:
                self._paid.popitem(last=False)
        return paid


def _still_counting(state: ThreadState, messages: Sequence[Any]) -> list[PassMark]:
    """The passes made over this history; one whose messages a summariser has taken since says nothing of it."""
    replies = {message.id for message in messages if kind_of(message) == "ai"}
    return [mark for mark in state.passes if not mark.newest_reply or mark.newest_reply in replies]


def _reported(messages: Sequence[Any], look: Pass, state: ThreadState) -> int | None:
    for row in range(len(messages) - 1, -1, -1):
        message = messages[row]
        if kind_of(message) != "ai":
            continue
        usage = getattr(message, "usage_metadata", None)
        stale = {mark.newest_reply for mark in state.passes if mark.outcome in CHANGED}
        if not usage or (message.id and message.id in stale):
            return None
        tokens = usage.get("input_tokens", 0) + usage.get("output_tokens", 0)
        return tokens + look.ruler.behind(row + 1) if usage.get("input_tokens") else None
    return None
