"""`jev-engine setup claude-code` and its kin on the real Claude Code, and what its own plugin tests say."""

from __future__ import annotations

import json
import subprocess

import pytest
from hosts.claude_code_lab import MOD, ROOT, opened_lab, reading, results
from loopback import until

pytestmark = pytest.mark.slow

PROMPT = reading(6, "text Read them all.")


@pytest.fixture
def lab(tmp_path):
    """A home, a project and an API; the process it starts ends with it."""
    with opened_lab(tmp_path) as made:
        yield made


@pytest.fixture
def fresh(lab):
    """A lab whose user has settings of their own, and none of ours."""
    path = lab.home / ".claude" / "settings.json"
    mine = {
        "model": "opus",
        "env": {"MINE": "1"},
        "permissions": {"allow": ["Bash(ls)"]},
        "hooks": {"Stop": [{"matcher": "", "hooks": [{"type": "command", "command": "true"}]}]},
    }
    path.write_text(json.dumps(mine), encoding="utf-8")
    return lab


def set_up(lab, *options):
    """What `setup` says, in JSON."""
    named = [f"--option={each}" for each in (f"command={lab.command}", f"claude={lab.cli}", *options)]
    return json.loads(lab.engine("setup", "claude-code", "--yes", "--json", *named))


def held(lab):
    """The user's settings."""
    return json.loads((lab.home / ".claude" / "settings.json").read_text(encoding="utf-8"))


def test_after_setup_the_plugin_is_there_without_being_named(fresh):
    """And the user's own settings are still in place, with a copy beside them."""
    before = held(fresh)

    told = set_up(fresh)
    fresh.run(PROMPT, plugin=None)
    compacted = fresh.run("/compact", plugin=None)
    after = fresh.run("SCRIPT: text Still here.", plugin=None)

    assert told["is_written"]
    assert len(told["backups"]) == 1
    assert any("2.1." in note for note in told["notes"])
    assert held(fresh)["model"] == "opus"
    assert held(fresh)["hooks"] == before["hooks"]
    assert compacted.requests == []
    assert any("[jev-engine: result of" in text for text in results(after.messages))


def test_setup_twice_changes_nothing_and_remove_leaves_what_was_there(fresh):
    """Also where the second one is told nothing; and the user's settings come back as they were."""
    before = held(fresh)
    set_up(fresh, "hooks=command", "headless=yes")
    once = held(fresh)

    again = set_up(fresh)
    fresh.engine("remove", "claude-code", "--yes")

    assert once["env"] == {"MINE": "1", "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "60"}
    assert again["changes"] == []
    assert held(fresh) == before
    assert not list((fresh.home / "data" / "jev-engine").rglob("*.ts"))


def test_doctor_says_what_is_wrong_and_what_is_not(fresh):
    """Before: not enabled; after: all is well."""
    before = subprocess.run(
        [str(fresh.command), "doctor", "claude-code", "--json", f"--option=claude={fresh.cli}"],
        env=fresh.env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    set_up(fresh)

    after = json.loads(fresh.engine("doctor", "claude-code", "--json", f"--option=claude={fresh.cli}"))

    assert before.returncode == 1
    assert any("not enabled" in each["text"] for each in json.loads(before.stdout))
    assert {each["state"] for each in after} <= {"ok", "note"}
    assert {"claude", "settings", "plugin", "program", "process"} <= {each["what"] for each in after}


def events(trail):
    """Kinds of the events in a trail, in order."""
    if not trail.exists():
        return []
    lines = trail.read_text(encoding="utf-8").split("\n")[:-1]
    return [json.loads(line).get("event", json.loads(line)).get("kind") for line in lines]


@pytest.mark.parametrize("kind", ["command", "http"])
def test_hooks_bring_tools_sessions_and_the_fate_of_a_pass_into_the_trail(fresh, kind, tmp_path):
    """Before and after each call, at start and end; and what became of the pass is the host's word."""
    trail = tmp_path / "trail.jsonl"
    config = fresh.home / "config" / "jev-engine" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'audit = "{trail}"\n', encoding="utf-8")
    set_up(fresh, f"hooks={kind}")
    fresh.engine("serve", "--ensure")

    fresh.run(PROMPT, plugin=None)
    fresh.run("/compact", plugin=None)
    wanted = {"session_started", "tool_called", "tool_finished", "pass_started", "committed", "session_ended"}
    until(lambda: wanted <= set(events(trail)))

    found = events(trail)
    assert found.count("tool_called") == found.count("tool_finished") == 6
    assert found.count("committed") == 1


def test_hooks_survive_a_missing_engine(fresh):
    """No process, no program: the session notices nothing."""
    set_up(fresh, "hooks=command")
    fresh.command.unlink()

    run = fresh.run(PROMPT, plugin=None)

    assert run.result == "Read them all."
    assert run.stderr == ""
    assert run.seconds < 15


def test_the_plugin_passes_the_tests_of_its_host(lab):
    """Validated as its host reads it, and run in its host's own environment."""
    validated = lab.plugin("validate", str(MOD))
    offered = lab.plugin("validate", str(ROOT))
    tested = lab.plugin("test", str(MOD))

    assert validated.returncode == 0, validated.stdout
    assert offered.returncode == 0, offered.stdout
    assert tested.returncode == 0, tested.stdout + tested.stderr


def test_the_repository_itself_installs_as_a_plugin(lab):
    """By the marketplace manifest at its root."""
    added = lab.plugin("marketplace", "add", str(ROOT))
    installed = lab.plugin("install", "jev-engine@jev-engine")
    listed = lab.plugin("list")

    assert added.returncode == installed.returncode == 0
    assert "jev-engine@jev-engine" in listed.stdout
