"""What plugins of hosts ask: a pass, an original, a search, and how things stand.

Requests and answers are plain JSON, whatever carries them. No answer holds a word of the conversation back except what
was asked for: a pass answers with steps that name rows of the plugin's own list.
"""

from __future__ import annotations

import asyncio
import json
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from jev_engine.config import EngineConfig
from jev_engine.engine import ContextEngine
from jev_engine.errors import ConfigError, JevEngineError, StoreError, UnknownAdapter
from jev_engine.host import Adapter
from jev_engine.recall.search import search
from jev_engine.result import CompressionResult, Fate
from jev_engine.serve.answers import Verdict, answer_of, chars_of, failure, verdict_of
from jev_engine.serve.pool import SessionPool
from jev_engine.sessions import Session
from jev_engine.settings import UserSettings, default_config_path, load_settings, open_engine, settings_to_read
from jev_engine.store import OriginalStore
from jev_engine.store.expand import PAGE_CHARS, expand
from jev_engine.store.sqlite import SqliteStore

__all__ = ["Desk", "PluginHost"]

logger = logging.getLogger("jev_engine")

MOST_ENGINES = 8
"""One for each set of options that plugins send."""
MOST_PENDING = 256
"""Passes of which the host has not said yet whether it took them up; older ones count as not taken up."""
MOST_TOKENS = 10**12
"""A window that no model has; what claims to be larger is no number of tokens."""
CHARS_A_TOKEN = 4
"""Only to say how large a history is next to itself; what is freed is measured by the engine."""
SHOWN_ENTRIES = 20
"""So many of the results that are out are listed in the status."""
SETTINGS = ("judge", "endpoint", "miss_cost", "goal", "policy", "privacy", "handover", "trigger_share", "profile")
"""What a plugin's user may set there; everything else is in the user's own file."""
# What requests raise that are not what they should be.
_ODD = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)


class PluginHost(Adapter, Protocol):
    """An adapter over what a plugin sends, which also says what the plugin has to do."""

    never_judged: tuple[str, ...]
    """Tools whose results stay as they are."""

    def operations(self, before: Sequence[Any], after: Sequence[Any], given: Mapping[str, Any]) -> Any:
        """Steps by which the plugin's own list becomes `after`; raises RebuildError."""
        ...

    def edits(self, before: Sequence[Any], after: Sequence[Any]) -> Any:
        """The same, for a history that the host's own summariser works on."""
        ...

    def pins(self, messages: Sequence[Any]) -> tuple[str, ...]:
        """Patterns the user has protected in this conversation."""
        ...


class Desk:
    """Answers plugins. Safe to use from several threads; sessions do not wait for each other."""

    def __init__(self, *, may_wait: bool = True, settings: Callable[..., UserSettings] = load_settings) -> None:
        self.pool = SessionPool()
        self._may_wait = may_wait
        self._settings = settings
        self._engines: OrderedDict[str, ContextEngine] = OrderedDict()
        self._pending: OrderedDict[str, Fate] = OrderedDict()
        self._lock = threading.Lock()

    def routes(self) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
        """What can be asked, by path."""
        return {
            "/plugin/compact": self.compact,
            "/plugin/applied": self.applied,
            "/plugin/tool": self.tool,
            "/plugin/status": self.status,
        }

    def close(self) -> None:
        """Let audit trails take what is on its way to them, and close their files; nothing may be asked any more.

        Raises nothing: what cannot be closed keeps nothing else open.
        """
        for engine in self._engines.values():
            for each in (engine.sinks, *engine.sinks):
                try:
                    getattr(each, "close", lambda: None)()
                except Exception:
                    logger.exception("a trail could not be closed")

    def engine_of(self, given: Mapping[str, Any]) -> ContextEngine:
        """The engine for the options of a request; raises ConfigError."""
        sent = given.get("options")
        options: dict[str, Any] = sent if isinstance(sent, dict) else {}
        tool = given.get("expand_tool")
        # A settings file that was changed counts from the next request on.
        known = json.dumps([options, tool, _changed_at(default_config_path())], sort_keys=True)
        with self._lock:
            engine = self._engines.get(known)
            if engine is None:
                chosen = {name: options[name] for name in SETTINGS if options.get(name) not in (None, "")}
                key = options.get("key") or None
                engine = open_engine(self._settings(**chosen), key=key, expand_tool=tool)
                if isinstance(engine.store, SqliteStore):
                    engine.store.index_later = self._may_wait
                self._engines[known] = engine
                while len(self._engines) > MOST_ENGINES:
                    self._engines.popitem(last=False)
            self._engines.move_to_end(known)
            return engine

    def _engine_to_read(self, given: Mapping[str, Any]) -> ContextEngine:
        """As `engine_of`; where the settings make none, one that reads what is stored: a slip hides no original."""
        try:
            return self.engine_of(given)
        except ConfigError:
            return open_engine(settings_to_read()[0].model_copy(update={"audit": None}))

    def compact(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """One pass over a conversation; every fault is an answer that leaves it to the host's own summariser."""
        try:
            return self._compact(given)
        except JevEngineError as error:
            return failure(f"{type(error).__name__}: {error}")
        except _ODD as error:
            return failure(f"the request cannot be understood: {type(error).__name__}: {error}")

    def _compact(self, given: Mapping[str, Any]) -> dict[str, Any]:
        messages = given["messages"]
        if messages and isinstance(given.get("cwd"), str):
            messages[0]["cwd"] = given["cwd"]  # by it the memory of the project is found
        engine = self.engine_of(given)
        host = _plugin_host(engine, given["host"])
        name = _name_of(given)
        session = self.pool.of(name, lambda: Session(engine, name, host=host.name))
        config = _for_this_pass(engine.config, given, messages, host)
        session.engine = engine.with_config(config)
        is_asked = given.get("trigger") != "plugin"
        result = _run(
            session.compress,
            messages,
            None if is_asked else _number(given.get("used_tokens")),
            given.get("instructions") or None,
            force=is_asked,
            waits_for_host=self._may_wait,
        )
        session.last = None  # a whole conversation: the pool keeps what is small
        verdict = verdict_of(result, given, engine.config)
        try:
            stored = self._store_summarised(result, verdict, messages, session)
            answer = answer_of(result, verdict, host, given, stored)
        except JevEngineError as error:
            self._settle(name, result.fate, f"{type(error).__name__}: {error}")
            raise
        self._settle(name, result.fate, verdict.reason if answer["steps"] is None else None)
        if self._may_wait:
            threading.Thread(target=_finish_index, args=(engine.store,), name="jev-engine index", daemon=True).start()
        return answer

    def _store_summarised(
        self, result: CompressionResult, verdict: Verdict, messages: Sequence[Any], session: Session
    ) -> int:
        """Before the host's summariser replaces messages, each is stored; raises StoreError where one cannot be."""
        if verdict.act != "summarise" or result.outcome == "failed":
            return 0
        stored = len(asyncio.run(session.engine.store.save_messages(session.name, messages)))
        if result.fate is not None:
            before = result.stats.tokens_before
            result.fate.handed_over("claude-code", messages=len(messages), stored=stored, tokens_before=before)
        return stored

    def _settle(self, name: str, fate: Fate | None, discarded: str | None) -> None:
        """Remember whose word is still waited for; what is not taken up is told at once."""
        if fate is None or not self._may_wait:
            return
        if discarded is not None:
            fate.discarded(discarded)
            return
        with self._lock:
            before = self._pending.pop(name, None)
            self._pending[name] = fate
            forgotten = [before] if before is not None else []
            while len(self._pending) > MOST_PENDING:
                forgotten.append(self._pending.popitem(last=False)[1])
        for each in forgotten:
            each.discarded("the host never said that it took it up")

    def applied(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The plugin, or a hook, says what became of the last pass of a session."""
        if "session_id" not in given:
            return {"known": False}
        with self._lock:
            fate = self._pending.pop(_name_of(given), None)
        if fate is not None:
            if given.get("reason"):
                fate.discarded(str(given["reason"])[:300])
            else:
                fate.committed()
        return {"known": fate is not None}

    def tool(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """`expand` and `search`, as the agent calls them: always a text."""
        try:
            return self._tool(given)
        except (JevEngineError, *_ODD) as error:
            return {"text": f"[jev-engine: {type(error).__name__}: {error}]", "error": True}

    def _tool(self, given: Mapping[str, Any]) -> dict[str, Any]:
        engine = self._engine_to_read(given)
        asked = given["input"]
        if given["tool"] == "search":
            owner, query = _owner_of(engine, given), str(asked.get("query", ""))
            found = asyncio.run(search(engine.store, owner, query, expand_tool=given.get("expand_tool")))
            return {"text": found.shown}
        reference = str(asked.get("id", ""))
        offset, limit = int(asked.get("offset", 0)), int(asked.get("limit", PAGE_CHARS))
        page = asyncio.run(expand(engine.store, _name_of(given), reference, offset, limit))
        if page.status == "unknown" and given.get("marker") == reference:
            # A copy of a session goes on with the markers of the one it came from.
            owner = asyncio.run(_owner_by(engine.store, reference)) or _name_of(given)
            page = asyncio.run(expand(engine.store, owner, reference, offset, limit))
        return {"text": page.shown, "error": page.status != "page"}

    def status(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """How the session stands, in lines for a person; with `query`, what is out."""
        try:
            engine = self.engine_of(given)
            owner = _owner_of(engine, given)
            query = str(given.get("query") or "")
            if query:
                return {"text": asyncio.run(search(engine.store, owner, query, expand_tool=None)).shown}
            return {"text": _status_text(engine, asyncio.run(engine.store.load_ledger(owner)))}
        except (JevEngineError, *_ODD) as error:
            return {"text": f"jev-engine cannot say: {type(error).__name__}: {error}"}


def _status_text(engine: ContextEngine, kept: Mapping[str, Any] | None) -> str:
    entries = [] if kept is None else kept["entries"]
    chars = sum(entry[4] for entry in entries)
    judge = "local" if engine.judge is None else engine.judge.name
    config = engine.config
    lines = [f"jev-engine: {len(entries):,} results of this session are out ({chars:,} characters, all stored)."]
    lines += [f"Judge: {judge}. Policy: {config.policy}, a miss costs {config.miss_cost:g} calls."]
    lines += [f"  {entry[2]}  {entry[4]:>9,} characters  {_tool_in(entry[3])}" for entry in entries[-SHOWN_ENTRIES:]]
    return "\n".join(lines)


def _owner_of(engine: ContextEngine, given: Mapping[str, Any]) -> str:
    """The session whose originals are meant: the one that asks, or before its first pass the one it was copied from."""
    name, marker = _name_of(given), given.get("marker")
    if isinstance(marker, str) and asyncio.run(engine.store.load_ledger(name)) is None:
        return asyncio.run(_owner_by(engine.store, marker)) or name
    return name


async def _owner_by(store: OriginalStore, reference: str) -> str | None:
    """The session an original belongs to; None where it is nowhere."""
    try:
        return (await store.read(reference)).session
    except StoreError:
        return None


def _finish_index(store: OriginalStore) -> None:
    """Take in for the search what the pass has saved: the host does not wait for that, and a search does it itself."""
    if isinstance(store, SqliteStore):
        with suppress(StoreError):
            store.finish_index()


def _run(work: Callable[..., Coroutine[Any, Any, CompressionResult]], *args: Any, **options: Any) -> CompressionResult:
    """The result of a coroutine, in a loop of its own."""
    kept: list[CompressionResult] = []

    async def work_and_keep() -> None:
        kept.append(await work(*args, **options))

    # As the result of a task it would be written out, conversation and all, where asyncio looks at signals.
    asyncio.run(work_and_keep())
    return kept[0]


def _changed_at(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0


def _plugin_host(engine: ContextEngine, name: str) -> Any:
    host = engine.plugins.adapter(name)
    if not hasattr(host, "operations"):
        raise UnknownAdapter(f"{name!r} is no plugin of a host", known=())
    return host


def _name_of(given: Mapping[str, Any]) -> str:
    agent = given.get("agent_id")
    return f"{given['session_id']}/{agent}" if agent else str(given["session_id"])


def _number(value: Any) -> int | None:
    """A number of tokens; None for anything else, what JSON has beyond all numbers included."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool) and 0 < value < MOST_TOKENS
    return int(value) if is_number else None


def _for_this_pass(config: EngineConfig, given: Mapping[str, Any], messages: Sequence[Any], host: Any) -> EngineConfig:
    """The settings for one pass: the model's window, or, where a smaller conversation was asked for, its own size.

    Who types /compact, and a host at its threshold, wants the conversation smaller, however large the window is.
    """
    changed: dict[str, Any] = {}
    window = _number(given.get("window_tokens"))
    if given.get("trigger") != "plugin":
        window = chars_of(messages) // CHARS_A_TOKEN
    if window is not None:
        changed["window_tokens"] = max(1_000, window)
        changed["output_reserve_tokens"] = 0
    changed["protect_tools"] = (*config.protect_tools, *host.never_judged)
    pinned = host.pins(messages)
    if pinned:
        for field in ("protect_tools", "protect_paths", "protect_ids"):
            changed[field] = (*changed.get(field, getattr(config, field)), *pinned)
    return config.model_copy(update=changed)


def _tool_in(text: str) -> str:
    """What a marker says it stands for."""
    return text.rpartition("[jev-engine: ")[2].split("(", 1)[0].strip()[:80]
