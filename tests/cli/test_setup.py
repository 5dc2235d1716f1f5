"""Setting up a host from the command line: shown first, written on a word, never by halves."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from jev_engine import hookimpl
from jev_engine.cli import main
from jev_engine.hosts import Change, Finding, Plan


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


class Lamps:
    """The plugin of a package that brings a host along."""

    def __init__(self, lamp: Lamp) -> None:
        self.lamp = lamp

    @hookimpl
    def register_hosts(self, register: Any) -> None:
        register(self.lamp)


@pytest.fixture
def installed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Installs a package whose entry point is a plugin of this file."""

    def install(plugin: str) -> None:
        package = tmp_path_factory.mktemp("site") / "lamps-1.0.dist-info"
        package.mkdir()
        (package / "METADATA").write_text("Metadata-Version: 2.1\nName: lamps\nVersion: 1.0\n")
        (package / "entry_points.txt").write_text(f"[jev_engine]\nlamps = {__name__}:{plugin}\n")
        monkeypatch.syspath_prepend(str(package.parent))

    return install


@pytest.fixture
def home(tmp_path: Path, installed: Callable[[str], None]) -> Path:
    installed("LAMPS")
    (tmp_path / "lamp.cfg").write_text("a = 1\n")
    return tmp_path


LAMPS = Lamps(Lamp())


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


class Safe(Lamp):
    """A lamp whose settings hold a secret."""

    def setup(self, options: Mapping[str, str]) -> Plan:
        return Plan([Change(Path(options["home"]) / "lamp.cfg", b"a = 1\n", "the token", is_secret=True)], [])


SAFES = Lamps(Safe())


def test_a_file_that_is_only_tightened_is_shown_and_done_once(home: Path, installed: Callable[[str], None]) -> None:
    installed("SAFES")
    (home / "lamp.cfg").chmod(0o644)

    dry = run(home, "setup", "--dry-run")
    told = json.loads(run(home, "setup", "--json", "--yes").output)
    again = run(home, "setup", "--yes")

    assert "readable by its owner only" in dry.output
    assert [change["is_secret"] for change in told["changes"]] == [True]
    assert (home / "lamp.cfg").stat().st_mode & 0o077 == 0
    assert "set up already" in again.output


@pytest.mark.parametrize("sign", ["\u2028", "\u2029", "\x85", "\x0c", "\x1d"])
def test_a_line_is_shown_as_one_whatever_signs_are_in_it(sign: str, home: Path) -> None:
    (home / "lamp.cfg").write_text(f"note = before{sign}after\n", encoding="utf-8")

    shown = run(home, "setup", "--dry-run").output

    escape = sign.encode("unicode_escape").decode()
    assert f"-note = before{escape}after" in shown
