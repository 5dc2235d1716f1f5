"""One session: its counters and caches, and the rule of one pass at a time.

An engine holds no session state; a host adapter keeps a `Session` for each conversation it serves.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

import anyio

from jev_engine.engine import ContextEngine
from jev_engine.errors import JudgeError, StoreError, TranscriptError
from jev_engine.judges.paid import PaidAnswers
from jev_engine.ledger import Ledger
from jev_engine.result import CompressionResult
from jev_engine.store.prompt import prompt
from jev_engine.triggers import Due, Trigger

__all__ = ["Session"]


class _Turn:
    """A pass that runs, what it was asked for, and whoever waits for its end: in any thread, in any event loop."""

    def __init__(self, asked: Mapping[str, Any]) -> None:
        self.asked = asked
        self._future: Future[CompressionResult | None] = Future()

    def ended(self, done: CompressionResult | None) -> None:
        self._future.set_result(done)

    async def wait(self) -> CompressionResult | None:
        """What came of it; None where it has no result to share."""
        event, soon = anyio.Event(), _soon()

        def wake(_: object) -> None:
            with suppress(RuntimeError):  # the loop it waited in has ended, and the waiter with it
                soon(event.set)

        # Woken by a callback: threads that wait would leave none for the pass, which writes to the store in one.
        self._future.add_done_callback(wake)
        await event.wait()
        return self._future.result()


def _soon() -> Callable[[Callable[[], object]], object]:
    """How other threads have something called in the event loop that runs here."""
    if "trio" in sys.modules:
        import trio  # noqa: PLC0415  # loaded already, or this is asyncio

        with suppress(RuntimeError):
            return trio.lowlevel.current_trio_token().run_sync_soon
    return asyncio.get_running_loop().call_soon_threadsafe


# The passes that whatever runs here works for, outermost first.
_inside: ContextVar[tuple[_Turn, ...]] = ContextVar("jev_engine_passes", default=())


class Session:
    """A conversation as one host adapter sees it. Safe to use from several threads and event loops.

    The ledger is kept in the engine's store under the session's name, so it survives the process. A fork or a rotated
    session takes it over with `came_from`; any other new name starts with nothing.
    """

    def __init__(self, engine: ContextEngine, name: str, *, host: str = "auto", came_from: str | None = None) -> None:
        self.engine = engine
        self.name = name
        self.host = host
        self.trigger = Trigger(engine.config)
        self.ledger: Ledger | None = None
        """The decisions in force; None until they have been looked up in the store."""
        self.last: CompressionResult | None = None
        """The last pass that went through."""
        self._came_from = came_from
        self._paid = PaidAnswers()
        self._running: _Turn | None = None
        self._lock = threading.Lock()

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Whether a pass is due; `prompt_tokens` is an estimate and counts only where the host never reported usage."""
        return self.due(prompt_tokens).is_due

    def due(self, estimated_tokens: int | None = None) -> Due:
        """Whether a pass is due, and why or why not."""
        return self.trigger.due(estimated_tokens)

    async def compress(
        self,
        messages: Sequence[Any],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,  # noqa: FBT001, FBT002  # the name and place hosts call it by
        **options: Any,
    ) -> CompressionResult:
        """One pass, as `ContextEngine.compress`, and one at a time.

        A caller that asks the same of a pass that runs gets its result; one with other arguments has its turn behind
        it. Cancellation and failure leave no lock. Raises JudgeError where the judge, store or sink of a pass waits for
        a pass of the session it works for.
        """
        asked = {"current_tokens": current_tokens, "focus_topic": focus_topic, "force": force, **options}
        while True:
            with self._lock:  # the claim is made before the first await
                running = self._running
                if running is None:
                    self._running = mine = _Turn(asked)
            if running is None:
                return await self._take(mine, messages)
            if running in _inside.get():
                raise JudgeError("a judge, store or sink waits for a pass of the very session it works for")
            done = await running.wait()
            if done is not None and running.asked == asked:
                return done.onto(messages)

    async def _take(self, mine: _Turn, messages: Sequence[Any]) -> CompressionResult:
        done: CompressionResult | None = None
        before = _inside.set((*_inside.get(), mine))
        try:
            done = await self._pass(messages, **mine.asked)
        finally:
            _inside.reset(before)
            with self._lock:
                self._running = None
            # A pass that was cancelled or fell over is nobody's result: whoever waits runs its own.
            mine.ended(done)
        return done

    async def _pass(
        self,
        messages: Sequence[Any],
        current_tokens: int | None,
        focus_topic: str | None,
        *,
        force: bool,
        **options: Any,
    ) -> CompressionResult:
        ledger = await self.in_force()
        due = self.trigger.due(current_tokens)
        tokens = current_tokens if current_tokens is not None else self.trigger.usage_tokens
        done = await self.engine.compress(
            messages,
            tokens,
            focus_topic,
            force or due.is_forced,
            host=self.host,
            session=self.name,
            ledger=ledger,
            paid=self._paid,
            **options,
        )
        if options.get("dry_run"):
            return done  # nothing has happened
        if done.outcome != "failed":
            self.last = done
            self.ledger = ledger.merge(done.ledger)
            if len(done.ledger):
                await self._keep(self.ledger, done)
        # What the host counts holds more than the history: its system prompt, its tools.
        after = done.stats.tokens_after if tokens is None else tokens - done.stats.freed_tokens
        self.trigger.ended(done.outcome, tokens_after=after, now=time.monotonic())
        return done

    async def in_force(self) -> Ledger:
        """The ledger of this session; where the store cannot tell, what is in memory.

        Markers in the history still name their originals: a pass rebuilds from them what it needs.
        """
        if self.ledger is None:
            store = prompt(self.engine.store)
            try:
                if self._came_from is not None:
                    await store.link_session(self.name, self._came_from)
                kept = await store.load_ledger(self.name)
                self.ledger = Ledger() if kept is None else Ledger.from_json(kept)
            except (StoreError, TranscriptError):
                self.ledger = Ledger()
        return self.ledger

    async def _keep(self, ledger: Ledger, done: CompressionResult) -> None:
        try:
            await prompt(self.engine.store).save_ledger(self.name, ledger.to_json())
        except StoreError as error:
            done.stats.warnings.append(f"the ledger could not be kept: {error}")
