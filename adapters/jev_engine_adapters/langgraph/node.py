"""A node for graphs of one's own: makes a pass if one is due and writes what was decided."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Annotated, Any, Literal

from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.graph import MessagesState

from jev_engine import bridge
from jev_engine.engine import ContextEngine
from jev_engine.errors import ConfigError, JevEngineError
from jev_engine_adapters.langgraph.overhead import overhead_tokens
from jev_engine_adapters.langgraph.persist import must_outlive_the_process
from jev_engine_adapters.langgraph.planning import MIN_BATCH_TOKENS, Asked, Compactor
from jev_engine_adapters.langgraph.reasoning import BoundReasoning
from jev_engine_adapters.langgraph.runs import thread_of
from jev_engine_adapters.langgraph.state import LEDGER_KEY, ThreadState, merge_states

__all__ = ["JevMessagesState", "make_compaction_node"]

logger = logging.getLogger("jev_engine")

Output = Literal["ledger", "replace", "marker", "llm_input_messages"]
OUTPUTS = ("ledger", "replace", "marker", "llm_input_messages")


class JevMessagesState(MessagesState):
    """State of a graph of one's own: messages, and the channel for decisions."""

    jev_ledger: Annotated[dict[str, Any], merge_states]


def make_compaction_node(
    engine: ContextEngine,
    *,
    output: Output = "ledger",
    messages_key: str = "messages",
    ledger_key: str = LEDGER_KEY,
    min_batch_tokens: int = MIN_BATCH_TOKENS,
    bound_reasoning: BoundReasoning = "auto",
    on_error: Literal["keep", "raise"] = "keep",
) -> RunnableLambda[Any, Any]:
    """A node, sync and async, to be put before the node that calls the model.

    What it writes: `ledger` only decisions, and the model's node calls `compacted_view`; `replace` shortened results by
    id too, under any reducer of messages; `marker` the same for `jev_messages`; `llm_input_messages` the view itself,
    as `create_react_agent(pre_model_hook=…)` takes it, which checkpointers then store once more with every step.
    The state needs `ledger_key` with the reducer `merge_states`, as in `JevMessagesState`. A run without a thread id is
    named by how its history began. Where decisions or history cannot be read, nothing is written (`on_error="keep"`) or
    the error is raised (`"raise"`). Raises ConfigError.
    """
    if output not in OUTPUTS:
        raise ConfigError(f"output = {output!r} is none of {', '.join(OUTPUTS)}", setting="output")
    if output in ("replace", "marker"):
        must_outlive_the_process(engine.store, f"output={output!r}")
    compactor = Compactor(engine, min_batch_tokens=min_batch_tokens, bound_reasoning=bound_reasoning)

    async def compact(state: Any, thread: str | None) -> dict[str, Any]:
        try:
            return await update_of(state, thread)
        except JevEngineError as error:
            if on_error == "raise":
                raise
            logger.warning("the history stays as it came: %s: %s", type(error).__name__, error)
            messages = list(_field(state, messages_key) or [])
            return {"llm_input_messages": messages} if output == "llm_input_messages" else {}

    async def update_of(state: Any, thread: str | None) -> dict[str, Any]:
        messages = _field(state, messages_key) or []
        known = ThreadState.from_json(_field(state, ledger_key))
        asked = Asked(session=thread, overhead_tokens=overhead_tokens(messages))
        prepared = await compactor.prepare(messages, known, asked)
        update: dict[str, Any] = {ledger_key: prepared.state.to_json()} if prepared.has_news else {}
        if output == "llm_input_messages":
            update["llm_input_messages"] = list(prepared.view)
        elif output != "ledger":
            written = await compactor.written(messages, prepared, as_marker=output == "marker")
            if written:
                update[messages_key] = written
        return update

    def jev_compact(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return bridge.run(compact, state, thread_of(config))

    async def jev_compact_async(state: Any, config: RunnableConfig) -> dict[str, Any]:
        return await compact(state, thread_of(config))

    return RunnableLambda(jev_compact, afunc=jev_compact_async, name="jev_compact")


def _field(state: Any, key: str) -> Any:
    return state.get(key) if isinstance(state, Mapping) else getattr(state, key, None)
