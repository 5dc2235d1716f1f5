"""What the host reads of an engine and writes to it: plain attributes, and what they say of the agent's model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from jev_engine_adapters.hermes.state import Budget

__all__ = ["HostFields", "count"]


class HostFields:
    """Attributes of one agent's engine."""

    # The host reads these, and writes most of them.
    last_prompt_tokens = last_completion_tokens = last_total_tokens = last_real_prompt_tokens = 0
    last_compression_rough_tokens = threshold_tokens = context_length = 0
    threshold_percent = 0.5
    protect_first_n, protect_last_n = 1, 3
    compression_count = 0
    """Times the host's summariser took over: the host warns of lost accuracy from two on, which only then is true."""
    model = base_url = provider = api_mode = ""
    api_key: Any = ""
    max_tokens: int | None = None
    awaiting_real_usage_after_compression = False
    emit_automatic_compaction_status = True
    _last_compress_aborted = _last_compression_made_progress = _last_summary_fallback_used = False
    _last_compress_refused_would_grow = _verify_compaction_cleared_threshold = False
    _last_summary_error: str | None = None
    _last_aux_model_failure_model: str | None = None
    _last_aux_model_failure_error: str | None = None
    _last_summary_dropped_count = _ineffective_compression_count = 0
    _context_probed = _context_probe_persistable = False
    _session_id = ""
    _session_db: Any = None
    _compression_cancelled_check: Any = None
    model_thresholds: ClassVar[Mapping[str, float]] = {}

    COPIED = (
        "model", "base_url", "provider", "api_mode", "api_key", "max_tokens", "context_length", "threshold_tokens",
        "threshold_percent", "protect_first_n", "protect_last_n",
    )  # fmt: skip

    def _budget(self, reserve: int = 0) -> Budget:
        """What the host has told this instance; `reserve` is what a hook has told, where it told the instance none."""
        return Budget(
            self.model, self.base_url, self.api_key, self.provider, self.api_mode, self.context_length,
            self.max_tokens or reserve,
        )  # fmt: skip

    def _reset_flags(self) -> None:
        self._last_compress_aborted = self._last_compression_made_progress = False
        self._last_summary_fallback_used = self._last_compress_refused_would_grow = False
        self._last_summary_error = self._last_aux_model_failure_model = self._last_aux_model_failure_error = None
        self._last_summary_dropped_count = 0


def count(value: Any) -> int:
    """A number of tokens; 0 for anything that is none, the host's -1 included."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return max(0, int(value)) if value == value and abs(value) < 1e15 else 0  # noqa: PLR0124  # NaN is no number
