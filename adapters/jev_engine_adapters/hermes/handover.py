"""The host's own summariser at work on the already shortened history; what it replaces is stored first.

It is imported from the host by name and made with whatever its version takes. Where it is missing or fails, the
shortened history stays as it is.
"""

from __future__ import annotations

import copy
import inspect
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from jev_engine.store import OriginalStore, PassRecord
from jev_engine.store.restore import anchor_of, sketch_of
from jev_engine_adapters.hermes.messages import PERSISTED, adapter
from jev_engine_adapters.hermes.state import Budget

__all__ = ["FLAGS", "HandedOver", "Summariser", "keep", "load_summariser", "replaced_by", "summarise"]

FLAGS = (
    "_last_aux_model_failure_error", "_last_aux_model_failure_model", "_last_summary_dropped_count",
    "_last_summary_error", "_last_summary_fallback_used",
)  # fmt: skip
"""What the host reads of a summarising engine after a compaction; copied from the summariser."""

Summariser = Callable[..., Any]


class HandedOver(NamedTuple):
    """What the summariser made."""

    messages: list[Any]
    replaced: list[Any]
    """Messages of the shortened history that are not in its output."""
    flags: Mapping[str, Any]


def load_summariser() -> Summariser | None:
    """The host's built-in compressor, or None where this host has none that we know."""
    try:
        from agent.context_compressor import ContextCompressor  # noqa: PLC0415  # the host's own package
    except Exception:  # noqa: BLE001  # whatever keeps it from loading: there is none then
        return None
    return ContextCompressor if callable(ContextCompressor) else None


def summarise(
    messages: Sequence[Any],
    budget: Budget,
    *,
    summariser: Summariser | None,
    tokens: int | None = None,
    focus_topic: str | None = None,
    memory_context: str = "",
    may_drop: bool = False,
) -> HandedOver | None:
    """Let the host's summariser shorten a history; None where it is missing or gives nothing that can be used.

    `may_drop` lets it leave messages out where it gets no summary, as it does by itself. Raises whatever it raises.
    """
    if summariser is None or not budget.context_length:
        return None
    made = summariser(**_known(summariser, **_settings(budget), abort_on_summary_failure=not may_drop))
    given = copy.deepcopy(list(messages))
    # `force` lifts its cool-down: how often it is tried is decided by us.
    options = {"current_tokens": tokens, "focus_topic": focus_topic, "force": True, "memory_context": memory_context}
    output = made.compress(given, **_known(made.compress, **options))
    if getattr(made, "_last_compress_aborted", False) or not isinstance(output, list) or not output:
        return None
    replaced = replaced_by(messages, output)
    if not replaced or any(not isinstance(message, dict) for message in output):
        return None
    return HandedOver(output, replaced, {name: getattr(made, name, None) for name in FLAGS})


def _settings(budget: Budget) -> dict[str, Any]:
    """As the host makes it for itself."""
    ours = _host_settings()
    return {
        "model": budget.model,
        "threshold_percent": float(ours.get("threshold", 0.5)),
        "protect_first_n": int(ours.get("protect_first_n", 3)),
        "protect_last_n": int(ours.get("protect_last_n", 20)),
        "summary_target_ratio": float(ours.get("target_ratio", 0.2)),
        "quiet_mode": True,
        "base_url": budget.base_url,
        "api_key": budget.api_key,
        "config_context_length": budget.context_length,
        "provider": budget.provider,
        "api_mode": budget.api_mode,
        "max_tokens": budget.max_tokens or None,
    }


def _host_settings() -> Mapping[str, Any]:
    try:
        from hermes_cli.config import load_config  # noqa: PLC0415  # the host's own package

        found = (load_config() or {}).get("compression", {})
    except Exception:  # noqa: BLE001  # its settings are its own: without them its defaults hold
        return {}
    return found if isinstance(found, dict) else {}


def _known(function: Callable[..., Any], **options: Any) -> dict[str, Any]:
    """Those options that a function takes."""
    parameters = inspect.signature(function).parameters
    if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        return options
    return {name: value for name, value in options.items() if name in parameters}


def replaced_by(before: Sequence[Any], after: Sequence[Any]) -> list[Any]:
    """Messages of `before` that `after` does not hold as they are."""
    left = Counter(_text(message) for message in after)
    replaced = []
    for message in before:
        text = _text(message)
        if left[text]:
            left[text] -= 1
        else:
            replaced.append(message)
    return replaced


def _text(message: Any) -> str:
    if isinstance(message, dict):
        message = {field: value for field, value in message.items() if field != PERSISTED}
    return json.dumps(message, sort_keys=True, default=repr)


async def keep(store: OriginalStore, session: str, before: Sequence[Any], handed: HandedOver) -> int:
    """Store what is about to leave, and a record by which `restore` undoes it; returns how many messages.

    Raises StoreError where that fails: then nothing may leave.
    """
    references = await store.save_messages(session, handed.replaced)
    rows = range(len(before))
    await store.save_pass(
        PassRecord(
            session,
            anchor_of(handed.messages, adapter),
            sketch_of(handed.messages, adapter),
            rows_in=len(before),
            rows_out=len(handed.messages),
            removed=list(rows),
            originals={row: before[row] for row in rows},
        )
    )
    return len(references)
