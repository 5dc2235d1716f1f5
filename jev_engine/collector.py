"""Python's cyclic garbage collector, held back while a pass makes many objects that all stay.

Left alone it looks through every message of a long history again and again, in the middle of a pass that makes no
garbage: at 20,000 calls that was a third of its cost (benchmarks/ratios.py).
"""

from __future__ import annotations

import gc
import os
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
            _holders = max(0, _holders - 1)  # a fork within begins anew
            if _holders == 0 and _was_enabled:
                gc.enable()


def _after_fork() -> None:
    # Whoever held it back in another thread is not in this process, and the lock may be held for ever.
    global _holders, _lock
    if _holders and _was_enabled:
        gc.enable()
    _holders, _lock = 0, threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
