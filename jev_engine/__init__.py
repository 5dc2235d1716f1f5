"""Prune tool output from an agent's context: judged call by call, byte for byte recoverable, every decision explained.

>>> from jev_engine import ContextEngine
>>> ContextEngine().should_compress(prompt_tokens=150_000)
True
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from jev_engine.answers import RawAnswer
    from jev_engine.config import EngineConfig, make_config
    from jev_engine.decisions import Decision
    from jev_engine.engine import ContextEngine
    from jev_engine.errors import JevEngineError
    from jev_engine.events import EventSink
    from jev_engine.hookspecs import hookimpl
    from jev_engine.host import Adapter
    from jev_engine.judges import Asker, Judge
    from jev_engine.ledger import Ledger
    from jev_engine.result import CompressionResult
    from jev_engine.store import OriginalStore
    from jev_engine.transcript import ToolCall, Transcript

__version__ = "0.1.0"

# Names of the public interface and where they live; imported when first used, so that `import jev_engine` is cheap.
_HOMES = {
    "Adapter": "host",
    "Asker": "judges",
    "CompressionResult": "result",
    "ContextEngine": "engine",
    "Decision": "decisions",
    "EngineConfig": "config",
    "EventSink": "events",
    "JevEngineError": "errors",
    "Judge": "judges",
    "Ledger": "ledger",
    "OriginalStore": "store",
    "RawAnswer": "answers",
    "ToolCall": "transcript",
    "Transcript": "transcript",
    "hookimpl": "hookspecs",
    "make_config": "config",
}

__all__ = [
    "Adapter",
    "Asker",
    "CompressionResult",
    "ContextEngine",
    "Decision",
    "EngineConfig",
    "EventSink",
    "JevEngineError",
    "Judge",
    "Ledger",
    "OriginalStore",
    "RawAnswer",
    "ToolCall",
    "Transcript",
    "hookimpl",
    "make_config",
]

logging.getLogger("jev_engine").addHandler(logging.NullHandler())


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        message = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(message)
    from importlib import import_module  # noqa: PLC0415  # kept out of the namespace

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
