"""One process for all sessions of a user: started clean, looked at without a trace, ended whatever is in the way."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner
from loopback import until

from jev_engine import ContextEngine
from jev_engine.cli import main
from jev_engine.serve import hooks as hooks_module
from jev_engine.serve import process
from jev_engine.serve.activity import Activity
from jev_engine.serve.app import make_app
from jev_engine.serve.desk import Desk
from jev_engine.serve.environment import known_environment, leaves_settings_out
from jev_engine.serve.hooks import MOST_WAITING_BYTES, HookDesk
from jev_engine.serve.places import places, wrong_files
from jev_engine_adapters.anthropic.install import integration as gateway
from jev_engine_adapters.claude_code.install import integration as claude_code

LINUX = Path("/proc/self/environ").exists()


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user without anything; whatever runs ends with the test."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("JEV_ENGINE_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("JEV_ENGINE_PORT", "0")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    (tmp_path / "claude").mkdir()
    yield tmp_path
    process.stop()


def files_in(folder):
    """Every file below, its mode and what it holds."""
    found = {}
    for path in sorted(folder.rglob("*")):
        what = path.read_bytes() if path.is_file() else None
        found[str(path.relative_to(folder))] = (path.lstat().st_mode, what)
    return found


# --- how it is started -----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.skipif(not LINUX, reason="NOT CHECKED: the environment of another process is read from /proc")
@pytest.mark.usefixtures("home")
def test_it_takes_nothing_along_of_the_session_that_starts_it(monkeypatch, tmp_path):
    """Neither a project's variables nor its folder; by whichever way it is started."""
    project = tmp_path / "project"
    project.mkdir()
    monkeypatch.chdir(project)
    secret = {"PROJECT_SECRET": "1", "ANTHROPIC_BASE_URL": "http://127.0.0.1:9", "LD_PRELOAD_NOT": "x", "PWD": "/p"}
    for name, value in secret.items():
        monkeypatch.setenv(name, value)
    program = tmp_path / "jev-engine"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m jev_engine "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    relay = Path(hooks_module.__file__).with_name("relay.py")

    def by_hook():
        argv = [sys.executable, "-I", "-S", str(relay), str(places().socket), str(program)]
        subprocess.run(argv, input=b'{"hook_event_name": "SessionEnd"}', check=True)
        return until(process.running)

    for start in (process.ensure, by_hook):
        pid = start().pid
        held = dict(
            each.split("=", 1) for each in Path(f"/proc/{pid}/environ").read_text(encoding="utf-8").split("\0") if each
        )
        assert not secret.keys() - {"PWD"} & held.keys()
        assert held.get("PWD") != str(project)
        assert Path(f"/proc/{pid}/cwd").readlink() == Path("/")
        assert {"HOME", "PATH", "JEV_ENGINE_RUNTIME"} <= held.keys()
        process.stop()


def test_another_settings_file_counts_with_a_folder_of_its_own_only():
    """Then no other session asks that process."""
    named = {"HOME": "/h", "JEV_ENGINE_CONFIG": "/p/config.toml", "XDG_CONFIG_HOME": "/h/c", "npm_config_x": "1"}

    assert known_environment(named) == {"HOME": "/h", "XDG_CONFIG_HOME": "/h/c"}

    assert leaves_settings_out(named)
    own = {**named, "JEV_ENGINE_RUNTIME": "/p/run"}
    assert known_environment(own) == {name: value for name, value in own.items() if name != "npm_config_x"}
    assert not leaves_settings_out(own)


def test_one_answer_from_the_command_uses_the_settings_the_process_uses(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both answer for one session: its originals must lie in one store."""
    (tmp_path / "config.toml").write_text("miss_cost = 'odd'\n")
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "none"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("JEV_ENGINE_RUNTIME", raising=False)
    asked = json.dumps({"session_id": "s"})
    left_out = CliRunner().invoke(main, ["serve", "--once", "status"], input=asked)
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("JEV_ENGINE_RUNTIME", str(tmp_path / "run"))
    taken = CliRunner().invoke(main, ["serve", "--once", "status"], input=asked)

    assert "miss_cost" not in left_out.output
    assert "miss_cost" in taken.output
    assert not leaves_settings_out({"HOME": "/h"})


def test_keys_of_judges_and_the_way_to_the_network_go_along():
    """Without them it could ask nobody."""
    needed = {
        "TYPESAFE_API_KEY": "1", "OPENROUTER_API_KEY": "2", "OPENAI_API_KEY": "3", "JEV_ENGINE_API_KEY": "4",
        "https_proxy": "http://p", "NO_PROXY": "x", "SSL_CERT_FILE": "/c", "LC_ALL": "C.UTF-8",
    }  # fmt: skip

    assert known_environment({**needed, "ANTHROPIC_API_KEY": "5", "GIT_DIR": "/g"}) == needed


# --- looking at it ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("runs", [False, True])
def test_a_doctor_only_looks(home, runs):
    """No file is written, no process started or ended: what was there before is there after."""
    program = home / "jev-engine"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m jev_engine "$@"\n', encoding="utf-8")
    program.chmod(0o755)
    options = {"command": str(program), "claude": str(home / "none")}
    argv = [word for name, value in options.items() for word in ("-O", f"{name}={value}")]
    CliRunner().invoke(main, ["setup", "claude-code", "--yes", *argv], catch_exceptions=False)
    pid = process.ensure(port=0, idle_seconds=60).pid if runs else None
    if runs:
        list(gateway.doctor({}))  # the process makes its gateway at the first request to it
    before = files_in(home)

    found = [*claude_code.doctor(options), *gateway.doctor({}), *gateway.doctor({"port": "47180"})]
    status = subprocess.run([str(program), "serve", "--status"], capture_output=True, text=True, check=True)

    assert {"program", "process"} <= {finding.what for finding in found if finding.state == "ok"}
    assert files_in(home) == before
    running = process.running()
    assert (running and running.pid) == pid
    assert json.loads(status.stdout)["running"] is runs


def test_what_would_keep_it_from_running_is_found_by_looking(home, monkeypatch):
    """A token that others can read, a folder that is none, a port that is none."""
    at = places()
    assert process.obstacle() is None
    at.folder.mkdir(mode=0o700)
    at.token.write_text("x" * 40, encoding="ascii")
    at.token.chmod(0o644)
    assert "chmod 600" in str(process.obstacle())
    at.token.chmod(0o600)
    assert process.obstacle() is None
    at.token.write_text("short", encoding="ascii")
    assert "holds no token" in str(process.obstacle())
    monkeypatch.setenv("JEV_ENGINE_RUNTIME", str(home / "file"))
    (home / "file").touch()
    assert "folder of this user" in str(wrong_files(places()))
    monkeypatch.setenv("JEV_ENGINE_PORT", "many")
    assert "JEV_ENGINE_PORT" in str(process.obstacle())


# --- how it ends -----------------------------------------------------------------------------------------------------

FAILING = """
from jev_engine.serve import process
from jev_engine.serve.desk import Desk
from jev_engine.serve.hooks import HookDesk

def fails(self, *given):
    raise OSError("no space left on device")

{what}
process.serve(port=0, idle_seconds=0.3)
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", ["Desk.close = fails", "HookDesk.wait = fails", "Desk.close = HookDesk.wait = fails"])
@pytest.mark.usefixtures("home")
def test_whatever_fails_at_the_end_nothing_is_left_behind(what):
    """Socket and state go, and the next process begins at once."""
    at = places()
    ended = subprocess.run([sys.executable, "-c", FAILING.format(what=what)], capture_output=True, check=False)

    assert b"no space left" in ended.stderr
    assert not at.socket.exists()
    assert not at.state.exists()
    start = time.monotonic()
    assert process.ensure(port=0).pid
    assert time.monotonic() - start < 10


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_stopping_waits_for_all_that_ending_may_take():
    """A request in flight and hooks that are slow to be told, one after the other."""
    script = FAILING.format(what="import time; HookDesk.wait = lambda self: time.sleep(6)").replace("0.3", "0")
    started = subprocess.Popen([sys.executable, "-c", script])
    until(process.running)
    hanging = threading.Thread(target=_ask_and_wait, args=(places().socket,), daemon=True)
    hanging.start()
    until(lambda: process.running().in_flight)

    start = time.monotonic()
    assert process.stop()
    seconds = time.monotonic() - start

    assert started.wait(10) == 0
    assert process.GRACE_SECONDS + hooks_module.CLOSE_SECONDS < seconds < process.STOP_SECONDS


def _ask_and_wait(path):
    """A request whose body never comes to its end."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.connect(str(path))
        asking.sendall(b"POST /plugin/status HTTP/1.1\r\nhost: jev-engine\r\ncontent-length: 100\r\n\r\n{")
        asking.recv(1_000)


class Sticky:
    """A sink whose file cannot be closed."""

    closed = 0

    def emit(self, event):
        """Take anything."""

    def close(self):
        """Never."""
        self.closed += 1
        raise OSError("no space left on device")


def test_a_trail_that_cannot_be_closed_keeps_no_other_open():
    """Nor does closing the desk fail."""
    sinks = [Sticky() for _ in range(4)]
    desk = Desk()
    desk._engines.update(one=ContextEngine(sinks=sinks[:2]), other=ContextEngine(sinks=sinks[2:]))

    desk.close()

    assert [sink.closed for sink in sinks] == [1, 1, 1, 1]


# --- hooks that wait -------------------------------------------------------------------------------------------------


def test_hooks_that_wait_are_bounded_by_what_they_weigh():
    """However few they are; what is told makes room again."""
    tenth = MOST_WAITING_BYTES // 10
    gate, told = threading.Event(), []

    def work(_, payload):
        gate.wait(10)
        told.append(payload["n"])

    hooks = HookDesk(None, work=work)
    for number in range(10):
        hooks.take({"n": number}, 3 * tenth)
    assert hooks.dropped == 7
    hooks.take({"n": 10}, tenth)
    assert hooks.dropped == 7
    gate.set()
    assert hooks.wait()
    hooks.take({"n": 11}, MOST_WAITING_BYTES)
    hooks.take({"n": 12}, MOST_WAITING_BYTES + 1)
    assert hooks.wait()

    assert told == [0, 1, 2, 10, 11]
    assert hooks.dropped == 8


def test_what_comes_over_http_is_weighed_as_it_came():
    """Blanks included: nobody waits, nobody is told."""
    gate = threading.Event()
    hooks = HookDesk(None, work=lambda *_: gate.wait(10))
    hooks.take({}, MOST_WAITING_BYTES - 1_000)
    app = make_app(token="t", port=1, activity=Activity(), hooks=hooks)  # noqa: S106  # opens nothing
    body = b'{"hook_event_name": "SessionEnd"' + b" " * 400 + b"}"

    async def post_all():
        headers = {"host": "127.0.0.1:1", "authorization": "Bearer t"}
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://127.0.0.1:1") as client:
            return [(await client.post("/hooks", content=body, headers=headers)).status_code for _ in range(5)]

    statuses = asyncio.run(post_all())
    gate.set()

    assert statuses == [200] * 5
    assert hooks.dropped == 3
    assert hooks.wait()
