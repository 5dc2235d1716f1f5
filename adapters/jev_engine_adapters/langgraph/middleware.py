"""The middleware for `create_agent` and deepagents: one pass, if one is due, around each call of the model.

It has no `before_model` hook: that would be a superstep of its own, and half as much again of every checkpointer's
storage. Decisions are written by a `Command` beside the model's reply.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, NamedTuple, Self

from langchain.agents.middleware import AgentMiddleware, AgentState
from langchain.agents.middleware.types import ExtendedModelResponse, ModelResponse, PrivateStateAttr
from langgraph import types
from langgraph.errors import GraphBubbleUp
from langgraph.types import Command

from jev_engine import bridge
from jev_engine.engine import ContextEngine
from jev_engine.errors import ConfigError, JevEngineError
from jev_engine.store.expand import EXPAND_TOOL
from jev_engine_adapters.langgraph.overhead import overhead_tokens
from jev_engine_adapters.langgraph.persist import must_outlive_the_process
from jev_engine_adapters.langgraph.planning import CHANGED, MIN_BATCH_TOKENS, Asked, Compactor, Prepared
from jev_engine_adapters.langgraph.reasoning import BoundReasoning
from jev_engine_adapters.langgraph.runs import Teller, is_overflow, thread_of_runtime
from jev_engine_adapters.langgraph.settings import Amount, with_settings
from jev_engine_adapters.langgraph.state import LEDGER_KEY, ThreadState, merge_states
from jev_engine_adapters.langgraph.tools import make_expand_tool, make_search_tool

__all__ = ["JevMiddleware", "JevState"]

logger = logging.getLogger("jev_engine")

# Traces show the history with the call of the model itself; a second copy per hook is left out where that can be said.
NO_PAYLOADS: Any = types.TracePolicy(process_inputs=types.omit_payload) if hasattr(types, "TracePolicy") else None


class Step(NamedTuple):
    """One call of the model: what it is shown, and what is written beside its reply."""

    view: Sequence[Any]
    update: dict[str, Any]
    prepared: Prepared | None
    """None where the history is shown as it came because something went wrong."""


class JevState(AgentState):
    """What the middleware adds to an agent's state."""

    # The reducer has to be the last item: LangGraph looks at no other, and without one the last write would win.
    jev_ledger: Annotated[dict[str, Any], PrivateStateAttr, merge_states]


class JevMiddleware(AgentMiddleware):
    """Shortens old tool results before the model sees them.

    `mode="view"` leaves the messages of the state as they are: nothing is lost, and checkpoints stay as large.
    `mode="persist"` also writes the shortened results into the state, by message id, and `mode="marker"` writes one
    marker instead, for a state class with our reducer; for both the engine needs a store that outlives the process.
    `trigger`, `keep` and `exclude_tools` only fill the engine's own settings; what is not given stays as the engine
    has it. Raises ConfigError, which names the argument.
    """

    state_schema = JevState
    trace_policy = NO_PAYLOADS

    def __new__(cls, engine: ContextEngine | None = None, *_: Any, **__: Any) -> Self:
        """With an audit trail, one that tells of calls of tools too: an agent without gets no hook around its tools."""
        is_heard = cls is JevMiddleware and engine is not None and bool(engine.sinks)
        made: Self = super().__new__(TellingMiddleware if is_heard else cls)
        return made

    def __init__(
        self,
        engine: ContextEngine | None = None,
        *,
        mode: Literal["view", "persist", "marker"] = "view",
        trigger: Amount | None = None,
        keep: Amount | None = None,
        min_batch_tokens: int = MIN_BATCH_TOKENS,
        on_drop: Literal["stub", "delete"] = "stub",
        exclude_tools: Iterable[str] = (),
        token_counter: Callable[[Sequence[Any]], int] | None = None,
        expand_tool: bool = True,
        search_tool: bool = False,
        on_error: Literal["keep", "raise"] = "keep",
        bound_reasoning: BoundReasoning = "auto",
        name: str | None = None,
    ) -> None:
        super().__init__()
        for argument, value, allowed in (
            ("mode", mode, ("view", "persist", "marker")),
            ("on_drop", on_drop, ("stub", "delete")),
            ("on_error", on_error, ("keep", "raise")),
            ("bound_reasoning", bound_reasoning, ("auto", "strip", "keep")),
        ):
            if value not in allowed:
                raise ConfigError(f"{argument} = {value!r} is none of {', '.join(allowed)}", setting=argument)
        engine = ContextEngine() if engine is None else engine
        if mode != "view":
            must_outlive_the_process(engine.store, f"mode={mode!r}")
        if mode == "marker" and on_drop == "delete":
            raise ConfigError("on_drop = 'delete': a marker only shortens; use mode='persist'", setting="on_drop")
        self.engine = with_settings(
            engine,
            trigger=trigger,
            keep=keep,
            exclude_tools=exclude_tools,
            expand_tool=(engine.config.expand_tool or EXPAND_TOOL) if expand_tool else None,
        )
        offered = self.engine.config.expand_tool
        self.mode = mode
        self.on_error = on_error
        self.token_counter = token_counter
        self._name = name
        self._compactor = Compactor(
            self.engine,
            host="langgraph-delete" if on_drop == "delete" else "langgraph",
            min_batch_tokens=min_batch_tokens,
            bound_reasoning=bound_reasoning,
        )
        self._teller = Teller(self.engine)
        self.tools = [
            *([make_expand_tool(self.engine.store, name=offered)] if expand_tool and offered else []),
            *([make_search_tool(self.engine.store, expand_tool=offered)] if search_tool else []),
        ]

    @property
    def compactor(self) -> Compactor:
        """What makes its passes."""
        return self._compactor

    @property
    def name(self) -> str:
        """As the agent's graph and deepagents know it; `SummarizationMiddleware` takes the place of theirs."""
        return self._name or "JevMiddleware"

    def wrap_model_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Show the model the history with all decisions in force."""
        step = self._told(request, bridge.run(self._step, request))
        try:
            response = handler(_shown(request, step.view))
        except Exception as error:
            if not is_overflow(error):
                raise
            step = self._told(request, bridge.run(self._rescue, request, step, error))
            response = handler(_shown(request, step.view))
        return self._answer(request, response, step)

    async def awrap_model_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Show the model the history with all decisions in force."""
        step = self._told(request, await self._step(request))
        try:
            response = await handler(_shown(request, step.view))
        except Exception as error:
            if not is_overflow(error):
                raise
            step = self._told(request, await self._rescue(request, step, error))
            response = await handler(_shown(request, step.view))
        return self._answer(request, response, step)

    def _asked(self, request: Any, *, is_forced: bool) -> Asked:
        profile = getattr(request.model, "profile", None) or {}
        system = [] if request.system_message is None else [request.system_message]
        count = self.token_counter
        return Asked(
            session=thread_of_runtime(request.runtime),
            overhead_tokens=overhead_tokens(request.messages, request.system_message, request.tools),
            window_tokens=profile.get("max_input_tokens"),
            counter=None if count is None else lambda view: count([*system, *view]),
            is_forced=is_forced,
        )

    async def _step(self, request: Any, known: ThreadState | None = None, *, is_forced: bool = False) -> Step:
        """What the model is shown; the history as it came where anything is wrong."""
        try:
            state = ThreadState.from_json(request.state.get(LEDGER_KEY)) if known is None else known
            prepared = await self._compactor.prepare(request.messages, state, self._asked(request, is_forced=is_forced))
            update: dict[str, Any] = {LEDGER_KEY: prepared.state.to_json()} if prepared.has_news else {}
            if self.mode != "view":
                written = await self._compactor.written(
                    request.state.get("messages") or [], prepared, as_marker=self.mode == "marker"
                )
                if written:
                    update["messages"] = written
        except Exception as error:
            if self.on_error == "raise":
                raise
            # Whatever it is, an agent that worked without us goes on working.
            is_ours = isinstance(error, JevEngineError)
            logger.warning("the history is shown as it came: %s: %s", type(error).__name__, error, exc_info=not is_ours)
            return Step(request.messages, {}, None)
        return Step(prepared.view, update, prepared)

    async def _rescue(self, request: Any, step: Step, error: Exception) -> Step:
        """A forced pass after the provider refused the prompt; raises its error where that frees nothing."""
        if step.prepared is not None:
            again = await self._step(request, step.prepared.state, is_forced=True)
            done = None if again.prepared is None else again.prepared.done
            if done is not None and done.outcome in CHANGED and done.stats.freed_tokens:
                return again
        raise error

    def _told(self, request: Any, step: Step) -> Step:
        """Tell the audit trail and the custom stream; what is wrong with either changes nothing."""
        self._teller.model_called(request, step.view)
        done = None if step.prepared is None else step.prepared.done
        write = getattr(request.runtime, "stream_writer", None)
        if done is not None and write is not None:
            stats = done.stats
            told = {"outcome": done.outcome, "reason": done.reason, "freed_tokens": stats.freed_tokens,
                    "tokens_before": stats.tokens_before, "tokens_after": stats.tokens_after}  # fmt: skip
            try:
                write({"jev_engine": told})
            except Exception as error:  # noqa: BLE001  # a stream is somebody else's, and the pass stands without it
                logger.warning("a pass could not be told to the stream: %s", type(error).__name__)
        return step

    def _answer(self, request: Any, response: Any, step: Step) -> Any:
        self._teller.model_replied(request, response)
        if not step.update:
            return response
        reply = response if isinstance(response, ModelResponse) else ModelResponse(result=[response])
        return ExtendedModelResponse(model_response=reply, command=Command(update=step.update))


class TellingMiddleware(JevMiddleware):
    """The same where somebody listens: the audit trail also hears of calls of tools."""

    def wrap_tool_call(self, request: Any, handler: Callable[[Any], Any]) -> Any:
        """Tell the audit trail of a call of a tool. An interrupt is no end of it: the call is made again."""
        call = self._teller.tool_called(request)
        try:
            answer = handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:
            call.failed(error)
            raise
        call.returned(answer)
        return answer

    async def awrap_tool_call(self, request: Any, handler: Callable[[Any], Awaitable[Any]]) -> Any:
        """Tell the audit trail of a call of a tool. An interrupt is no end of it: the call is made again."""
        call = self._teller.tool_called(request)
        try:
            answer = await handler(request)
        except GraphBubbleUp:
            raise
        except Exception as error:
            call.failed(error)
            raise
        call.returned(answer)
        return answer


def _shown(request: Any, view: Sequence[Any]) -> Any:
    return request if view is request.messages else request.override(messages=list(view))
