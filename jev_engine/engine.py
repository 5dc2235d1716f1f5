r"""The engine: messages in, a shorter history out, and everything that led to it.

>>> import asyncio
>>> from jev_engine.testing import ScriptedJudge, call, history, result, user
>>> messages = history(
...     user("Fix the parser."), call("read", path="a.py"), result("x = 1\n" * 900),
...     call("read", path="b.py"), result("y"), call("read", path="c.py"), result("y"), call("test"), result("y"),
... )
>>> engine = ContextEngine(judge=ScriptedJudge({"t1": (0.9, 0.01)}))
>>> done = asyncio.run(engine.compress(messages))
>>> done.outcome, done.decisions[0].action, done.messages[0] is messages[0]
('committed', 'truncate', True)
"""

from __future__ import annotations

import copy
import logging
import math
from collections.abc import Sequence
from types import NoneType
from typing import Any

from jev_engine.answers import Belief, Evidence
from jev_engine.audit.delivery import Delivery
from jev_engine.collector import held_back
from jev_engine.config import EngineConfig, must_be
from jev_engine.decisions import decide
from jev_engine.errors import AdapterError, ConfigError, JevEngineError, TranscriptError
from jev_engine.host import Adapter
from jev_engine.judges import Judge
from jev_engine.judges.local import LocalJudge
from jev_engine.judges.paid import PaidAnswers
from jev_engine.ledger import KeyCache, Ledger
from jev_engine.memory import Memories, folder_of
from jev_engine.passes import Pass
from jev_engine.pinning import pin
from jev_engine.plugins import Plugins, load_plugins
from jev_engine.rebuild import apply, plan_changes, rebuild, validate
from jev_engine.result import CompressionResult
from jev_engine.sizes import CostCache, measure
from jev_engine.store import OriginalStore
from jev_engine.store.memory import MemoryStore
from jev_engine.store.prompt import prompt
from jev_engine.store.restore import Restored, restore
from jev_engine.tokens import TokenCounter
from jev_engine.trail import tell_restored
from jev_engine.transcript import Transcript
from jev_engine.triggers import is_due

__all__ = ["ContextEngine"]

logger = logging.getLogger("jev_engine")

# Facts about texts are kept between passes, for about so many results.
CACHE_SIZE = 50_000
JUDGE_REMEDY = "leave it out for the local judge; make_judge(name) makes one by name, AskedJudge(asker) one of your own"
LEDGER_REMEDY = "Ledger.from_json(…) reads one"


class ContextEngine:
    """Compresses histories. Holds settings, edges and caches of facts; no state of any session.

    Without arguments it works offline: the local judge, originals in memory.
    Raises ConfigError for an argument that is of another kind than it should be, and says how to come by a right one.
    """

    def __init__(
        self,
        *,
        config: EngineConfig | None = None,
        judge: Judge | None = None,
        store: OriginalStore | None = None,
        plugins: Plugins | None = None,
        sinks: Sequence[Any] = (),
        counter: TokenCounter | None = None,
        memories: Memories | None = None,
        evidence: Evidence | Belief | None = None,
    ) -> None:
        must_be((EngineConfig, NoneType), "make_config(…) makes an EngineConfig of keyword arguments", config=config)
        must_be((Judge, NoneType), JUDGE_REMEDY, judge=judge)
        must_be((OriginalStore, NoneType), "SqliteStore(path) keeps originals in a file", store=store)
        must_be((Plugins, NoneType), "load_plugins([plugin]) makes Plugins of plugin objects", plugins=plugins)
        must_be((list, tuple), "give a list of sinks", sinks=sinks)
        must_be((Memories, NoneType), "Memories.load(path, version) reads them", memories=memories)
        must_be((Evidence, Belief, NoneType), "it is an Evidence or a Belief", evidence=evidence)
        self.config = EngineConfig() if config is None else config
        self.judge = judge
        self.store: OriginalStore = MemoryStore() if store is None else store
        self.plugins = load_plugins(entry_points=False) if plugins is None else plugins
        self.sinks = Delivery([*self.plugins.sinks, *sinks])
        self.counter = counter
        # A judge may know how far to believe it: what was fitted for its model, or published.
        self.evidence = evidence or getattr(judge, "belief", None) or Belief()
        shared = getattr(judge, "local", None)
        self.local = shared if isinstance(shared, LocalJudge) else LocalJudge()
        self.memories = memories
        self._keys = KeyCache()
        self._costs = CostCache()

    def with_config(self, config: EngineConfig) -> ContextEngine:
        """This engine with other settings; judge, store, sinks and caches are shared."""
        other = copy.copy(self)
        other.config = config
        return other

    def should_compress(self, prompt_tokens: int | None = None) -> bool:
        """Whether a prompt of so many tokens calls for a pass; False where the number is not known."""
        return prompt_tokens is not None and is_due(prompt_tokens, self.config)

    async def compress(
        self,
        messages: Sequence[Any],
        current_tokens: int | None = None,
        focus_topic: str | None = None,
        force: bool = False,  # noqa: FBT001, FBT002  # the name and place hosts call it by
        *,
        host: str = "auto",
        session: str | None = None,
        ledger: Ledger | None = None,
        goal: str | None = None,
        dry_run: bool = False,
        cache_is_cold: bool = False,
        paid: PaidAnswers | None = None,
        waits_for_host: bool = False,
    ) -> CompressionResult:
        """One pass over a history; whatever a history, judge or store does, it returns, and never worse than the input.

        `dry_run` changes and stores nothing. `cache_is_cold`: the provider holds no prefix any more. `paid`: answers of
        earlier passes. `waits_for_host`: the host says what becomes of the result, see `CompressionResult.fate`.
        """
        flags = {"is_dry": dry_run, "cache_is_cold": cache_is_cold, "waits_for_host": waits_for_host}
        task = Pass(self.config, messages, self.sinks, force=force, paid=paid, **flags)
        try:
            _check(ledger, paid, current_tokens=current_tokens, focus_topic=focus_topic, session=session, goal=goal)
            adapter = self.find_adapter(messages, host, may_be_read_only=dry_run)
            with held_back():
                transcript = adapter.read(messages)
            await self._look(task, transcript, adapter, session, ledger, current_tokens)
            task.pinned(pin(transcript, self.config, rules=(*self.plugins.pins, task.stays_for_now)))
            verdict = await task.judged(self.judge, goal or self.config.goal, focus_topic)
            with held_back():
                local = self.local.answers(transcript, task.left_to_local(verdict), self._memory_of(messages, task))
                decisions = decide(
                    task.pins.candidates,
                    task.weighed(verdict, local, self.evidence),
                    self.config,
                    shorten_only=task.shorten_only(),
                    target_free_tokens=task.target_free_tokens,
                )
                task.proposed(decisions)
                del verdict, local  # answers for every unit, needed no more
            in_force = await task.stored(prompt(self.store))
            with held_back():
                changes = {} if adapter.is_read_only else plan_changes(transcript, in_force, adapter, task.repeated)
                task.check_zone(changes)
                rebuilt = rebuild(transcript, changes, adapter)
                validate(transcript, rebuilt, adapter)
            await task.audited()
            await task.remembered(rebuilt, prompt(self.store))
            return await self._told(task, task.ended(rebuilt))
        except JevEngineError as error:
            return await self._told(task, task.failed(f"{type(error).__name__}: {error}"))
        except Exception as error:
            logger.exception("a pass failed; the history is returned as it came")
            reason = f"internal fault, please report it: {type(error).__name__}: {error}"
            return await self._told(task, task.failed(reason))
        except BaseException as error:
            task.trail.abandoned(type(error).__name__)  # cancelled: whoever reads the trail should not have to guess
            raise

    async def _told(self, task: Pass, done: CompressionResult) -> CompressionResult:
        """Give the sinks their moment; what is wrong with one is a warning and no more."""
        done.stats.warnings.extend(await task.trail.flush())
        return done

    async def inspect(
        self, messages: Sequence[Any], *, host: str = "auto", session: str | None = None, ledger: Ledger | None = None
    ) -> Pass:
        """Read, measure and pin, and stop there: what `compress` would judge, and why the rest is not judged.

        Raises UnknownAdapter or TranscriptError, and ConfigError for what is no ledger.
        """
        must_be((Ledger, NoneType), LEDGER_REMEDY, ledger=ledger)
        task = Pass(self.config, messages, (), force=False, is_dry=True)
        adapter = self.find_adapter(messages, host)
        transcript = adapter.read(messages)
        await self._look(task, transcript, adapter, session, ledger, None)
        task.pinned(pin(transcript, self.config, rules=(*self.plugins.pins, task.stays_for_now)))
        return task

    async def _look(
        self,
        task: Pass,
        transcript: Transcript,
        adapter: Adapter,
        session: str | None,
        ledger: Ledger | None,
        current_tokens: int | None,
    ) -> None:
        self._trim_caches()
        await task.recognise(transcript, ledger, session, prompt(self.store), self._keys)
        with held_back():
            task.measured(measure(transcript, self._costs, self.counter), current_tokens, adapter)

    def _trim_caches(self) -> None:
        # Keys are the host's own strings: what no history holds any more must not be kept alive here for ever.
        for cache in (self._keys, self._costs):
            if len(cache) > CACHE_SIZE:
                cache.clear()

    def _memory_of(self, messages: Sequence[Any], task: Pass) -> tuple[float, float] | None:
        memory = None if self.memories is None else self.memories.of(folder_of(messages))
        task.stats.uses_memory = memory is not None
        return memory

    def apply(self, messages: Sequence[Any], ledger: Ledger, *, host: str = "auto") -> Any:
        """The history with the decisions of a ledger in force: pure, fast, and the same object where none applies.

        Raises UnknownAdapter, TranscriptError or RebuildError, and ConfigError for what is no ledger.
        """
        must_be(Ledger, LEDGER_REMEDY, ledger=ledger)
        with held_back():
            return apply(messages, ledger, self.find_adapter(messages, host), self._keys)

    async def restore(self, messages: Sequence[Any], *, host: str = "auto") -> Restored:
        """The history with every pass undone that the store has a record of; raises StoreError."""
        adapter = self.find_adapter(messages, host)
        done = await restore(messages, prompt(self.store), adapter)
        tell_restored(self.sinks, done, adapter)
        return done

    def find_adapter(self, messages: Sequence[Any], host: str = "auto", *, may_be_read_only: bool = True) -> Adapter:
        """The adapter for a host, or the one that recognises the messages.

        Raises UnknownAdapter, TranscriptError, and AdapterError for a format that cannot be written yet.
        """
        found = self._find_adapter(messages, host)
        if found.is_read_only and not may_be_read_only:
            raise AdapterError(f"{found.name} histories can be judged but not changed yet: use dry_run=True")
        return found

    def _find_adapter(self, messages: Sequence[Any], host: str) -> Adapter:
        given: Any = messages
        if not isinstance(given, Sequence) or isinstance(given, str | bytes):
            raise TranscriptError(f"a history is a list of messages, not {type(given).__name__}")
        if host != "auto":
            return self.plugins.adapter(host)
        found = self.plugins.sniff(messages) if messages else self.plugins.adapter("openai")
        if found is None:
            known = ", ".join(self.plugins.adapter_names())
            raise TranscriptError(f"these messages have none of the known forms ({known}); name it with host=")
        return found


def _check(ledger: Any, paid: Any, *, current_tokens: Any, **texts: Any) -> None:
    """Raises ConfigError for an argument of a pass that is of another kind than it should be."""
    must_be((Ledger, NoneType), LEDGER_REMEDY, ledger=ledger)
    must_be((PaidAnswers, NoneType), "PaidAnswers() makes an empty one", paid=paid)
    must_be((int, float, NoneType), "it is a number of tokens", current_tokens=current_tokens)
    if isinstance(current_tokens, float) and not math.isfinite(current_tokens):
        raise ConfigError(f"current_tokens = {current_tokens!r}: it is a finite number of tokens")
    must_be((str, NoneType), "it is a text", **texts)
