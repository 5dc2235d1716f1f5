"""Agents for tests on the real libraries: a fake chat model with a plan, a tool that returns a lot, scripted judges."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Callable, Sequence
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from langchain.agents import create_agent
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, SystemMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langchain_core.tools import tool
from pydantic import Field

from jev_engine import ContextEngine, EngineConfig
from jev_engine.answers import RawAnswer
from jev_engine.judges import JudgeRequest, Verdict
from jev_engine.transcript import ToolCall
from jev_engine_adapters.langgraph import JevMiddleware
from jev_engine_adapters.langgraph.reducers import DELTA_SINCE

RESULT_CHARS = 8_000
HAS_DELTA = tuple(int(part) for part in version("langgraph").split(".")[:3]) >= DELTA_SINCE
"""Older versions of LangGraph have a DeltaChannel that can wait for ever: there our state class says so."""
PROFILE = {"max_input_tokens": 200_000}


def text_of_step(step: int, chars: int = RESULT_CHARS) -> str:
    """A result of so many characters, another one for every step."""
    line = f"step {step} {hashlib.sha256(str(step).encode()).hexdigest()} the quick brown fox\n"
    return (line * (chars // len(line) + 1))[:chars]


@tool
def fetch(step: int, chars: int = RESULT_CHARS) -> str:
    """Fetch what belongs to a step."""
    return text_of_step(step, chars)


class PlannedModel(BaseChatModel):
    """Replies by a plan: a function of the number of its own replies so far and of the messages it is shown."""

    plan: Any
    seen: list[list[BaseMessage]] = Field(default_factory=list)
    """What it was shown, call by call."""
    profile: Any = None

    @property
    def _llm_type(self) -> str:
        return "planned"

    def bind_tools(self, tools: Any, **_: Any) -> PlannedModel:
        """The plan knows its tools."""
        return self

    def _generate(self, messages: list[BaseMessage], stop: Any = None, run_manager: Any = None, **_: Any) -> ChatResult:
        self.seen.append(list(messages))
        number = sum(isinstance(message, AIMessage) for message in messages)
        return ChatResult(generations=[ChatGeneration(message=self.plan(number, messages))])


def steps(
    count: int, per_turn: int = 1, chars: int = RESULT_CHARS
) -> Callable[[int, Sequence[BaseMessage]], AIMessage]:
    """A plan: so many turns of calls, then a last word."""

    def reply(number: int, _: Sequence[BaseMessage]) -> AIMessage:
        if number >= count:
            return AIMessage("All done.")
        calls = [
            {"name": "fetch", "args": {"step": number * per_turn + slot, "chars": chars}, "id": f"call_{number}_{slot}"}
            for slot in range(per_turn)
        ]
        return AIMessage("", tool_calls=calls)

    return reply


def steps_in_turn(count: int) -> Callable[[int, Sequence[BaseMessage]], AIMessage]:
    """The same plan for a model whose earlier replies may be summarised: it counts for itself."""
    numbers, reply = itertools.count(), steps(count)
    return lambda _, messages: reply(next(numbers), messages)


class CountingJudge:
    """Answers by a digest of the call, so that a quarter stays; counts requests and questions."""

    name = "counting"
    version = "counting-1"
    is_calibrated = False

    def __init__(self, answer: Callable[[ToolCall], tuple[float, float]] | None = None) -> None:
        self.answer = answer or _quarter_stays
        self.requests = 0
        self.questions: list[str] = []

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Answer, and count."""
        self.requests += 1
        verdict = Verdict()
        verdict.requests = 1
        for call in request.candidates:
            self.questions.append(call.key)
            verdict.answers[call.key] = RawAnswer(*self.answer(call))
        return verdict


def _quarter_stays(call: ToolCall) -> tuple[float, float]:
    share = hashlib.sha256(call.arguments.encode()).digest()[0] / 256
    return 0.9, 0.9 if share < 0.25 else 0.1


def config(**changes: Any) -> EngineConfig:
    """Settings under which a scripted judge decides alone, from 20,000 tokens on."""
    given = {
        "policy": "threshold",
        "keep_result": 0.5,
        "keep_call": 0.0,
        "min_freed_share": 0.0,
        "trigger_share": 0.1,
        "target_share": 0.1,
        "pin_newest_calls": 3,
    }
    return EngineConfig(**{**given, **changes})


def engine(judge: Any = None, *, store: Any = None, sinks: Sequence[Any] = (), **changes: Any) -> ContextEngine:
    """An engine with a counting judge."""
    return ContextEngine(config=config(**changes), judge=judge or CountingJudge(), store=store, sinks=sinks)


def agent(
    model: Any, *middleware: Any, checkpointer: Any = None, tools: Sequence[Any] = (fetch,), **options: Any
) -> Any:
    """An agent of LangChain."""
    return create_agent(model, tools=list(tools), middleware=list(middleware), checkpointer=checkpointer, **options)


def thread(name: str = "t1", limit: int = 2_000) -> dict[str, Any]:
    """The configuration of a run."""
    return {"configurable": {"thread_id": name}, "recursion_limit": limit}


def ask(text: str = "Do the steps.") -> dict[str, Any]:
    """The input of a run."""
    return {"messages": [HumanMessage(text)]}


def plain(messages: Sequence[BaseMessage]) -> list[Any]:
    """What a provider would be sent: type, content, calls, id of the call."""
    return [[m.type, m.content, getattr(m, "tool_calls", None), getattr(m, "tool_call_id", None)] for m in messages]


def prefix_breaks(seen: Sequence[Sequence[BaseMessage]]) -> int:
    """How often a request does not begin with all of the request before it."""
    texts = [[json.dumps(row, sort_keys=True, default=str) for row in plain(messages)] for messages in seen]
    return sum(later[: len(earlier)] != earlier for earlier, later in pairwise(texts))


def pairs_are_whole(messages: Sequence[BaseMessage]) -> bool:
    """Whether every result follows its call and every call has a result."""
    waiting: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            if message.tool_call_id not in waiting:
                return False
            waiting.remove(message.tool_call_id)
        elif waiting:
            return False
        if isinstance(message, AIMessage):
            waiting = [call["id"] for call in message.tool_calls]
    return not waiting


__all__ = [
    "HAS_DELTA", "CountingJudge", "JevMiddleware", "PlannedModel", "SystemMessage", "agent", "ask", "config", "engine",
    "fetch", "pairs_are_whole", "plain", "prefix_breaks", "steps", "steps_in_turn", "text_of_step", "thread",
]  # fmt: skip
