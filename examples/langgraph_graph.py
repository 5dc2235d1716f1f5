"""A graph of one's own: a node decides, a reducer applies, and the checkpoints shrink as well.

    python examples/langgraph_graph.py

The node writes one marker; the reducer `jev_messages` shortens what it names, wherever that stands when the writes of
a step are merged. Originals go to a store first, here a file beside this script's working folder.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from langchain_core.messages import AnyMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph_model import LogReader, read_log
from typing_extensions import TypedDict

from jev_engine import ContextEngine, EngineConfig
from jev_engine.store.sqlite import SqliteStore
from jev_engine_adapters.langgraph import (
    compacted_view,
    jev_messages,
    make_compaction_node,
    make_expand_tool,
    merge_states,
)


class State(TypedDict):
    """Messages with our reducer, and the channel for decisions."""

    messages: Annotated[list[AnyMessage], jev_messages]
    jev_ledger: Annotated[dict[str, Any], merge_states]


def build(model: Any, originals: Path) -> Any:
    """Compaction, model, tools, and round again."""
    store = SqliteStore(originals)
    engine = ContextEngine(config=EngineConfig(window_tokens=30_000, expand_tool="jev_expand"), store=store)
    tools = [read_log, make_expand_tool(store)]
    bound = model.bind_tools(tools)

    def call_model(state: State) -> dict[str, Any]:
        return {"messages": [bound.invoke(compacted_view(state["messages"], state.get("jev_ledger")))]}

    graph = StateGraph(State)
    graph.add_node("compact", make_compaction_node(engine, output="marker", min_batch_tokens=4_000))
    graph.add_node("model", call_model)
    graph.add_node("tools", ToolNode(tools))
    graph.add_edge(START, "compact")
    graph.add_edge("compact", "model")
    graph.add_conditional_edges("model", lambda state: "tools" if state["messages"][-1].tool_calls else END)
    graph.add_edge("tools", "compact")
    return graph.compile(checkpointer=InMemorySaver())


if __name__ == "__main__":
    model = LogReader()
    thread: Any = {"configurable": {"thread_id": "logs"}, "recursion_limit": 200}
    question = {"messages": [("user", "Which worker had an error? Read all 24 logs.")]}
    done = build(model, Path("originals.sqlite3")).invoke(question, thread)
    whole = sum(len(str(message.content)) for message in done["messages"])
    print(f"the state holds {whole:,} characters, the last request had {model.shown[-1]:,}")
    print(done["messages"][-1].content)
