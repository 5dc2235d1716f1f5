"""The local process: one per user, started on demand, gone when idle, closed to everybody else."""

from __future__ import annotations

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from http.client import HTTPConnection

import pytest
from loopback import until
from serve.installations import Installation

from jev_engine import __version__
from jev_engine.errors import ServeError
from jev_engine.serve import process
from jev_engine.serve.client import ask
from jev_engine.serve.places import open_folder, places, planned_token, read_token

pytestmark = pytest.mark.slow


@pytest.fixture
def at(tmp_path, monkeypatch):
    """Places of a test's own; whatever runs there ends with it."""
    monkeypatch.setenv("JEV_ENGINE_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    yield places()
    process.stop()


def mode(path):
    """The permissions of a file."""
    return stat.S_IMODE(path.stat().st_mode)


def get(port, path, **headers):
    """The status of a request over TCP."""
    connection = HTTPConnection("127.0.0.1", port, timeout=5)
    connection.request("GET", path, headers=headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_it_is_started_where_there_is_none_and_found_where_there_is(at):
    """The second caller gets the first one's process."""
    first = process.ensure(port=0)
    second = process.ensure(port=0)

    assert process.running(at) is not None
    assert first.pid == second.pid != os.getpid()
    assert first.version == __version__
    assert process.stop()
    assert process.running(at) is None
    assert not process.stop()
    assert not at.socket.exists()
    assert not at.state.exists()


@pytest.mark.usefixtures("at")
def test_eight_callers_at_once_start_one():
    """A plugin in each of eight windows."""
    found = []
    threads = [threading.Thread(target=lambda: found.append(process.ensure(port=0).pid)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert len(set(found)) == 1


def test_nobody_else_can_read_its_files(at):
    """Folder 0700, everything in it 0600, whatever the umask."""
    before = os.umask(0)
    try:
        process.ensure(port=0)
    finally:
        os.umask(before)

    assert mode(at.folder) == 0o700
    assert {path.name: mode(path) for path in at.folder.iterdir() if path.name != "gateway.jsonl"} == dict.fromkeys(
        ("engine.sock", "engine.json", "engine.lock", "engine.log", "engine.start", "serve.token"), 0o600
    )


def test_over_tcp_it_wants_the_token_its_own_name_and_no_web_page(at):
    """A page in the user's browser can reach loopback too."""
    port = process.ensure(port=0).port
    bearer = f"Bearer {read_token(at)}"

    assert get(port, "/health", Authorization=bearer) == 200
    assert get(port, "/health") == 401
    assert get(port, "/health", Authorization=bearer + "x") == 401
    assert get(port, "/health", Authorization=bearer, Host="evil.example") == 403
    assert get(port, "/health", Authorization=bearer, Host=f"evil.example:{port}") == 403
    assert get(port, "/health", Authorization=bearer, Host=f"localhost:{port}") == 200
    assert get(port, "/health", Authorization=bearer, Origin="http://evil.example") == 403
    assert get(port, "/gateway/wrong/health") == 401


@pytest.mark.usefixtures("at")
def test_it_listens_on_loopback_only():
    """Another machine finds nobody."""
    port = process.ensure(port=0).port
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # sends nothing: only asks which address would be used
        except OSError:
            pytest.skip("this machine has no other address")
        address = probe.getsockname()[0]

    with pytest.raises(OSError, match="refused"):
        socket.create_connection((address, port), timeout=2).close()


def test_it_ends_when_nobody_needs_it(at):
    """Asking how it is does not keep it."""
    pid = process.ensure(port=0, idle_seconds=0.6).pid

    until(lambda: process.running(at) is None and not at.socket.exists())

    assert process.ensure(port=0).pid != pid


def test_one_that_runs_stays_as_long_as_the_most_patient_caller_wants(at):
    """The gateway's address has to answer all day."""
    pid = process.ensure(port=0, idle_seconds=0.6).pid
    process.ensure(port=0, idle_seconds=0)

    time.sleep(1.5)

    found = process.running(at)
    assert found is not None
    assert found.pid == pid


@pytest.mark.usefixtures("at")
def test_one_that_was_killed_leaves_nothing_in_the_way():
    """Its socket is still there; the lock says that nobody answers."""
    first = process.ensure(port=0)
    os.kill(first.pid, signal.SIGKILL)

    second = process.ensure(port=0)

    assert second.pid != first.pid


def test_one_of_an_older_version_is_replaced(at, tmp_path):
    """After an upgrade the old code does not go on."""
    first = process.ensure(port=0)

    second = Installation(tmp_path, "999.0.0").ensure("--port", "0")

    assert first.pid != second["pid"]
    assert process.running(at).version == "999.0.0"


@pytest.mark.usefixtures("at")
def test_a_port_that_is_taken_is_said_if_it_was_asked_for():
    """And gone around if it was not."""
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ServeError, match=r"did not come up.*port"),
    ):
        process.ensure(port=taken.getsockname()[1])


def test_a_folder_of_somebody_else_is_refused(tmp_path):
    """A link, a file."""
    (tmp_path / "target").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    (tmp_path / "file").touch()
    (tmp_path / "open").mkdir(mode=0o755)

    for name in ("link", "file"):
        with pytest.raises(ServeError, match=r"folder of this user|exists"):
            open_folder(tmp_path / name)
    open_folder(tmp_path / "open")
    assert mode(tmp_path / "open") == 0o700


def test_a_token_that_others_can_read_is_none(at):
    """It is not used, and its owner is told."""
    token = read_token(at)
    assert read_token(at) == token
    assert planned_token() == (token, [])
    at.token.chmod(0o644)

    with pytest.raises(ServeError, match="chmod 600"):
        read_token(at)


def test_a_new_token_is_planned_before_it_is_written(at):
    """Planning writes nothing."""
    token, [change] = planned_token()

    assert change.content == token.encode()
    assert change.is_ours
    assert not at.token.exists()


def test_a_long_path_gets_a_socket_elsewhere(tmp_path, monkeypatch):
    """A socket's name holds a hundred bytes."""
    monkeypatch.setenv("JEV_ENGINE_RUNTIME", str(tmp_path / ("x" * 120)))

    assert len(os.fsencode(places().socket)) < 100
    assert str(os.getuid()) in str(places().folder)


def test_the_command_says_where_it_is(at):
    """As the plugin reads it."""
    started = subprocess.run(
        [sys.executable, "-m", "jev_engine", "serve", "--ensure", "--port", "0"], capture_output=True, check=True
    )

    told = json.loads(started.stdout)
    assert ask(at.socket, "/health")["pid"] == told["pid"]
    assert told["socket"] == str(at.socket)
