"""The garbage collector is held back within, and afterwards as it was."""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Iterator

import pytest

from jev_engine.collector import held_back


@pytest.fixture(autouse=True)
def as_it_was() -> Iterator[None]:
    yield
    gc.enable()


def test_it_works_again_afterwards_even_after_an_error() -> None:
    with pytest.raises(ZeroDivisionError), held_back():
        1 / gc.isenabled()  # off: this divides by zero

    assert gc.isenabled()


def test_a_collector_somebody_had_switched_off_stays_off() -> None:
    gc.disable()
    with held_back():
        pass

    assert not gc.isenabled()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_in_the_middle_collects_again_in_the_child() -> None:
    with held_back():
        child = os.fork()
        if child == 0:
            os._exit(0 if gc.isenabled() else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert not gc.isenabled()


def test_the_last_of_several_switches_it_on() -> None:
    inside, may_leave = threading.Event(), threading.Event()

    def other() -> None:
        with held_back():
            inside.set()
            may_leave.wait(10)

    thread = threading.Thread(target=other)
    thread.start()
    inside.wait(10)
    with held_back():
        pass
    assert not gc.isenabled()
    may_leave.set()
    thread.join()

    assert gc.isenabled()
