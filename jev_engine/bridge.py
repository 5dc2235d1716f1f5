"""One background event loop for callers that are not async.

The loop lives in one daemon thread per process, started by the first call. A caller may itself run inside an event
loop: its loop is never used, only its thread waits.

>>> async def double(x):
...     return 2 * x
>>> run(double, 21)
42
"""

from __future__ import annotations

import asyncio
import os
import sys
import threading
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

__all__ = ["run"]

T = TypeVar("T")

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_thread: threading.Thread | None = None


def run(function: Callable[..., Awaitable[T]], *args: Any, timeout_seconds: float | None = None, **options: Any) -> T:
    """Call an async function from anywhere and wait for what it returns or raises.

    Raises TimeoutError after `timeout_seconds`; the call is cancelled then, as it is on Ctrl-C.
    """
    loop = _background_loop()
    if threading.current_thread() is _thread:
        message = "bridge.run was called from its own loop: await the function instead"
        raise RuntimeError(message)

    async def call() -> T:
        # The call inherits the caller's context, in which anyio may have noted that it runs trio.
        sniffio = sys.modules.get("sniffio")
        if sniffio is not None:
            sniffio.current_async_library_cvar.set("asyncio")
        return await function(*args, **options)

    future = asyncio.run_coroutine_threadsafe(call(), loop)
    try:
        return future.result(timeout_seconds)
    except BaseException:
        future.cancel()
        raise


def _background_loop() -> asyncio.AbstractEventLoop:
    global _loop, _thread  # one loop per process is the point
    with _lock:
        if _loop is None or _loop.is_closed():
            loop = asyncio.new_event_loop()
            # A daemon thread: it never keeps the interpreter from ending.
            thread = threading.Thread(target=loop.run_forever, name="jev-engine", daemon=True)
            thread.start()
            _loop, _thread = loop, thread
        return _loop


def _forget() -> None:
    # After a fork the thread is gone and the lock may be held.
    global _loop, _thread, _lock  # noqa: PLW0603
    _loop = _thread = None
    _lock = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
