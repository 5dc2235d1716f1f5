"""One call of the host's `compress`, whatever it is for: shorten, rescue an overflow, hand over, or give all back.

It never makes things worse: on any doubt, fault or deadline the list the host gave comes back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple, TypeVar

from jev_engine.bridge import run
from jev_engine.engine import ContextEngine
from jev_engine.errors import JevEngineError
from jev_engine.result import CompressionResult
from jev_engine.sizes import CostCache, measure
from jev_engine.triggers import is_due, usable_tokens
from jev_engine_adapters.hermes.handover import HandedOver, Summariser, keep, load_summariser, summarise
from jev_engine_adapters.hermes.messages import adapter
from jev_engine_adapters.hermes.state import Budget, HostSession
from jev_engine_adapters.hermes.undo import undo_last

__all__ = ["DEADLINE_SECONDS", "Asked", "Done", "compact", "without_us"]

logger = logging.getLogger("jev_engine.hermes")
T = TypeVar("T")

DEADLINE_SECONDS = 60.0
"""Longest a pass takes; newer hosts give up on an engine after 120 s, and older ones wait for ever."""
OFFLINE_SECONDS = 20.0
"""The same for a pass after that, which asks nobody; the longest sessions take a second."""
# How soon a host that has given up is noticed.
POLL_SECONDS = 0.25
# The host calls a rescue a success from 5 % on, by an estimate of its own that differs from ours.
RESCUED_SHARE = 0.08
# Newest calls that stay: first as set, then all but one, then none; only where the turn would be lost.
RESCUE_STEPS: tuple[Mapping[str, Any], ...] = ({}, {"pin_newest_calls": 1}, {"pin_newest_calls": 0})


class Asked(NamedTuple):
    """What the host wants."""

    messages: Sequence[Any]
    tokens: int | None = None
    focus_topic: str | None = None
    is_forced: bool = False
    """A person asked for it."""
    is_overflow: bool = False
    """Nobody said that a pass was due: the provider refused the request, or the host has a limit of its own."""
    memory_context: str = ""
    budget: Budget | None = None
    """Of the agent that asks; None for that which asked last."""
    offers_tools: bool = False
    is_cancelled: Callable[[], bool] = lambda: False


class Done(NamedTuple):
    """What became of it."""

    messages: Any
    """The list the host gave where nothing changed."""
    words: str
    freed_tokens: int = 0
    flags: Mapping[str, Any] | None = None
    """What the host's summariser says of itself, where it took over."""


def compact(session: HostSession, asked: Asked, *, deadline_seconds: float = DEADLINE_SECONDS) -> Done:
    """Carry out one call. Raises nothing of judge, store or summariser."""
    until = time.monotonic() + deadline_seconds
    if not session.lock.acquire(timeout=deadline_seconds):
        return Done(asked.messages, "another pass of this session has not ended in time")
    try:
        if asked.budget is not None:
            session.use(asked.budget)
        if session.wants_undo:
            session.wants_undo = False
            return _undone(session, asked, until)
        if session.is_paused and not (asked.is_forced or asked.is_overflow):
            return Done(asked.messages, "passes are off in this session")
        before = asked.messages
        session.outs = []
        done = _shortened(session, asked, until)
        if asked.is_cancelled():
            session.thrown_away("the host has given up on it")
            return Done(before, "the host has given up on this pass")
        if done is None:
            return Done(before, session.last_words)
        if _should_hand_over(session, asked, done):
            return _handed_over(session, asked, done)
        return _said(session, asked, done)
    finally:
        session.lock.release()


def _shortened(session: HostSession, asked: Asked, until: float) -> CompressionResult | None:
    """The pass, or the steps of a rescue; None where none went through in time."""
    if asked.is_overflow:
        return _rescued(session, asked, until)
    engine = session.engine(offers_tools=asked.offers_tools, budget=asked.budget)
    done = _passed(session, asked, engine, asked.messages, until, is_forced=asked.is_forced)
    if done is not None or engine.judge is None or asked.is_cancelled():
        return done
    # A judge outside that does not end in time is not waited for again.
    engine = session.engine(offers_tools=asked.offers_tools, budget=asked.budget, is_offline=True)
    again = time.monotonic() + OFFLINE_SECONDS
    return _passed(session, asked, engine, asked.messages, again, is_forced=asked.is_forced)


def _rescued(session: HostSession, asked: Asked, until: float) -> CompressionResult | None:
    """Without network, and step by step further, until enough went for the host to go on."""
    messages = asked.messages
    best: CompressionResult | None = None
    freed = 0
    for step in RESCUE_STEPS:
        engine = session.engine(offers_tools=asked.offers_tools, budget=asked.budget, is_offline=True, **step)
        done = _passed(session, asked, engine, messages, until, is_forced=True)
        if done is None:
            break
        if done.outcome == "failed":
            # The store, or a fault: the next step would meet it too.
            best = done if best is None else best
            break
        freed += done.stats.freed_tokens
        messages = done.messages
        before = done.stats.tokens_before if best is None else best.stats.tokens_before
        best = done if best is None or done.stats.freed_tokens else best
        if freed >= RESCUED_SHARE * max(before, asked.tokens or 0):
            break
    if best is not None:
        best.stats.freed_tokens = freed
    return best


def _passed(
    session: HostSession, asked: Asked, engine: ContextEngine, messages: Sequence[Any], until: float, *, is_forced: bool
) -> CompressionResult | None:
    """One pass of the engine, within what is left of the deadline."""
    tokens = asked.tokens
    if asked.is_overflow:
        # The provider says it is full, whatever the host's estimate.
        tokens = max(tokens or 0, usable_tokens(engine.config))
    core = session.core
    core.engine = engine
    left = until - time.monotonic()
    try:
        if left <= 0:
            raise TimeoutError  # noqa: TRY301  # as if the pass itself had met it
        work = partial(core.compress, messages, tokens, asked.focus_topic, is_forced, waits_for_host=True)
        done: CompressionResult = run(_watched, work, asked.is_cancelled, timeout_seconds=left)
    except TimeoutError:
        session.last_words = "the pass did not end in time; nothing was changed"
        session.failed(tokens)
        return None
    if done.messages is not messages:
        session.given_back(done)
    # What the pass was made from is not kept alive.
    core.last = None
    return done


async def _watched(work: Callable[[], Awaitable[T]], is_cancelled: Callable[[], bool]) -> T:
    """What `work` gives; TimeoutError as soon as the host no longer waits for it."""
    task = asyncio.ensure_future(work())
    try:
        while not task.done():
            await asyncio.wait({task}, timeout=POLL_SECONDS)
            if not task.done() and is_cancelled():
                raise TimeoutError
        return task.result()
    finally:
        task.cancel()


def _should_hand_over(session: HostSession, asked: Asked, done: CompressionResult) -> bool:
    """Pruning has met its floor: what is left would call for the next pass at once."""
    if session.core.engine.config.handover != "host":
        return False
    if not asked.is_forced and time.monotonic() < session.retry_at:
        return False
    if done.outcome != "over_capacity":
        return False
    left = _tokens_after(session, asked, done)
    if asked.is_overflow:
        # Enough went for the host to try again; should the provider still refuse, it asks once more.
        return done.stats.freed_tokens < RESCUED_SHARE * (left + done.stats.freed_tokens)
    return is_due(left, session.core.engine.config)


def _tokens_after(session: HostSession, asked: Asked, done: CompressionResult) -> int:
    tokens = done.stats.tokens_before if asked.tokens is None else asked.tokens
    if asked.is_overflow:
        tokens = max(tokens, usable_tokens(session.core.engine.config))
    return tokens - done.stats.freed_tokens


def _handed_over(session: HostSession, asked: Asked, done: CompressionResult) -> Done:
    """The host's summariser works on the shortened history; where it cannot, that history stands."""
    tokens = _tokens_after(session, asked, done)
    summariser = load_summariser()
    try:
        handed = summarise(
            done.messages,
            asked.budget or session.budget,
            summariser=summariser,
            tokens=tokens,
            focus_topic=asked.focus_topic,
            memory_context=asked.memory_context,
            # Where the turn would be lost, as the host does without us; what goes is stored first all the same.
            may_drop=asked.is_overflow,
        )
        if handed is None:
            raise JevEngineError("it is missing, or gave no summary")  # noqa: TRY301  # told as what it raises itself
        stored = run(
            keep, session.core.engine.store, session.name, done.messages, handed, timeout_seconds=DEADLINE_SECONDS
        )
    except Exception as error:  # noqa: BLE001  # the host's summariser and its network: whatever they raise
        session.summariser_failed()
        logger.warning("the host's summariser did not take over: %s", error)
        pruned = _said(session, asked, done)
        return pruned._replace(words=f"{pruned.words}; the host's summariser did not take over: {error}")
    session.summariser_worked()
    session.hand_overs += 1
    after = measure(adapter.read(handed.messages), CostCache(), None).total_tokens
    now = time.monotonic()
    session.core.trigger.ended("committed", tokens_after=after + max(0, tokens - done.stats.tokens_after), now=now)
    name = f"{summariser.__module__}.{summariser.__qualname__}" if summariser is not None else ""
    if done.fate is not None:
        done.fate.handed_over(
            name, messages=len(handed.replaced), stored=stored, tokens_before=tokens, tokens_after=after
        )
    # Markers may be among what was replaced: the new rows show that the host took it up.
    before = {message.get("content") for message in done.messages if isinstance(message.get("content"), str)}
    session.pending_texts = {
        text for message in handed.messages if isinstance(text := message.get("content"), str) and text not in before
    }
    freed = done.stats.freed_tokens + max(0, done.stats.tokens_after - after)
    words = f"{done.reason}; the host's summariser took over: {len(handed.replaced)} messages replaced, all stored"
    _note(session, words, freed)
    return Done(handed.messages, words, freed, handed.flags)


def _said(session: HostSession, asked: Asked, done: CompressionResult) -> Done:
    words = f"{done.outcome}: {done.reason}"
    if done.stats.failures:
        # The name of the error only: its words may quote what was sent.
        words += f"; the judge failed ({done.stats.failures[0].partition(':')[0]}), the local judge decided"
    changed = done.outcome != "failed" and done.messages is not asked.messages
    if changed:
        _note(session, words, done.stats.freed_tokens)
        return Done(done.messages, words, done.stats.freed_tokens)
    session.last_words = words
    return Done(asked.messages, words)


def _note(session: HostSession, words: str, freed_tokens: int) -> None:
    session.passes += 1
    session.last, session.last_words, session.last_freed = session.outs, words, freed_tokens


def _undone(session: HostSession, asked: Asked, until: float) -> Done:
    """The newest pass taken back. Passes stay off until the user turns them on."""
    session.is_paused = True
    left = max(1.0, until - time.monotonic())
    try:
        undone = run(
            undo_last, session.core.engine.store, session.name, asked.messages, session.last, timeout_seconds=left
        )
    except (JevEngineError, TimeoutError) as error:
        session.last_words = f"the last pass could not be undone: {str(error) or 'not in time'}"
        return Done(asked.messages, session.last_words)
    session.last_words = f"undone: {undone.count} results are back whole; passes are off in this session"
    if undone.left:
        session.last_words += f"; {undone.left} cannot be put back here and stay out, jev_expand reads them"
    return Done(undone.messages if undone.count else asked.messages, session.last_words)


def without_us(session: HostSession, asked: Asked, summariser: Summariser | None) -> HandedOver | None:
    """The host's compressor as if this plugin were not there; None where it is missing, fails, or changes nothing."""
    handed = None
    try:
        handed = summarise(
            asked.messages,
            asked.budget or session.budget,
            summariser=summariser,
            tokens=asked.tokens,
            focus_topic=asked.focus_topic,
            memory_context=asked.memory_context,
            may_drop=True,
        )
    except Exception as error:  # noqa: BLE001  # the host's summariser and its network: whatever they raise
        logger.warning("the host's summariser failed: %s", error)
        session.last_words = f"the host's summariser failed: {error}"
    finally:
        if handed is None:
            session.failed(asked.tokens)
        else:
            session.trigger.ended("committed", tokens_after=asked.tokens or 0, now=time.monotonic())
    return handed
