"""Setting up a host from the command line: shown first, written on a word, never by halves."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from jev_engine.cli import main
from jev_engine.hosts import Change, Finding, Plan
from jev_engine.plugins import Plugins


class Lamp:
    """A host with one settings file and a plugin folder."""

    name = "lamp"
    summary = "A host for tests."
    options: Mapping[str, str] = {"home": "folder of the host"}

    def setup(self, options: Mapping[str, str]) -> Plan:
        home = Path(options["home"])
        own = [Change(home / f"plugin/{n}.py", b"pass", "the plugin", is_ours=True) for n in range(8)]
        return Plan(
            [Change(home / "lamp.cfg", b"a = 1\nengine = jev\n", "names the engine"), *own], ["restart the lamp"]
        )

    def remove(self, options: Mapping[str, str]) -> Plan:
        home = Path(options["home"])
        own = [Change(home / f"plugin/{n}.py", None, "the plugin", is_ours=True) for n in range(8)]
        return Plan([Change(home / "lamp.cfg", b"a = 1\n", "as it was"), *own], [])

    def doctor(self, options: Mapping[str, str]) -> Iterator[Finding]:
        is_on = b"jev" in (Path(options["home"]) / "lamp.cfg").read_bytes()
        yield Finding("engine", "ok" if is_on else "bad", "in use" if is_on else "not in use")


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(Plugins, "load_entry_points", lambda self: self.hosts.update(lamp=Lamp()))
    (tmp_path / "lamp.cfg").write_text("a = 1\n")
    return tmp_path


def run(home: Path, *words: str, stdin: str | None = None) -> Result:
    line = [words[0], "lamp", "-O", f"home={home}", *words[1:]]
    return CliRunner().invoke(main, line, input=stdin, catch_exceptions=False)


def test_a_dry_run_shows_every_change_and_writes_nothing(home: Path) -> None:
    shown = run(home, "setup", "--dry-run")

    assert shown.exit_code == 0
    assert "+engine = jev" in shown.output
    assert "8 files under" in shown.output
    assert {path.name for path in home.iterdir()} == {"lamp.cfg"}


def test_where_nobody_can_be_asked_nothing_is_written(home: Path) -> None:
    shown = run(home, "setup")

    assert shown.exit_code == 2
    assert "--yes" in shown.output
    assert (home / "lamp.cfg").read_text() == "a = 1\n"


def test_setup_then_doctor_then_remove_leaves_the_file_as_it_was(home: Path) -> None:
    assert run(home, "doctor").exit_code == 1
    written = run(home, "setup", "--yes")
    assert "backup" in written.output
    assert "restart the lamp" in written.output
    assert run(home, "doctor").exit_code == 0
    assert "set up already" in run(home, "setup", "--yes").output
    assert run(home, "remove", "--yes").exit_code == 0
    assert (home / "lamp.cfg").read_text() == "a = 1\n"
    assert not (home / "plugin").exists()


def test_json_says_what_was_written(home: Path) -> None:
    assert json.loads(run(home, "setup", "--json").output)["is_written"] is False

    told = json.loads(run(home, "setup", "--json", "--yes").output)

    assert told["is_written"] is True
    assert len(told["changes"]) == 9
    assert len(told["backups"]) == 1


def test_an_option_that_is_none_is_answered_with_those_there_are(home: Path) -> None:
    shown = run(home, "setup", "-O", "hoem=x")

    assert shown.exit_code == 2
    assert "home: folder of the host" in shown.output


def test_an_unknown_host_is_answered_with_those_there_are() -> None:
    shown = CliRunner().invoke(main, ["setup", "toaster"])

    assert shown.exit_code == 2
    assert "claude-code, gateway, hermes" in shown.output
