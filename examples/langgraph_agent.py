"""An agent of LangChain that shortens old tool results before the model sees them.

    python examples/langgraph_agent.py

The local judge decides, offline. Nothing is lost: the thread's messages stay as they are, and the model can read any
result again with the tool `jev_expand`.
"""

from __future__ import annotations

from typing import Any

from langchain.agents import create_agent
from langgraph.checkpoint.memory import InMemorySaver
from langgraph_model import LogReader, read_log

from jev_engine import ContextEngine, EngineConfig
from jev_engine_adapters.langgraph import JevMiddleware

# A window this small only so that a short example has something to do.
ENGINE = ContextEngine(config=EngineConfig(window_tokens=30_000))


def run(model: Any) -> dict[str, Any]:
    """Ask the agent; returns its last state."""
    agent = create_agent(
        model,
        tools=[read_log],
        middleware=[JevMiddleware(ENGINE, min_batch_tokens=4_000)],
        checkpointer=InMemorySaver(),
    )
    thread = {"configurable": {"thread_id": "logs"}, "recursion_limit": 200}
    question = {"messages": [("user", "Which worker had an error? Read all 24 logs.")]}
    state = {}
    for kind, part in agent.stream(question, thread, stream_mode=["values", "custom"]):
        if kind == "custom" and "jev_engine" in part:
            print("pass:", part["jev_engine"])
        elif kind == "values":
            state = part
    return state


if __name__ == "__main__":
    model = LogReader()
    done = run(model)
    whole = sum(len(str(message.content)) for message in done["messages"])
    print(f"the thread holds {whole:,} characters, the last request had {model.shown[-1]:,}")
    print(done["messages"][-1].content)
