"""The command in a process of its own: for limits, signals, and what happens as it ends."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

__all__ = ["CLOSED", "start"]

CLOSED = -100
"""Stands for standard output that is closed from the start."""


def start(
    *words: str | Path, most_bytes: int | None = None, stdout: int | IO[bytes] = subprocess.PIPE
) -> subprocess.Popen[bytes]:
    """The command as a process of its own, allowed to write files of `most_bytes` at most.

    Without `stdout` (-1, PIPE) it is read by the test; CLOSED is one that nobody has opened.
    """

    def prepare() -> None:
        # A runner in the background may have Ctrl-C ignored, which children inherit.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if stdout == CLOSED:
            os.close(1)
        if most_bytes is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (most_bytes, most_bytes))

    return subprocess.Popen(
        [sys.executable, "-m", "jev_engine", *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=None if stdout == CLOSED else stdout,
        stderr=subprocess.PIPE,
        preexec_fn=prepare,  # noqa: PLW1509  # no threads here
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
