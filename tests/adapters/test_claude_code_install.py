"""Setting up Claude Code: what is planned, and that a user's own settings are left alone."""

from __future__ import annotations

import json
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jev_engine.errors import HostError
from jev_engine.hosts import HostIntegration, carry_out
from jev_engine_adapters.claude_code import settings
from jev_engine_adapters.claude_code.install import installed_version, integration, plugin_folder, route_for

MINE = {
    "model": "opus",
    "env": {"MINE": "1", "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE": "80"},
    "permissions": {"allow": ["Bash(ls)"], "deny": []},
    "hooks": {"PostToolUse": [{"matcher": "Edit", "hooks": [{"type": "command", "command": "fmt"}]}]},
    "enabledPlugins": {"other@market": True},
}


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home of its own, with a `claude` that says its version."""
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(tmp_path / "claude"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setenv("JEV_ENGINE_RUNTIME", str(tmp_path / "run"))
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(tmp_path / "none.toml"))
    (tmp_path / "claude").mkdir()
    return tmp_path


def program(folder, name, says):
    """A program that prints a line."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{says}'\n", encoding="utf-8")
    path.chmod(0o755)
    return str(path)


def options(home, version="2.1.332 (Claude Code)", **more):
    """Options that name both programs."""
    return {"claude": program(home, "claude-program", version), "command": sys.executable, **more}


def write(home, held):
    """The user's settings."""
    path = home / "claude" / "settings.json"
    path.write_text(held if isinstance(held, str) else json.dumps(held, indent=2), encoding="utf-8")
    return path


def read(path):
    """The settings as they are."""
    return json.loads(path.read_text(encoding="utf-8"))


def test_it_is_a_host_integration():
    """As the frame wants it."""
    assert isinstance(integration, HostIntegration)


@pytest.mark.parametrize(
    ("version", "plugin", "flag"),
    [
        (None, True, False),
        ((2, 1, 332), True, False),
        ((2, 1, 287), True, False),
        ((2, 1, 286), True, True),
        ((2, 1, 268), True, True),
        ((2, 1, 267), False, False),
        ((1, 0, 99), False, False),
    ],
)
def test_the_route_goes_by_the_version_and_says_why(version, plugin, flag):
    """The plugin, the plugin behind a flag, or the gateway."""
    route = route_for(version)

    assert (route.plugin, route.needs_flag) == (plugin, flag)
    assert "gateway" in route.why or route.plugin


def test_a_program_that_says_no_version_has_none(home):
    """Or is not there."""
    assert installed_version(program(home, "odd", "hello")) is None
    assert installed_version(str(home / "none")) is None
    assert installed_version(program(home, "new", "3.10.2 (Claude Code)")) == (3, 10, 2)


def test_planning_writes_nothing(home):
    """Not even the token that hooks over HTTP need."""
    write(home, MINE)
    before = sorted(home.rglob("*"))
    given = options(home, hooks="http")

    plan = integration.setup(given)

    assert sorted(home.rglob("*")) == sorted([*before, home / "claude-program"])
    assert any(change.path.name == "serve.token" for change in plan.changes)
    assert any("2.1.332" in note for note in plan.notes)


@pytest.mark.parametrize("hooks", ["none", "command", "http"])
def test_setting_up_and_removing_leaves_the_settings_as_they_were(home, hooks):
    """Also what looks like ours but was there before."""
    path = write(home, MINE)
    carry_out(integration.setup(options(home, hooks=hooks)))
    held = json.loads(path.read_text(encoding="utf-8"))
    assert held["enabledPlugins"] == {"other@market": True, "jev-engine@jev-engine": True}
    assert held["model"] == "opus"
    assert len(held["hooks"]) == (1 if hooks == "none" else 7)
    assert held["hooks"]["PostToolUse"][0] == MINE["hooks"]["PostToolUse"][0]
    assert (plugin_folder() / "plugin" / "hooks" / "jev-engine.ts").exists()

    carry_out(integration.remove({}))

    assert read(path) == MINE
    assert not list(plugin_folder().rglob("*.ts"))


def test_the_options_of_the_plugin_are_kept_over_a_second_set_up(home):
    """What the user has set there before is not lost."""
    path = write(home, MINE)
    carry_out(integration.setup(options(home, judge="jev", percent="70")))
    carry_out(integration.setup(options(home, endpoint="openrouter")))

    found = settings.plugin_options(json.loads(path.read_text(encoding="utf-8")))
    assert found == {"command": sys.executable, "compactAtPercent": 70, "judge": "jev", "endpoint": "openrouter"}


def test_files_of_an_older_plugin_go(home):
    """What is no part of it any more would be loaded with it."""
    write(home, MINE)
    carry_out(integration.setup(options(home)))
    old = plugin_folder() / "plugin" / "hooks" / "old.ts"
    old.write_text("old", encoding="utf-8")

    carry_out(integration.setup(options(home)))
    assert not old.exists()

    types = plugin_folder() / "plugin" / ".claude-plugin" / "types" / "index.d.ts"
    types.parent.mkdir()
    types.write_text("types", encoding="utf-8")
    carry_out(integration.remove({}))
    assert not any(path.is_file() for path in plugin_folder().rglob("*"))


def test_an_old_version_gets_hooks_only(home):
    """And is told of the gateway."""
    path = write(home, {})

    plan = integration.setup(options(home, version="2.0.64", hooks="command"))

    assert [change.path for change in plan.changes if not change.is_ours] == [path]
    assert not [change for change in plan.changes if change.path.suffix == ".ts"]
    assert "gateway" in plan.notes[0]
    assert "enabledPlugins" not in json.loads(plan.changes[-1].content)


def test_a_version_behind_a_flag_gets_the_flag(home):
    """In the settings, so that every session has it."""
    plan = integration.setup(options(home, version="2.1.270"))

    assert json.loads(plan.changes[-1].content)["env"] == {"CLAUDE_CODE_ENABLE_FUNCTION_HOOKS": "1"}


@pytest.mark.parametrize("held", ["[]", "{not json", '{"a": '])
def test_settings_that_cannot_be_read_stay_as_they_are(home, held):
    """Their owner is told which file it is."""
    path = write(home, held)

    with pytest.raises(HostError, match=r"settings\.json"):
        integration.setup(options(home))
    assert path.read_text(encoding="utf-8") == held


@pytest.mark.parametrize(
    "odd",
    [
        {"percent": "x"},
        {"percent": "99"},
        {"percent": "\u00b2"},
        {"headless": "maybe"},
        {"hooks": "pigeons"},
        {"command": "/no/such"},
    ],
)
def test_options_that_make_no_sense_are_refused(home, odd):
    """Before anything is written."""
    with pytest.raises(HostError):
        integration.setup({**options(home), **odd})


def test_doctor_names_what_is_wrong(home):
    """And then finds nothing."""
    write(home, {**MINE, "disableAllHooks": True})
    before = {finding.text for finding in integration.doctor(options(home))}
    given = options(home, command=program(home, "engine", '{"running": true, "socket": "/s", "pid": 1, "port": 2}'))
    write(home, MINE)
    carry_out(integration.setup(given))

    after = list(integration.doctor(given))
    (plugin_folder() / "plugin" / "hooks" / "build.ts").write_text("old", encoding="utf-8")
    stale = list(integration.doctor(given))

    assert any("not enabled" in text for text in before)
    assert any("disableAllHooks" in text for text in before)
    assert {finding.state for finding in after} <= {"ok", "note"}
    assert [finding.text.split(" ")[0] for finding in stale if finding.state == "bad"] == ["build.ts"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=12,
)
held_settings = st.dictionaries(
    st.sampled_from(
        ["model", "env", "permissions", "hooks", "enabledPlugins", "pluginConfigs", "extraKnownMarketplaces"]
    ),
    json_values,
)


@given(held_settings)
def test_whatever_stands_in_the_settings_adding_and_taking_out_never_fails(held):
    """And what is no part of ours is still there afterwards."""
    without = settings.without_ours(held)
    wanted = settings.with_hooks(
        settings.with_plugin(without, plugin_folder(), {"command": "x"}, flag=False), "command", "/bin/jev-engine"
    )
    back = settings.without_ours(wanted)

    for name, value in without.items():
        if isinstance(value, dict) and name != "hooks":
            assert value.items() <= back.get(name, {}).items() or not value
    assert settings.without_ours(back) == back
