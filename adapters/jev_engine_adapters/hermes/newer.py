"""What hosts from 0.20 on ask of an engine; older ones never call any of it."""

from __future__ import annotations

from typing import Any

from jev_engine_adapters.hermes.guard import never_raises
from jev_engine_adapters.hermes.state import HostSession

__all__ = ["NewerMembers"]


class NewerMembers:
    """Members that every one of these hosts takes as given."""

    @property
    def session(self) -> HostSession:
        """The session this instance works for now."""
        raise NotImplementedError

    def prune_tool_results_only(self, messages: Any = None, *_: Any, **__: Any) -> tuple[Any, int]:
        """Nothing: small edits after every tool round would break the provider's cached prefix each time."""
        return messages, 0

    def select_context(self, *_: Any, **__: Any) -> None:
        """The request goes out as it is."""

    def on_turn_complete(self, *_: Any, **__: Any) -> None:
        """Nothing to do between turns."""

    def pending_compression_operation(self, *_: Any, **__: Any) -> None:
        """No pass is mere sanitation."""

    def get_automatic_compaction_status_message(self, *_: Any, **__: Any) -> str:
        """What really happens, in place of the host's word of summarising."""
        return "Shortening old tool output (jev-engine); originals are kept…"

    @never_raises(lambda *_, **__: None)
    def record_timeout_failure(self, *_: Any, **__: Any) -> None:
        """The host has given up on a pass; its result is thrown away."""
        self.session.thrown_away("the host has given up on it")

    record_rejected_compaction = record_timeout_failure
