"""Whoever holds the port of an address gets what is sent there: no address is shown or kept without saying so."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys

import pytest
from click.testing import CliRunner
from loopback import free_port

from jev_engine.cli import main
from jev_engine.errors import ServeError
from jev_engine.serve import process
from jev_engine.serve.places import places, read_token
from jev_engine_adapters.anthropic.install import integration

SHOWN = re.compile(r"http://127\.0\.0\.1:(\d+)/gateway/")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user without anything; whatever runs ends with the test."""
    monkeypatch.setenv("JEV_ENGINE_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    (tmp_path / "claude").mkdir()
    yield tmp_path
    process.stop()


@pytest.fixture
def stranger():
    """A program of somebody else; what it is sent can be read from it."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening


def port_of(listening):
    return listening.getsockname()[1]


def heard(listening):
    """Everything the stranger was sent."""
    listening.settimeout(0.2)
    got = b""
    while True:
        try:
            connection, _ = listening.accept()
        except TimeoutError:
            return got
        with connection:
            got += connection.recv(65_536)


def run(*words):
    return CliRunner().invoke(main, [*words], catch_exceptions=False)


def found_of(what, **options):
    return next(finding for finding in integration.doctor(options) if finding.what == what)


@pytest.mark.slow
def test_a_port_that_a_stranger_has_is_said_by_all_who_are_asked(home, monkeypatch, stranger):
    """The start, the set-up and the doctor; the stranger is sent nothing."""
    monkeypatch.setenv("JEV_ENGINE_PORT", str(port_of(stranger)))
    wanted = port_of(stranger)

    before = found_of("process")
    planned = run("setup", "gateway", "--dry-run")
    started = subprocess.run(
        [sys.executable, "-m", "jev_engine", "serve", "--ensure"], capture_output=True, text=True, check=True
    )
    told = json.loads(started.stdout)
    run("setup", "gateway", "--yes", "-O", "agent=claude-code")
    shown = run("setup", "gateway", "--dry-run")
    after = found_of("process")
    settings = (home / "claude" / "settings.json").read_text(encoding="utf-8")

    assert told["port"] != wanted
    assert f"not on {wanted}" in started.stderr
    assert "Warning" in places().log.read_text(encoding="utf-8")
    assert (before.state, after.state) == ("bad", "bad")
    assert f"another program listens on port {wanted}" in before.text
    assert f"not on {wanted}" in after.text
    assert "WARNING" in planned.stdout
    assert "WARNING" in shown.stdout
    assert {int(port) for port in SHOWN.findall(settings + shown.stdout)} == {told["port"]}
    assert read_token(places()).encode() not in heard(stranger)


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_on_the_wanted_port_nothing_is_said(monkeypatch):
    """Named by the environment, and by nobody else."""
    port = free_port()
    monkeypatch.setenv("JEV_ENGINE_PORT", str(port))

    planned = run("setup", "gateway", "--dry-run")
    started = subprocess.run(
        [sys.executable, "-m", "jev_engine", "serve", "--ensure"], capture_output=True, text=True, check=True
    )
    shown = run("setup", "gateway", "--dry-run")

    assert (json.loads(started.stdout)["port"], started.stderr) == (port, "")
    assert found_of("process").state == "ok"
    for each in (planned, shown):
        assert "WARNING" not in each.stdout
        assert {int(found) for found in SHOWN.findall(each.stdout)} == {port}
    assert found_of("process", port=str(free_port())).state == "bad"


@pytest.mark.slow
@pytest.mark.usefixtures("home")
def test_a_port_of_its_own_is_shown_and_only_said_where_addresses_name_another(monkeypatch):
    """Started with --port: right for whoever names it, wrong for whoever does not."""
    monkeypatch.delenv("JEV_ENGINE_PORT", raising=False)
    port = process.ensure(port=free_port()).port

    shown = run("setup", "gateway", "--dry-run")

    assert {int(found) for found in SHOWN.findall(shown.stdout)} == {port}
    assert found_of("process").state == "bad"
    assert found_of("process", port=str(port)).state == "ok"


@pytest.mark.slow
def test_a_port_that_the_settings_of_an_agent_name_is_the_wanted_one(home, monkeypatch):
    """Set up with it and started with it: nothing is wrong; moved away from it, that is said."""
    monkeypatch.setenv("JEV_ENGINE_PORT", "0")
    port = free_port()
    run("setup", "gateway", "--yes", "-O", "agent=claude-code", "-O", f"port={port}")
    process.ensure(port=port)
    right = found_of("process"), found_of("claude-code")
    process.stop()
    process.ensure(port=free_port())
    wrong = found_of("process"), found_of("claude-code")

    assert [finding.state for finding in right] == ["ok", "ok"]
    assert [finding.state for finding in wrong] == ["bad", "bad"]
    assert str(port) in (home / "claude" / "settings.json").read_text(encoding="utf-8")


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("named", ["0", "many", "70000", "-1"])
def test_a_variable_that_names_no_port_shows_no_address(monkeypatch, named):
    """Nothing is made up."""
    monkeypatch.setenv("JEV_ENGINE_PORT", named)

    done = run("setup", "gateway", "--yes")

    assert done.exit_code != 0
    assert "JEV_ENGINE_PORT" in done.stderr
    assert not SHOWN.search(done.stdout)
    assert found_of("process").state == "bad"


def test_where_any_port_will_do_none_is_the_wrong_one(monkeypatch):
    """And where the variable is wrong, that is said."""
    monkeypatch.setenv("JEV_ENGINE_PORT", "0")
    assert process.elsewhere(40_000) is None
    assert process.elsewhere(40_000, 40_000) is None
    assert "not on 40001" in str(process.elsewhere(40_000, 40_001))
    monkeypatch.setenv("JEV_ENGINE_PORT", "x")
    with pytest.raises(ServeError, match="JEV_ENGINE_PORT"):
        process.elsewhere(40_000)
