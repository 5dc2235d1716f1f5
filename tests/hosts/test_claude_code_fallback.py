"""The built-in summary takes over whenever the engine cannot answer, with its own requests and no more."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import threading
from contextlib import contextmanager, suppress

import pytest
from hosts.claude_code_lab import broken_pairs, opened_lab, reading, results, texts

pytestmark = pytest.mark.slow

PROMPT = reading(6, "text Read them all.")
BUILT_IN = 1
"""Requests of the built-in summary, as a run without the plugin shows."""


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A session that has read six large files; every test works on a copy of it."""
    with opened_lab(tmp_path_factory.mktemp("fallback")) as made:
        made.run(PROMPT)
        yield made


def program(folder, line):
    """An odd engine."""
    made = folder / "odd-engine"
    made.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
    made.chmod(0o755)


@contextmanager
def garbage(path, said):
    """Listens on a socket and answers every request with the same words."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(0.1)
        done = threading.Event()

        def work():
            while not done.is_set():
                with suppress(TimeoutError):
                    connection, _ = server.accept()
                    with connection:
                        connection.settimeout(5)
                        head, _, body = connection.recv(1 << 20).partition(b"\r\n\r\n")
                        length = int(re.search(rb"content-length: (\d+)", head.lower()).group(1))
                        while len(body) < length:
                            body += connection.recv(1 << 20)
                        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(said), said))

        thread = threading.Thread(target=work)
        thread.start()
        yield
        done.set()
        thread.join()


def test_without_the_plugin_it_is_one_request(lab):
    """What the other tests compare with."""
    compacted = lab.fork("/compact", plugin=None)

    assert len(compacted.requests) == compacted.summaries == BUILT_IN


ANSWERS = {
    "not there": None,
    "an error": "exit 3",
    "nothing": "true",
    "garbage": "echo '<html>{{{'",
    "another version": """echo '{"v": 99, "act": "replace", "steps": [{"keep": 0}], "toast": "t", "log": ["t"]}'""",
    "half of the rows": """echo '{"v": 1, "act": "replace", "steps": [{"keep": 0}], "toast": "t", "log": ["t"]}'""",
    "rows that are none": """echo '{"v": 1, "act": "replace", "steps": [{"keep": 999}], "toast": "t", "log": ["t"]}'""",
    "nothing to say": """echo '{"v": 1, "act": "replace", "steps": null, "toast": "t", "log": ["t"]}'""",
    "too slow": "sleep 20",
}


@pytest.mark.parametrize("answer", ANSWERS)
def test_an_engine_that_gives(answer, lab, tmp_path):
    """The conversation is summarised as if the plugin were not there."""
    lab.set_options(command=str(tmp_path / "odd-engine"), timeoutSeconds=2)
    if ANSWERS[answer] is not None:
        program(tmp_path, ANSWERS[answer])

    compacted = lab.fork("/compact")

    assert len(compacted.requests) == compacted.summaries == BUILT_IN
    assert compacted.seconds < 20


GARBAGE = (b"<html>{{{", b"{}", b'{"v": 1, "act": "replace", "steps": [], "toast": "t", "log": []}')


@pytest.mark.parametrize("said", GARBAGE)
def test_a_process_that_answers_garbage_over_its_socket(said, lab, tmp_path):
    """As good as no process."""
    path = tmp_path / "odd.sock"
    program(tmp_path, f"""[ "$2" = --ensure ] && echo '{{"socket": "{path}"}}' || exit 3""")
    lab.set_options(command=str(tmp_path / "odd-engine"))

    with garbage(path, said):
        compacted = lab.fork("/compact")

    assert len(compacted.requests) == compacted.summaries == BUILT_IN


def test_after_a_fault_the_session_goes_on_with_the_summary(lab, tmp_path):
    """As after any built-in compaction."""
    lab.set_options(command=str(tmp_path / "none"))
    compacted = lab.fork("/compact")

    after = lab.fork("SCRIPT: text Still here.", of=compacted.session)

    assert any("Summary" in text for text in texts(after.messages))
    assert broken_pairs(after.messages) == []


def test_a_process_that_was_killed_is_started_again(lab):
    """Nothing was lost with it: ledger and originals are in the store."""
    lab.set_options()
    os.kill(json.loads(lab.engine("serve", "--ensure"))["pid"], signal.SIGKILL)
    once = lab.fork("/compact")
    os.kill(json.loads(lab.engine("serve", "--ensure"))["pid"], signal.SIGKILL)

    read = lab.fork('SCRIPT: tool mcp__jev-engine__expand {"id": "$REFERENCE"} ;; text Got it.', of=once.session)

    assert once.requests == []
    assert results(read.messages)[-1].startswith((lab.project / "big0.txt").read_text(encoding="utf-8"))
    assert broken_pairs(read.messages) == []


def test_a_process_that_hangs_is_left_alone(lab):
    """The socket takes the request and says nothing; the user's patience decides."""
    lab.set_options(timeoutSeconds=2)
    pid = json.loads(lab.engine("serve", "--ensure"))["pid"]
    os.kill(pid, signal.SIGSTOP)
    try:
        compacted = lab.fork("/compact")
    finally:
        os.kill(pid, signal.SIGCONT)

    assert compacted.summaries == BUILT_IN
    assert compacted.seconds < 20


def test_a_window_that_stays_too_full_is_handed_over_with_what_was_pruned(tmp_path):
    """Text is never ours to shorten: the built-in summary works on the shorter history, and all of it is stored."""
    prose = "A long story that nobody may shorten. " * 3_000
    with opened_lab(tmp_path, input_tokens=900_000) as lab:
        lab.run(f"{prose}\n{reading(5, 'text Read them all.')}")

        compacted = lab.run("/compact")
        after = lab.run("SCRIPT: text Still here.")
        shown = lab.run("/jev out long story that nobody may shorten")

    [summary] = compacted.requests
    assert summary.is_summary
    asked = summary.json()["messages"]
    assert sum("[jev-engine: result of" in text for text in results(asked)) == 2
    assert any(prose.strip() in text for text in texts(asked))
    assert any("Summary" in text for text in texts(after.messages))
    assert broken_pairs(after.messages) == []
    assert prose[:200] in shown.result
