"""One session: its counters and caches, and the rule of one pass at a time.

An engine holds no session state; a host adapter keeps a `Session` for each conversation it serves.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future
from typing import Any

from anyio import to_thread

from jev_engine.engine import ContextEngine
from jev_engine.errors import StoreError, TranscriptError
from jev_engine.judges.paid import PaidAnswers
from jev_engine.ledger import Ledger
from jev_engine.result import CompressionResult
from jev_engine.triggers import Due, Trigger

__all__ = ["Session"]


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
        self._running: Future[CompressionResult] | None = None
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
        """One pass, as `ContextEngine.compress`; a second caller waits for the pass that runs and gets its result.

        The claim is made before the first await. Cancellation and failure leave no lock.
        """
        mine: Future[CompressionResult] = Future()
        with self._lock:
            running = self._running
            if running is None:
                self._running = mine
        if running is not None:
            return await self._of_the_other(running, messages)
        try:
            done = await self._pass(messages, current_tokens, focus_topic, force=force, **options)
            mine.set_result(done)
        except BaseException:
            # Whoever waits gets the history as it came: a cancelled pass is nobody's result.
            mine.cancel()
            raise
        finally:
            with self._lock:
                self._running = None
        return done

    async def _of_the_other(self, running: Future[CompressionResult], messages: Sequence[Any]) -> CompressionResult:
        def wait() -> CompressionResult | None:
            try:
                return running.result()
            except Exception:  # noqa: BLE001  # a pass that was cancelled or fell over has no result to share
                return None

        done: CompressionResult | None = await to_thread.run_sync(wait, abandon_on_cancel=True)
        return await self.compress(messages) if done is None else done.onto(messages)

    async def _pass(
        self, messages: Sequence[Any], current_tokens: int | None, focus: str | None, *, force: bool, **options: Any
    ) -> CompressionResult:
        ledger = await self.in_force()
        due = self.trigger.due(current_tokens)
        tokens = current_tokens if current_tokens is not None else self.trigger.usage_tokens
        done = await self.engine.compress(
            messages,
            tokens,
            focus,
            force or due.is_forced,
            host=self.host,
            session=self.name,
            ledger=ledger,
            paid=self._paid,
            **options,
        )
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
            store = self.engine.store
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
            await self.engine.store.save_ledger(self.name, ledger.to_json())
        except StoreError as error:
            done.stats.warnings.append(f"the ledger could not be kept: {error}")
