"""Setting up Claude Code a second time: what its user has set stays, and so does what was chosen before."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from jev_engine.hosts import carry_out
from jev_engine_adapters.claude_code import settings, setups
from jev_engine_adapters.claude_code.install import integration, plugin_folder

PERCENT, FLAG = "CLAUDE_AUTOCOMPACT_PCT_OVERRIDE", "CLAUDE_CODE_ENABLE_FUNCTION_HOOKS"
FROM_ELSEWHERE = {
    "extraKnownMarketplaces": {"jev-engine": {"source": {"source": "github", "repo": "owner/repo"}}},
    "enabledPlugins": {"jev-engine@jev-engine": False},
    "pluginConfigs": {"jev-engine@jev-engine": {"options": {"missCost": 9}, "mcpServers": {"a": {}}}},
}
"""The plugin as its user has installed it from the repository, and switched off."""


class Desk:
    """A home whose settings are set up again and again."""

    def __init__(self, folder):
        self.folder = folder
        self.path = folder / "claude" / "settings.json"
        self.claude = self.program("claude-program", "2.1.332 (Claude Code)")
        self.command = self.program("engine", "engine")

    def program(self, name, says):
        """A program that prints a line."""
        path = self.folder / name
        path.write_text(f"#!/bin/sh\necho '{says}'\n", encoding="utf-8")
        path.chmod(0o755)
        return str(path)

    def begin(self, held):
        """The settings as their user has them."""
        self.path.write_text(json.dumps(held), encoding="utf-8")

    def setup(self, **options):
        """Set it up; what the settings then hold, and the notes."""
        plan = integration.setup({"claude": self.claude, **options})
        carry_out(plan)
        self.notes = "\n".join(plan.notes)
        return self.held

    def remove(self):
        """Take it out; what is left."""
        carry_out(integration.remove({}))
        return self.held

    @property
    def held(self):
        return json.loads(self.path.read_text(encoding="utf-8"))

    def change(self, part, name, value):
        """As its user would, with an editor."""
        held = self.held
        held.setdefault(part, {})[name] = value
        self.begin(held)


@pytest.fixture
def desk(tmp_path, monkeypatch):
    """Places of its own for everything."""
    for name, folder in {
        "CLAUDE_CONFIG_DIR": "claude",
        "XDG_DATA_HOME": "data",
        "JEV_ENGINE_RUNTIME": "run",
        "JEV_ENGINE_CONFIG": "config.toml",
    }.items():
        monkeypatch.setenv(name, str(tmp_path / folder))
    (tmp_path / "claude").mkdir()
    made = Desk(tmp_path)
    made.begin({})
    return made


def plugin(held):
    """The options of the plugin."""
    return settings.plugin_options(held)


@pytest.mark.parametrize("name", [PERCENT, FLAG])
@pytest.mark.parametrize("value", ["80", "60", "1", 81])
def test_a_variable_of_the_user_survives_every_run(desk, name, value):
    """Also where it has the value that we would write."""
    desk.begin({"env": {name: value, "A": "1"}})

    seen = [desk.setup()["env"], desk.setup()["env"], desk.setup(hooks="command")["env"], desk.remove()["env"]]

    assert seen == [{name: value, "A": "1"}] * 4


@pytest.mark.parametrize("before", [{}, {PERCENT: "80"}, {PERCENT: "60"}])
def test_the_share_for_headless_sessions_stays_and_gives_back_what_it_replaced(desk, before):
    """Whatever number of runs lies between."""
    desk.begin({"env": before} if before else {})

    first = desk.setup(headless="yes")["env"][PERCENT]
    again = desk.setup()["env"][PERCENT]
    other = desk.setup(percent="50")["env"][PERCENT]
    after = desk.setup()["env"][PERCENT]
    left = desk.remove()

    assert (first, again) == ("60", "60")
    # A variable that stood there with our value is its user's: only who asks for a headless share moves it.
    assert (other, after) == (("60", "60") if before.get(PERCENT) == "60" else ("50", "50"))
    assert left.get("env", {}) == before


def test_it_ends_when_it_is_told_to(desk):
    """And the value of before is back at once."""
    desk.begin({"env": {PERCENT: "80"}})
    desk.setup(headless="yes")

    assert desk.setup(headless="no")["env"] == {PERCENT: "80"}


def test_what_the_user_makes_of_our_variable_is_theirs(desk):
    """Changed by hand after we wrote it, it is neither overwritten nor taken out."""
    desk.setup(headless="yes")
    desk.change("env", PERCENT, "75")

    assert desk.setup()["env"][PERCENT] == "75"
    assert desk.remove()["env"] == {PERCENT: "75"}


@pytest.mark.parametrize("kind", ["command", "http"])
def test_hooks_stay_as_they_were_chosen(desk, kind):
    """Without an option, and without a trail in the settings of jev-engine."""
    first = desk.setup(hooks=kind)["hooks"]

    assert desk.setup()["hooks"] == first
    assert desk.setup(judge="local")["hooks"] == first
    assert "hooks" not in desk.setup(hooks="none")


def test_hooks_that_were_refused_or_taken_out_do_not_come_back(desk, tmp_path):
    """Though the trail would have them."""
    (tmp_path / "config.toml").write_text(f'audit = "{tmp_path}/trail.jsonl"\n', encoding="utf-8")
    assert "hooks" in desk.setup()
    held = desk.held
    del held["hooks"]
    desk.begin(held)

    assert "hooks" not in desk.setup()
    assert "hooks=command" in desk.notes
    assert "hooks" in desk.setup(hooks="command")
    assert "hooks" not in desk.setup(hooks="none")
    assert "hooks" not in desk.setup()


def test_a_trail_that_is_set_later_brings_the_hooks(desk, tmp_path):
    """As the note of the first run says."""
    assert "hooks" not in desk.setup()
    assert "set up again" in desk.notes
    (tmp_path / "config.toml").write_text(f'audit = "{tmp_path}/trail.jsonl"\n', encoding="utf-8")

    assert "hooks" in desk.setup()


def test_a_program_that_was_named_stays_while_it_is_there(desk):
    """Here, or to the plugin by its user; then the one beside this Python takes its place."""
    assert plugin(desk.setup(command=desk.command))["command"] == desk.command
    assert plugin(desk.setup())["command"] == desk.command
    assert desk.command in desk.notes
    theirs = desk.program("theirs", "engine")
    desk.change("pluginConfigs", settings.PLUGIN, {"options": {"command": theirs}})
    assert plugin(desk.setup())["command"] == theirs
    desk.change("pluginConfigs", settings.PLUGIN, {"options": {"command": str(desk.folder / "gone")}})

    assert plugin(desk.setup())["command"] not in (theirs, str(desk.folder / "gone"))


def test_a_program_that_we_have_chosen_follows_an_update(desk):
    """The one of the environment that set up last."""
    chosen = []
    for name in ("one", "two"):
        folder = desk.folder / name
        folder.mkdir()
        (folder / "python").symlink_to(sys.executable)
        shutil.copy(desk.command, folder / "jev-engine")
        argv = [
            str(folder / "python"),
            "-m",
            "jev_engine",
            "setup",
            "claude-code",
            "--yes",
            "-O",
            f"claude={desk.claude}",
        ]
        subprocess.run(argv, env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}, check=True)
        chosen.append(plugin(desk.held)["command"])

    assert chosen == [str(desk.folder / name / "jev-engine") for name in ("one", "two")]


def test_the_flag_stays_while_the_version_is_not_known(desk, monkeypatch):
    """And goes when a version that needs none is there."""
    old = desk.program("old", "2.1.270 (Claude Code)")
    monkeypatch.setenv("PATH", str(desk.folder / "none"))
    carry_out(integration.setup({"claude": old, "command": desk.command}))
    carry_out(integration.setup({}))
    named_before = desk.held["env"]
    (desk.folder / "old").unlink()
    carry_out(integration.setup({}))

    assert named_before == desk.held["env"] == {FLAG: "1"}
    assert "env" not in desk.setup()


def test_a_share_that_is_chosen_in_the_plugin_is_the_one_that_is_named(desk):
    """In the note, and for headless sessions."""
    desk.setup()
    desk.change("pluginConfigs", settings.PLUGIN, {"options": {"command": desk.command, "compactAtPercent": 70}})

    assert desk.setup(headless="yes")["env"][PERCENT] == "70"
    assert "at 70 percent" in desk.notes
    assert PERCENT not in desk.setup(percent="0").get("env", {})


def test_what_its_user_installed_from_elsewhere_comes_back(desk):
    """Marketplace, switch and options."""
    desk.begin(FROM_ELSEWHERE)

    once, twice = desk.setup(judge="local"), desk.setup()

    assert once == twice
    assert once["enabledPlugins"] == {"jev-engine@jev-engine": True}
    assert plugin(once)["missCost"] == 9
    assert once["pluginConfigs"]["jev-engine@jev-engine"]["mcpServers"] == {"a": {}}
    assert desk.remove() == FROM_ELSEWHERE
    assert desk.remove() == FROM_ELSEWHERE


def test_each_settings_file_is_remembered_by_itself(desk, tmp_path):
    """What was chosen in one says nothing of another."""
    other = tmp_path / "other" / "settings.json"
    other.parent.mkdir()
    desk.setup(headless="yes", hooks="command")
    carry_out(integration.setup({"claude": desk.claude, "config": str(other.parent)}))

    assert not {"env", "hooks"} & set(json.loads(other.read_text(encoding="utf-8")))
    carry_out(integration.remove({"config": str(other.parent)}))
    assert desk.setup()["env"] == {PERCENT: "60"}


def test_the_plugins_files_stay_as_long_as_another_settings_file_names_them(desk, tmp_path):
    """The last one that is removed takes them along."""
    other = tmp_path / "other" / "settings.json"
    other.parent.mkdir()
    desk.setup()
    carry_out(integration.setup({"claude": desk.claude, "config": str(other.parent)}))
    manifest = plugin_folder() / ".claude-plugin" / "marketplace.json"

    desk.remove()
    assert manifest.exists()
    carry_out(integration.remove({"config": str(other.parent)}))
    assert [path for path in plugin_folder().rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("held", ["{", "[]", '{"x": 1}', "\xff"])
def test_a_memory_that_cannot_be_read_makes_nothing_of_the_user_ours(desk, held):
    """Then a variable stays, whoever wrote it."""
    desk.setup(headless="yes", hooks="command")
    (plugin_folder() / setups.FILE).write_bytes(held.encode("latin-1"))

    assert desk.setup()["env"] == {PERCENT: "60"}
    assert "hooks" in desk.held
    assert desk.remove() == {"env": {PERCENT: "60"}}


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "headless": st.sampled_from(["yes", "no"]),
        "hooks": st.sampled_from(["command", "http", "none"]),
        "percent": st.sampled_from(["0", "50", "60", "80"]),
        "judge": st.just("local"),
    },
)
VARIABLES = st.dictionaries(st.sampled_from([PERCENT, FLAG, "A"]), st.sampled_from(["1", "50", "60", "80"]))
HOOKS = {"PostToolUse": [{"matcher": "Edit", "hooks": [{"type": "command", "command": "fmt"}]}]}


@given(
    st.lists(OPTIONS, min_size=1, max_size=4),
    VARIABLES,
    st.booleans(),
    st.sampled_from(["2.1.332", "2.1.270", "2.0.1"]),
)
@example(runs=[{}, {}], variables={PERCENT: "80"}, is_installed=False, version="2.1.332")
@hypothesis_settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_after_any_runs_the_same_again_changes_nothing_and_remove_gives_everything_back(
    desk, runs, variables, is_installed, version
):
    """Whatever was chosen, and whatever stood there."""
    begun = {**(FROM_ELSEWHERE if is_installed else {}), "hooks": HOOKS, **({"env": variables} if variables else {})}
    desk.begin(begun)
    desk.claude = desk.program("claude-program", f"{version} (Claude Code)")
    for options in runs:
        desk.setup(**options)
    last = desk.held

    again = integration.setup({"claude": desk.claude})

    assert [change.path.name for change in again.changes if not change.is_done()] == []
    assert desk.setup() == last
    assert desk.remove() == begun
