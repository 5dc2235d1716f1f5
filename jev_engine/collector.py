"""Python's cyclic garbage collector, held back while a pass makes many objects that all stay.

Left alone it looks through every message of a long history again and again, in the middle of a pass that makes no
garbage: at 20,000 calls that was a third of its cost (benchmarks/ratios.py).
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["held_back"]

_lock = threading.Lock()
_holders = 0
_was_enabled = False


@contextmanager
def held_back() -> Iterator[None]:
    """No collection within, in any thread; for stretches that compute and do not wait.

    >>> with held_back():
    ...     gc.isenabled()
    False
    """
    global _holders, _was_enabled  # noqa: PLW0603  # the collector is one per process
    with _lock:
        _holders += 1
        if _holders == 1:
            _was_enabled = gc.isenabled()
            gc.disable()
    try:
        yield
    finally:
        with _lock:
            _holders -= 1
            if _holders == 0 and _was_enabled:
                gc.enable()
