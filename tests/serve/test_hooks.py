"""Hooks of Claude Code: heard at once, told to the trail, and never in the way."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from loopback import until
from serve.plugin_requests import conversation, request

from jev_engine.serve import relay as relay_module
from jev_engine.serve.desk import Desk
from jev_engine.serve.hooks import MOST_WAITING, HookDesk, tell
from jev_engine.serve.relay import relay
from jev_engine.settings import load_settings

RELAY = Path(relay_module.__file__)
SESSION = "session-1"


@pytest.fixture
def trail(tmp_path):
    """The file of the audit trail."""
    return tmp_path / "trail.jsonl"


@pytest.fixture
def desk(tmp_path, trail, monkeypatch):
    """A desk whose engine writes a trail."""
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(tmp_path / "none.toml"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    made = Desk(settings=lambda **given: load_settings(store=tmp_path / "o.sqlite3", audit=trail, **given))
    yield made
    for engine in made._engines.values():
        asyncio.run(engine.sinks.flush())
    made.close()


def told(desk, trail, *payloads):
    """Kinds of events in the trail after these hooks."""
    hooks = HookDesk(desk)
    for each in payloads:
        hooks.take(each)
    hooks.wait()
    for engine in desk._engines.values():
        asyncio.run(engine.sinks.flush())
    lines = trail.read_text(encoding="utf-8").splitlines() if trail.exists() else []
    kinds = [json.loads(line).get("event", json.loads(line)).get("kind") for line in lines]
    return [kind for kind in kinds if kind]


def payload(name, **fields):
    """What a hook is given."""
    return {"session_id": SESSION, "transcript_path": "/t.jsonl", "cwd": "/work", "hook_event_name": name, **fields}


TOOL = {"tool_name": "Bash", "tool_use_id": "toolu_1", "tool_input": {"command": "cat secret.txt"}}


def test_calls_and_sessions_become_events(desk, trail):
    """In the order they came; the words of a call are in none."""
    kinds = told(
        desk,
        trail,
        payload("SessionStart", source="startup", model="opus"),
        payload("PreToolUse", **TOOL),
        payload("PostToolUse", **TOOL, tool_response={"stdout": "the secret"}, duration_ms=12),
        payload("SessionEnd", reason="exit"),
    )

    assert kinds == ["session_started", "tool_called", "tool_finished", "session_ended"]
    written = trail.read_text(encoding="utf-8")
    assert "secret" not in written
    assert SESSION not in written


@pytest.mark.parametrize(
    ("name", "fields"),
    [("PostCompact", {"trigger": "manual"}), ("SessionStart", {"source": "compact"})],
)
def test_a_pass_is_committed_when_the_host_says_so(desk, trail, name, fields):
    """By either of two hooks, whichever this version fires; twice is once."""
    desk.compact(request(conversation(12), session=SESSION))
    before = told(desk, trail)

    tell(desk, payload(name, **fields))
    tell(desk, payload(name, **fields))
    kinds = told(desk, trail)

    assert "committed" not in before
    assert kinds.count("committed") == 1


def test_a_pass_is_discarded_where_the_host_begins_to_compact_by_itself(desk, trail):
    """It did not take up what was proposed."""
    desk.compact(request(conversation(12), session=SESSION))

    tell(desk, payload("PreCompact", trigger="auto"))
    kinds = told(desk, trail)

    assert "discarded" in kinds
    assert "committed" not in kinds


def test_a_hand_over_is_told_with_what_was_stored(desk, trail):
    """The summariser works on the pruned history."""
    messages = conversation(6, prose=60_000)
    desk.compact(request(messages, session=SESSION, window_tokens=20_000, used_tokens=19_000))

    desk.applied({"session_id": SESSION})
    told(desk, trail)

    lines = [json.loads(line) for line in trail.read_text(encoding="utf-8").splitlines()]
    found = [event for line in lines if (event := line.get("event", line)).get("kind") == "handed_over"]
    assert [(event["messages"], event["stored"]) for event in found] == [(len(messages), len(messages))]


def test_a_pass_that_the_plugin_could_not_build_is_discarded(desk, trail):
    """The plugin says so itself."""
    desk.compact(request(conversation(12), session=SESSION))

    desk.applied({"session_id": SESSION, "reason": "the engine named row 99"})
    kinds = told(desk, trail)

    assert kinds.count("committed") == 0
    assert {"abandoned", "discarded"} & set(kinds)
    assert desk.applied({"session_id": SESSION}) == {"known": False}


@pytest.mark.parametrize("odd", [{}, {"hook_event_name": 3}, {"hook_event_name": "PreToolUse"}, payload("NoSuchHook")])
def test_odd_payloads_stop_nothing(desk, trail, odd):
    """The next one is told."""
    assert "session_ended" in told(desk, trail, odd, payload("SessionEnd"))


def test_hooks_never_wait_and_a_flood_is_dropped_and_counted(desk):
    """The host goes on, whatever the trail does."""
    gate = threading.Event()
    hooks = HookDesk(desk, work=lambda _desk, _payload: gate.wait(10))

    start = time.perf_counter()
    for _ in range(MOST_WAITING + 5):
        hooks.take(payload("PreToolUse", **TOOL))
    seconds = time.perf_counter() - start
    gate.set()

    assert seconds < 2
    assert hooks.dropped >= 3


# --- the command behind a hook ---------------------------------------------------------------------------------------


def run_relay(path, given, *more):
    """The command, as Claude Code runs it; how it ended and how long it took."""
    start = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-I", "-S", str(RELAY), str(path), *more], input=given, capture_output=True, check=False
    )
    return done, time.perf_counter() - start


def test_the_command_ends_with_0_and_says_nothing_where_nobody_answers(tmp_path):
    """Fast, and whatever it was given."""
    done, seconds = run_relay(tmp_path / "none.sock", b"{}")

    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert seconds < 2.0
    assert run_relay(tmp_path / "none.sock", b"\xff\x00 garbage")[0].returncode == 0
    assert run_relay("", b"")[0].returncode == 0


def test_the_command_does_not_wait_for_a_process_that_hangs(tmp_path):
    """Half a second, and the event is lost."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as silent:
        silent.bind(str(tmp_path / "s.sock"))
        silent.listen()
        done, seconds = run_relay(tmp_path / "s.sock", b"{}")

    assert done.returncode == 0
    assert seconds < 2.0


def test_the_command_hands_the_payload_over(tmp_path):
    """Word for word."""
    got = []

    def answer(server):
        connection, _ = server.accept()
        with connection:
            got.append(connection.recv(65_536))
            connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")

    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as server:
        server.bind(str(tmp_path / "s.sock"))
        server.listen()
        thread = threading.Thread(target=answer, args=(server,))
        thread.start()
        done, _ = run_relay(tmp_path / "s.sock", b'{"a": 1}')
        thread.join()

    assert done.returncode == 0
    assert got[0].startswith(b"POST /hooks HTTP/1.1\r\n")
    assert got[0].endswith(b'\r\n\r\n{"a": 1}')


@pytest.mark.slow
def test_the_first_hook_of_a_session_starts_the_process_and_does_not_wait_for_it(tmp_path, monkeypatch):
    """What it was given arrives all the same."""
    monkeypatch.setenv("JEV_ENGINE_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    trail = tmp_path / "trail.jsonl"
    config = tmp_path / "config.toml"
    config.write_text(f'audit = "{trail}"\n', encoding="utf-8")
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(config))
    program = tmp_path / "jev-engine"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m jev_engine "$@" --port 0\n', encoding="utf-8")
    program.chmod(0o755)
    given = json.dumps(payload("SessionStart", source="startup")).encode()
    try:
        done, seconds = run_relay(tmp_path / "run" / "engine.sock", given, str(program))
        until(lambda: trail.exists() and "session_started" in trail.read_text(encoding="utf-8"))
    finally:
        subprocess.run([sys.executable, "-m", "jev_engine", "serve", "--stop"], capture_output=True, check=False)

    assert done.returncode == 0
    assert seconds < 2.0


def test_the_relay_raises_nothing(tmp_path):
    """Not even for a stream that cannot be read."""

    class Broken:
        def read(self, size):
            raise OSError(size)

    assert relay(Broken(), str(tmp_path)) is False
