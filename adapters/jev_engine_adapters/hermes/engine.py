"""The context engine as Hermes wants it, member by member; none of them raises or gives back anything odd.

`HermesEngine` needs no host: it can be tried on a small host of one's own. `engine_class` makes the class that the host
accepts, a child of its own abstract class.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from jev_engine.audit.lifecycle import rotated
from jev_engine.config import EngineConfig
from jev_engine.errors import JevEngineError
from jev_engine.triggers import Due, usable_tokens
from jev_engine_adapters.hermes import tools
from jev_engine_adapters.hermes.compaction import Asked, Done, compact, without_us
from jev_engine_adapters.hermes.fields import HostFields, count
from jev_engine_adapters.hermes.guard import never_raises
from jev_engine_adapters.hermes.handover import FLAGS, load_summariser
from jev_engine_adapters.hermes.messages import adapter, for_host
from jev_engine_adapters.hermes.newer import NewerMembers
from jev_engine_adapters.hermes.state import Budget, HostSession, Shared, shared
from jev_engine_adapters.hermes.which import here

__all__ = ["NAME", "HermesEngine", "engine_class"]

NAME = "jev-engine"
logger = logging.getLogger("jev_engine.hermes")

NOT_TAKEN_UP = "the host did not take it up"
NOT_KNOWN = "the host has not told which session this is"
# So few messages hold nothing that a person could want to have shortened.
FEWEST_MESSAGES = 4


def _same_list(_: Any, messages: Any = None, *__: Any, **___: Any) -> Any:
    return messages


class HermesEngine(HostFields, NewerMembers):
    """What one agent of the host holds. Everything that has to last is in `Shared`, by the host's session id."""

    def __init__(self, shared_state: Shared | None = None, *, is_copy: bool = False) -> None:
        self.shared = shared() if shared_state is None else shared_state
        self._own_name = f"hermes-{uuid.uuid4().hex}"
        self._is_copy = is_copy
        self._offers_tools = False

    @property
    def name(self) -> str:
        """As in `context.engine` of the host's settings."""
        return NAME

    def clone_for_agent(self) -> HermesEngine:
        """An instance for another agent: its budget is copied, what the process knows is shared."""
        clone = type(self)(self.shared, is_copy=True)
        for field in self.COPIED:
            setattr(clone, field, getattr(self, field))
        return clone

    def __deepcopy__(self, memo: dict[int, Any]) -> HermesEngine:
        return self.clone_for_agent()

    # --- which session -----------------------------------------------------------------------------------------------

    @property
    def session(self) -> HostSession:
        """The session this instance works for now."""
        return self.shared.session(self._named() or self._own_name)

    def _named(self, messages: Any = None) -> str:
        """The name of that session; empty where the host has not told it.

        Hosts up to 0.17 share one instance between all agents, so what was told to it last is nobody's in particular:
        there the turn in this thread names it, or else the history. A thread may hold the name of a turn that broke
        off, so a history has to fit.
        """
        if self._is_copy:
            return self._session_id
        only = self.shared.only
        if only or messages is None:
            return only or here.session
        if here.session and self.shared.words.continues(here.session, messages):
            return here.session
        return self.shared.words.owner(messages)

    @never_raises(lambda *_, **__: None)
    def on_session_start(self, session_id: Any = "", **told: Any) -> None:
        """A session begins, or goes on after a committed compaction, maybe under another id."""
        new, old = str(session_id or ""), str(told.get("old_session_id") or "")
        if not new:
            return
        if told.get("boundary_reason") == "compression":
            self._taken_up(old or self.session.name, new)
        else:
            self._session_id = new
            if old and old != new and told.get("carry_over_context"):
                self.shared.rotate(old, new)
            if not self._is_copy:
                self._started_on_one_instance(new)
            session = self.shared.session(new)
            # The host has just told this instance its model; what a hook has told of the session stays.
            session.use(self._budget(session.reserve))
            self.compression_count = session.hand_overs
            if not self._is_copy:
                # One instance for all agents: what was offered to this one says nothing about the next.
                session.offers_tools, self._offers_tools = self._offers_tools, False

    def _started_on_one_instance(self, new: str) -> None:
        self.shared.is_one_instance = True
        self.shared.heard_of(new)
        if here.session and here.session != new and here.budget_before is not None:
            # A helper was made in the middle of a turn: the model told just before is the helper's.
            self.shared.session(here.session).use(here.budget_before)
        here.budget_before = None

    def _taken_up(self, old: str, new: str) -> None:
        self.shared.rotate(old, new).taken_up()
        if self._session_id == old or self._is_copy or not self._session_id:
            self._session_id = new
        if here.session == old:
            here.session = new
        if old != new:
            self.shared.tell(rotated(old, new, "compression"))

    @never_raises(lambda *_, **__: None)
    def bind_session_state(self, session_db: Any = None, session_id: Any = "", **_: Any) -> None:
        """The host's database and the id of the session: on /new, /resume and /branch nothing else tells it."""
        self._session_db = session_db
        self._session_id = str(session_id or "")

    @never_raises(lambda *_, **__: None)
    def carry_over_new_session_context(self, old_session_id: Any = "", new_session_id: Any = "", **_: Any) -> None:
        """A new session takes the history of an old one along."""
        if old_session_id and new_session_id:
            self.shared.rotate(str(old_session_id), str(new_session_id))
            self._session_id = str(new_session_id)

    def on_session_end(self, *_: Any, **__: Any) -> None:
        """Called in every compaction and by background agents too: nothing is deleted here."""

    def on_session_reset(self, **_: Any) -> None:
        """A new conversation on this instance, of which no id is known yet."""
        self._session_id = ""
        self._own_name = f"hermes-{uuid.uuid4().hex}"
        self.last_prompt_tokens = self.last_completion_tokens = self.last_total_tokens = 0
        self.last_real_prompt_tokens = self.last_compression_rough_tokens = self.compression_count = 0
        self.awaiting_real_usage_after_compression = False
        if not self._is_copy:
            here.session = ""
            self.shared.heard_of("")

    # --- the model ---------------------------------------------------------------------------------------------------

    @never_raises(lambda *_, **__: None)
    def update_model(
        self,
        model: Any = "",
        context_length: Any = 0,
        base_url: Any = "",
        api_key: Any = "",
        provider: Any = "",
        api_mode: Any = "",
        max_tokens: Any = None,
        **_: Any,
    ) -> None:
        """Another model, a fallback, or a smaller window that the provider has named: counts at once."""
        self.model, self.base_url, self.api_key = str(model or ""), str(base_url or ""), api_key
        self.provider, self.api_mode = str(provider or ""), str(api_mode or "")
        before, self.context_length = self.context_length, count(context_length)
        if count(max_tokens):
            self.max_tokens = count(max_tokens)
        self.last_prompt_tokens = self.last_completion_tokens = self.last_total_tokens = 0
        self.last_real_prompt_tokens = 0
        try:
            base = self.shared.engine().config
        except JevEngineError:
            base = EngineConfig()
        config = self._budget().config(base)
        self.threshold_tokens = round(config.trigger_share * usable_tokens(config))
        self.threshold_percent = self.threshold_tokens / self.context_length if self.context_length else 0.5
        name = self._session_id if self._is_copy else here.session
        if name:
            session = self.shared.session(name)
            budget = self._budget(session.reserve)
            if not self._is_copy:
                here.budget_before, before = session.budget, session.budget.context_length
            # A new agent on an old session is no switch: what the session has learned stays.
            (session.switch_model if before not in (0, self.context_length) else session.use)(budget)

    def _budget_in(self, session: HostSession) -> Budget:
        """The model of the agent that works on a session now."""
        if not self._is_copy and session.budget.context_length:
            return session.budget
        return self._budget(session.reserve)

    @never_raises(lambda *_, **__: None)
    def update_from_response(self, usage: Any = None, **_: Any) -> None:
        """What the provider counted; an empty report means that it does not count."""
        told = usage if isinstance(usage, Mapping) else {}
        prompt = count(told.get("prompt_tokens")) or sum(
            count(told.get(part)) for part in ("input_tokens", "cache_read_tokens", "cache_write_tokens")
        )
        self.awaiting_real_usage_after_compression = False
        self._verify_compaction_cleared_threshold = False
        if not self._is_copy and not self._named():
            return
        session = self.session
        # Some hosts estimate before every request, others once a turn: an old estimate says nothing about this report.
        session.rough_at_report, session.rough_tokens = session.rough_tokens, 0
        if not prompt:
            self.last_prompt_tokens = max(0, self.last_prompt_tokens)
            session.trigger.report_nothing()
            return
        self.last_prompt_tokens = self.last_real_prompt_tokens = prompt
        self.last_completion_tokens = count(told.get("completion_tokens"))
        self.last_total_tokens = count(told.get("total_tokens"))
        session.trigger.report(prompt)

    # --- when --------------------------------------------------------------------------------------------------------

    def should_compress(self, prompt_tokens: Any = None, *_: Any, **__: Any) -> bool:
        """Whether a pass is due now."""
        return self._due(prompt_tokens).is_due

    def should_compress_info(self, prompt_tokens: Any = None, *_: Any, **__: Any) -> tuple[bool, str | None]:
        """The same with a reason, where one is over the threshold and yet not due."""
        due = self._due(prompt_tokens)
        over = count(prompt_tokens) >= self.threshold_tokens > 0
        return due.is_due, due.reason if over and not due.is_due else None

    @never_raises(lambda *_, **__: Due(is_due=False, is_forced=False, reason="internal fault, see the log"))
    def _due(self, prompt_tokens: Any) -> Due:
        tokens = count(prompt_tokens)
        if not self._is_copy and not self._named():
            return Due(is_due=False, is_forced=False, reason=NOT_KNOWN)
        session = self.session
        # After a tool round the host repeats what the provider counted; otherwise it estimates the whole request.
        grown = 0
        if tokens and tokens != self.last_real_prompt_tokens:
            if session.rough_at_report:
                grown = max(0, tokens - session.rough_at_report)
            session.rough_tokens = tokens
        due = session.due(self._budget_in(session), tokens, grown)
        if session.is_paused and due.is_due:
            due = Due(is_due=False, is_forced=False, reason="passes are off in this session")
        session.is_approved = due.is_due
        return due

    def should_compress_preflight(self, messages: Any = None, *_: Any, **__: Any) -> bool:
        """Nothing to add: newer hosts ask `should_compress` as well."""
        return False

    def should_defer_preflight_to_real_usage(self, rough_tokens: Any = 0, *_: Any, **__: Any) -> bool:
        """Never: `should_compress` itself sets estimates against what was reported."""
        return False

    def get_active_compression_failure_cooldown(self) -> None:
        """None: waiting is part of `should_compress`."""

    @never_raises(lambda *_, **__: True)
    def has_content_to_compress(self, messages: Any = None, *_: Any, **__: Any) -> bool:
        """Whether there is anything that a pass or the host's summariser could shorten."""
        if not isinstance(messages, Sequence) or len(messages) < FEWEST_MESSAGES:
            return False
        config = self.shared.engine().config
        if config.handover == "host":
            return True
        return any(len(call.result or "") > config.pin_short_chars for call in adapter.read(messages).calls)

    # --- the pass ----------------------------------------------------------------------------------------------------

    @never_raises(_same_list)
    def compress(
        self,
        messages: Any,
        current_tokens: Any = None,
        focus_topic: Any = None,
        force: Any = False,  # noqa: FBT002  # the name and place the host calls it by
        memory_context: Any = "",
        **_: Any,
    ) -> Any:
        """The shortened history, or the list that was given where nothing changed."""
        self._reset_flags()
        if not isinstance(messages, list) or not messages:
            return messages
        name = self._named(messages)
        if not name and not self._is_copy:
            logger.warning("a pass was asked for, but %s; nothing was changed", NOT_KNOWN)
            return messages
        session = self.shared.session(name or self._own_name)
        if session.pending:
            # No boundary was told: the history itself shows what became of the pass before.
            session.taken_up() if session.is_in(messages) else session.thrown_away(NOT_TAKEN_UP)
        cancelled = self._compression_cancelled_check
        asked = Asked(
            messages,
            count(current_tokens) or None,
            str(focus_topic) if focus_topic else None,
            is_forced=bool(force),
            is_overflow=not force and not session.is_approved,
            memory_context=memory_context if isinstance(memory_context, str) else "",
            budget=self._budget_in(session),
            offers_tools=self._offers_tools or (not self._is_copy and session.offers_tools),
            is_cancelled=(lambda: bool(cancelled())) if callable(cancelled) else (lambda: False),
        )
        session.is_approved = False
        try:
            self.shared.engine()
        except JevEngineError:
            return self._as_without_us(session, asked)
        try:
            done = compact(session, asked)
        except Exception:
            session.failed(asked.tokens)
            raise
        logger.info("session %s: %s", session.name, done.words)
        return self._given_back(session, asked, done)

    def _given_back(self, session: HostSession, asked: Asked, done: Done) -> Any:
        if done.messages is asked.messages:
            return asked.messages
        self._last_compression_made_progress = True
        if self.shared.is_one_instance:
            self.shared.words.note(session.name, done.messages, is_whole=False)
        if done.flags is not None:
            self.compression_count = session.hand_overs
            for name in FLAGS:
                told = done.flags.get(name)
                setattr(self, name, getattr(type(self), name) if told is None else told)
        return for_host(asked.messages, done.messages)

    def _as_without_us(self, session: HostSession, asked: Asked) -> Any:
        """The user's settings make no engine: the host's compressor works as if this plugin were not there."""
        handed = without_us(session, asked, load_summariser())
        if handed is None:
            return asked.messages
        self._last_compression_made_progress = True
        session.hand_overs += 1
        self.compression_count = session.hand_overs
        return for_host(asked.messages, handed.messages)

    # --- tools and status --------------------------------------------------------------------------------------------

    @never_raises(lambda *_, **__: [])
    def get_tool_schemas(self) -> list[dict[str, Any]]:
        """The tools by which the agent gets originals back. From now on markers of this instance name them."""
        self._offers_tools = self.shared.offers_tools = True
        return tools.schemas()

    @never_raises(lambda *_, **__: tools.error("internal fault, see the log"))
    def handle_tool_call(self, name: Any = "", args: Any = None, **_: Any) -> str:
        """The answer to a call of one of these tools, always a text."""
        session = self.session
        window = self._budget_in(session).context_length
        return tools.answer(session, str(name), args, self._session_db, window=window)

    @never_raises(lambda *_, **__: {})
    def get_status(self) -> dict[str, Any]:
        """Numbers for display, as the host's own engine gives them, and what the newest pass said."""
        used, window = max(0, self.last_prompt_tokens), self.context_length
        session = self.session
        return {
            "last_prompt_tokens": used,
            "threshold_tokens": self.threshold_tokens,
            "context_length": window,
            "usage_percent": min(100, used / window * 100) if window else 0,
            "compression_count": self.compression_count,
            "engine": NAME,
            "state": "degraded" if self.shared.trouble else "off" if session.is_paused else "active",
            "passes": session.passes,
            "last_pass": session.last_words,
        }


def engine_class(base: type) -> type[HermesEngine]:
    """The engine as a child of the host's abstract class, which is all that the host accepts."""
    return type("JevContextEngine", (HermesEngine, base), {"__doc__": HermesEngine.__doc__, "__module__": __name__})
