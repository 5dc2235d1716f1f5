"""`jev-engine setup gateway` and its kin, and the gateway inside the local process."""

from __future__ import annotations

import json
import socket

import httpx
import pytest
from click.testing import CliRunner
from hosts.messages_api import MessagesApi
from serve.gateway_lab import Agent, markers

from jev_engine.cli import main
from jev_engine.serve import process
from jev_engine.serve.places import places, read_token
from jev_engine_adapters.anthropic.install import integration


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A user without anything: runtime folder, settings of ours and of Claude Code."""
    monkeypatch.setenv("JEV_ENGINE_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(tmp_path / "config.toml"))
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.delenv("JEV_ENGINE_PORT", raising=False)
    (tmp_path / "claude").mkdir()
    return tmp_path


def run(*words):
    return CliRunner().invoke(main, [*words], catch_exceptions=False)


def settings(home):
    return json.loads((home / "claude" / "settings.json").read_text(encoding="utf-8"))


def states(**options):
    return {finding.what: finding.state for finding in integration.doctor(options)}


def test_the_lines_an_agent_needs_are_shown(home):
    """With the token, which is made once and kept for this user only."""
    first, second = run("setup", "gateway", "--yes"), run("setup", "gateway", "--yes")

    token = read_token(places())
    for shown in (first.stdout, second.stdout):
        assert f"ANTHROPIC_BASE_URL=http://127.0.0.1:47180/gateway/{token}/anthropic" in shown.replace("\n", "")
        assert f"OPENAI_BASE_URL=http://127.0.0.1:47180/gateway/{token}/openai/v1" in shown.replace("\n", "")
    assert places().token.stat().st_mode & 0o077 == 0
    assert not (home / "claude" / "settings.json").exists()


def test_claude_code_is_told_in_its_settings_and_everything_else_stays(home):
    """A backup beside them, and the same again without our entry."""
    path = home / "claude" / "settings.json"
    before = {"model": "opus", "env": {"A": "1"}, "hooks": {}}
    path.write_text(json.dumps(before), encoding="utf-8")

    run("setup", "gateway", "--yes", "-O", "agent=claude-code", "-O", "port=50000")
    told = settings(home)
    run("remove", "gateway", "--yes")

    address = told["env"].pop("ANTHROPIC_BASE_URL")
    assert address == f"http://127.0.0.1:50000/gateway/{read_token(places())}/anthropic"
    assert told == before
    assert settings(home) == before
    assert len(list(path.parent.glob("settings.json.jev-backup-*"))) >= 1


def test_another_address_is_not_overwritten(home):
    """Somebody put it there."""
    path = home / "claude" / "settings.json"
    path.write_text('{"env": {"ANTHROPIC_BASE_URL": "https://proxy.example.com"}}', encoding="utf-8")

    done = run("setup", "gateway", "--yes", "-O", "agent=claude-code")
    run("remove", "gateway", "--yes")

    assert done.exit_code != 0
    assert "[upstreams]" in done.stderr
    assert settings(home) == {"env": {"ANTHROPIC_BASE_URL": "https://proxy.example.com"}}


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize("option", ["agent=emacs", "port=0", "port=x", "colour=red"])
def test_options_that_are_none_are_named(option):
    """Before anything is written."""
    done = run("setup", "gateway", "--yes", "-O", option)

    assert done.exit_code != 0
    assert option.partition("=")[0] in done.stderr
    assert not places().token.exists()


@pytest.mark.usefixtures("home")
def test_doctor_says_that_nothing_serves_the_address():
    """And what to do."""
    run("setup", "gateway", "--yes", "-O", "agent=claude-code")

    assert states() == {"process": "bad", "claude-code": "ok"}


def test_settings_that_cannot_be_read_are_left_alone(home):
    """Mended by their owner first."""
    path = home / "claude" / "settings.json"
    path.write_text("{", encoding="utf-8")

    done = run("setup", "gateway", "--yes", "-O", "agent=claude-code")

    assert done.exit_code != 0
    assert path.read_text(encoding="utf-8") == "{"
    assert states()["claude-code"] == "bad"


@pytest.mark.usefixtures("home")
def test_streams_are_not_held_back():
    """Only a socket that names its protocol gets Nagle's algorithm turned off, by asyncio."""
    at = places()
    at.folder.mkdir(parents=True, exist_ok=True)
    listening = process._listen(at, 0)
    protocol = listening[1].proto
    for each in listening:
        each.close()

    assert protocol == socket.IPPROTO_TCP


@pytest.mark.slow
def test_the_local_process_serves_the_gateway(home):
    """Started as the notes say, with an upstream of the user's own settings; its store keeps what left."""
    with MessagesApi() as api:
        store = home / "originals.sqlite3"
        (home / "config.toml").write_text(
            f'store = "{store}"\nwindow_tokens = 20000\npolicy = "threshold"\nkeep_result = 1.0\nkeep_call = 0.0\n'
            f'[upstreams]\nanthropic = "{api.url}"\n',
            encoding="utf-8",
        )
        run("setup", "gateway", "--yes")
        found = process.ensure(port=0, idle_seconds=60.0)
        try:
            root = f"http://127.0.0.1:{found.port}/gateway/{read_token(places())}"
            agent = Agent(f"{root}/anthropic")
            agent.say("SCRIPT: " + " ;; ".join([*(f"bash cat {n}" for n in range(13)), "text Done."]))
            health = httpx.get(f"{root}/health").json()
            seen = states(port=str(found.port))
            foreign = httpx.post(f"{root}/anthropic/v1/messages", json={}, headers={"origin": "https://example.com"})
        finally:
            process.stop()

    assert markers(api.turns[-1].json()["messages"]) >= 4
    assert health["counts"]["requests"] == 14
    assert (seen["process"], seen["gateway"]) == ("ok", "ok")
    assert foreign.status_code == 403
    assert store.exists()


@pytest.mark.slow
def test_the_doctor_says_that_settings_keep_the_gateway_from_its_work(home):
    """And how many requests went on as they came; once they are mended, that there were some."""
    with MessagesApi() as api:
        upstreams = f'[upstreams]\nanthropic = "{api.url}"\n'
        (home / "config.toml").write_text(f'miss_cost = "many"\n{upstreams}', encoding="utf-8")
        found = process.ensure(port=0, idle_seconds=60.0)
        try:
            agent = Agent(f"http://127.0.0.1:{found.port}/gateway/{read_token(places())}/anthropic")
            agent.say("SCRIPT: bash a ;; text Done.")
            said = {finding.what: finding for finding in integration.doctor({})}["gateway"]
            shown = run("doctor", "gateway")
        finally:
            process.stop()

    assert said.state == "bad"
    assert "2 requests went on untouched" in said.text
    assert "miss_cost" in said.text
    assert (shown.exit_code, "miss_cost" in shown.output) == (1, True)
    assert len(api.turns) == 2
