"""The Functional API: compaction is a task, so its decisions are saved and a resumed run asks nobody again.

python examples/langgraph_functional.py
"""

from __future__ import annotations

from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.func import entrypoint, task
from langgraph_model import LogReader, read_log

from jev_engine import ContextEngine, EngineConfig
from jev_engine_adapters.langgraph import compact_messages

ENGINE = ContextEngine(config=EngineConfig(window_tokens=30_000))


def build(model: Any) -> Any:
    """A loop of model and tool."""

    @task
    def compact(messages: list[AnyMessage], ledger: dict[str, Any] | None) -> tuple[list[AnyMessage], dict[str, Any]]:
        done = compact_messages(messages, engine=ENGINE, ledger=ledger, session="logs", min_batch_tokens=4_000)
        return done.messages, done.ledger

    @task
    def ask(messages: list[AnyMessage]) -> Any:
        return model.bind_tools([read_log]).invoke(messages)

    @task
    def use_tool(call: dict[str, Any]) -> ToolMessage:
        return ToolMessage(read_log.invoke(call["args"]), tool_call_id=call["id"])

    @entrypoint(checkpointer=InMemorySaver())
    def loop(question: str) -> list[AnyMessage]:
        messages: list[AnyMessage] = [HumanMessage(question)]
        ledger = None
        while True:
            shown, ledger = compact(messages, ledger).result()
            reply = ask(shown).result()
            messages.append(reply)
            if not reply.tool_calls:
                return messages
            messages.extend(future.result() for future in [use_tool(call) for call in reply.tool_calls])

    return loop


if __name__ == "__main__":
    model = LogReader()
    thread: Any = {"configurable": {"thread_id": "logs"}, "recursion_limit": 200}
    done = build(model).invoke("Which worker had an error? Read all 24 logs.", thread)
    whole = sum(len(str(message.content)) for message in done)
    print(f"the loop holds {whole:,} characters, the last request had {model.shown[-1]:,}")
    print(done[-1].content)
