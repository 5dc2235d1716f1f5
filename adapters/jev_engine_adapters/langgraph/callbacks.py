"""A callback handler that tells an engine's audit trail of a run: for graphs of one's own, which have no middleware."""

from __future__ import annotations

from typing import Any

from langchain_core.callbacks import BaseCallbackHandler

from jev_engine.engine import ContextEngine
from jev_engine_adapters.langgraph.lifecycle import Runs
from jev_engine_adapters.langgraph.runs import Teller

__all__ = ["AuditCallbacks", "audit_callbacks"]


def audit_callbacks(engine: ContextEngine) -> AuditCallbacks:
    """A handler for `config={"callbacks": […]}`; an agent with a `JevMiddleware` needs none."""
    return AuditCallbacks(engine)


class AuditCallbacks(BaseCallbackHandler):
    """Calls of models and tools, and where a run begins and ends, as events without content."""

    run_inline = True  # in order, and before what the callback is about goes on

    def __init__(self, engine: ContextEngine) -> None:
        super().__init__()
        self._runs = Runs()
        self._teller = Teller(engine)

    def _tell(self, callback: str, **given: Any) -> None:
        told = self._runs.told(callback, given) if self._teller else None
        if told is not None:
            self._teller.tell(told)

    def on_tool_start(self, serialized: Any, input_str: str, **given: Any) -> None:
        """A tool is about to run."""
        self._tell("on_tool_start", serialized=serialized, input_str=input_str, **given)

    def on_tool_end(self, output: Any, **given: Any) -> None:
        """A tool has run."""
        self._tell("on_tool_end", output=output, **given)

    def on_tool_error(self, error: BaseException, **given: Any) -> None:
        """A tool has raised."""
        self._tell("on_tool_error", error=error, **given)

    def on_chat_model_start(self, serialized: Any, messages: Any, **given: Any) -> None:
        """The model is about to be called."""
        self._tell("on_chat_model_start", serialized=serialized, messages=messages, **given)

    def on_llm_end(self, response: Any, **given: Any) -> None:
        """The model has replied."""
        self._tell("on_llm_end", response=response, **given)

    def on_chain_start(self, serialized: Any, inputs: Any, **given: Any) -> None:
        """A run begins, or a part of one."""
        self._tell("on_chain_start", serialized=serialized, inputs=inputs, **given)

    def on_chain_end(self, outputs: Any, **given: Any) -> None:
        """A run has ended, or a part of one."""
        self._tell("on_chain_end", outputs=outputs, **given)

    def on_chain_error(self, error: BaseException, **given: Any) -> None:
        """A run has failed, or a part of one."""
        self._tell("on_chain_error", error=error, **given)
