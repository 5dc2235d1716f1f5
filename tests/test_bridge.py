"""The bridge: the same result from any caller (A31)."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import anyio
import anyio.lowlevel
import pytest
from passing import long_text

from jev_engine import ContextEngine
from jev_engine.bridge import run
from jev_engine.testing import ScriptedJudge, call, history, result, user


async def double(number: int) -> int:
    await anyio.lowlevel.checkpoint()
    return 2 * number


async def name_of_thread() -> str:
    await anyio.lowlevel.checkpoint()
    return threading.current_thread().name


async def fail() -> None:
    raise LookupError("the very error")


class Waits:
    """Waits for ever and notes when it is cancelled."""

    def __init__(self) -> None:
        self.was_cancelled = threading.Event()

    async def __call__(self) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            self.was_cancelled.set()


def test_from_plain_code() -> None:
    """No loop anywhere."""
    assert run(double, 21) == 42


async def test_inside_a_running_loop() -> None:
    """On asyncio and on trio: the caller's loop is never used."""
    assert run(double, 21) == 42
    assert run(name_of_thread) == "jev-engine"


def test_from_eight_threads_at_once() -> None:
    """One loop serves all of them."""
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda n: run(double, n), range(80))) == [2 * n for n in range(80)]
    assert sum(thread.name == "jev-engine" for thread in threading.enumerate()) == 1


def test_over_repeated_event_loops() -> None:
    """Each asyncio.run makes a new loop; ours stays."""

    async def main() -> int:
        return run(double, 4)

    assert [asyncio.run(main()) for _ in range(3)] == [8, 8, 8]


def test_an_exception_passes_through() -> None:
    """The very one."""
    with pytest.raises(LookupError, match="the very error"):
        run(fail)


def test_a_timeout_cancels_the_call() -> None:
    """Nothing is left running."""
    waits = Waits()
    with pytest.raises(TimeoutError):
        run(waits, timeout_seconds=0.05)

    assert waits.was_cancelled.wait(5)


def test_its_own_loop_is_refused_instead_of_hanging() -> None:
    """A wait on the own loop would never end."""

    async def nested() -> int:
        return run(double, 1)

    with pytest.raises(RuntimeError, match="await the function instead"):
        run(nested)


def test_a_pass_is_the_same_from_plain_code_and_inside_a_loop() -> None:
    """G16, with the real engine."""
    messages = history(user("Go."), call("a"), result(long_text("a", 9_000)), *[call("b"), result("x")] * 3)
    engine = ContextEngine(judge=ScriptedJudge({"t1": (1.0, 0.0)}))

    async def inside() -> object:
        return run(engine.compress, messages).messages

    outside = run(engine.compress, messages).messages

    assert outside == asyncio.run(inside())
    assert outside != messages


def test_the_interpreter_ends_while_a_call_still_waits() -> None:
    """The thread is a daemon: exit never hangs."""
    code = (
        "import asyncio, threading\nfrom jev_engine.bridge import run\n"
        "async def wait(): await asyncio.Event().wait()\n"
        "threading.Thread(target=lambda: run(wait), daemon=True).start()\n"
        "run(asyncio.sleep, 0)\nprint('end')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)

    assert (done.returncode, done.stdout.strip()) == (0, "end"), done.stderr
