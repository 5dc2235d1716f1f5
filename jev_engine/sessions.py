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
from jev_engine.ledger import Ledger
from jev_engine.result import CompressionResult
from jev_engine.triggers import Due, Trigger

__all__ = ["Session"]


class Session:
    """A conversation as one host adapter sees it. Safe to use from several threads and event loops."""

    def __init__(self, engine: ContextEngine, name: str, *, host: str = "auto") -> None:
        self.engine = engine
        self.name = name
        self.host = host
        self.trigger = Trigger(engine.config)
        self.ledger = Ledger()
        """The decisions in force, as far as this process knows; the store knows the rest."""
        self.last: CompressionResult | None = None
        """The last pass that went through."""
        self._running: Future[CompressionResult] | None = None
        self._lock = threading.Lock()

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Whether a pass is due; `prompt_tokens` is an estimate of the host and counts only where it never reported."""
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
        with self._lock:
            running = self._running
            if running is None:
                mine: Future[CompressionResult] = Future()
                self._running = mine
        if running is not None:
            done = await to_thread.run_sync(running.result, abandon_on_cancel=True)
            return done.onto(messages)
        try:
            done = await self._pass(messages, current_tokens, focus_topic, force=force, **options)
            mine.set_result(done)
        except BaseException as error:
            # Whoever waits is told; a cancelled pass is nobody's result.
            mine.set_exception(error if isinstance(error, Exception) else RuntimeError("the pass was cancelled"))
            raise
        finally:
            with self._lock:
                self._running = None
        return done

    async def _pass(
        self, messages: Sequence[Any], current_tokens: int | None, focus: str | None, *, force: bool, **options: Any
    ) -> CompressionResult:
        due = self.trigger.due(current_tokens)
        done = await self.engine.compress(
            messages,
            current_tokens if current_tokens is not None else self.trigger.usage_tokens,
            focus,
            force or due.is_forced,
            host=self.host,
            session=self.name,
            ledger=self.ledger,
            **options,
        )
        self.ledger = self.ledger.merge(done.ledger)
        if done.outcome != "failed":
            self.last = done
        self.trigger.ended(done.outcome, tokens_after=done.stats.tokens_after, now=time.monotonic())
        return done
