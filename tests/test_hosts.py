"""Setting up a host changes all of what was planned or none of it, and every file of the user can be had back."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from jev_engine.errors import HostError
from jev_engine.hosts import Change, HostIntegration, Plan, carry_out
from jev_engine.serve.places import places, read_token
from jev_engine_adapters.anthropic.install import integration as gateway
from jev_engine_adapters.claude_code.install import integration as claude_code


@pytest.fixture
def theirs(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text("engine: built-in  # as it came\n")
    path.chmod(0o640)
    return path


def plan_of(*changes: Change) -> Plan:
    return Plan(list(changes), [])


def test_a_users_file_is_copied_beside_itself_before_it_changes(theirs: Path) -> None:
    carried = carry_out(plan_of(Change(theirs, b"engine: jev-engine\n", "names the engine")))

    assert theirs.read_bytes() == b"engine: jev-engine\n"
    assert stat.S_IMODE(theirs.stat().st_mode) == 0o640
    assert [path.read_text() for path in carried.backups] == ["engine: built-in  # as it came\n"]
    assert carried.backups[0].parent == theirs.parent


def test_a_second_run_changes_nothing_and_makes_no_backup(theirs: Path) -> None:
    plan = plan_of(Change(theirs, b"x", "why"), Change(theirs.parent / "ours/plugin.py", b"y", "why", is_ours=True))
    carry_out(plan)
    before = sorted(theirs.parent.iterdir())

    again = carry_out(plan)

    assert again == ([], [])
    assert sorted(theirs.parent.iterdir()) == before


def test_files_of_our_own_are_readable_by_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "plugins/jev-engine/plugin.py"
    carry_out(plan_of(Change(path, b"pass", "why", is_ours=True)))

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


@pytest.mark.parametrize("held", [b"as it came", None])
def test_where_one_change_fails_all_are_undone(theirs: Path, tmp_path: Path, held: bytes | None) -> None:
    other = tmp_path / "settings.json"
    if held is not None:
        other.write_bytes(held)
    blocked = tmp_path / "folder"
    blocked.mkdir()
    (blocked / "file").touch()
    plan = plan_of(
        Change(theirs, b"changed", "why"), Change(other, b"new", "why"), Change(theirs / "below/a/file", b"x", "why")
    )

    with pytest.raises(HostError):
        carry_out(plan)

    assert theirs.read_text() == "engine: built-in  # as it came\n"
    assert (other.read_bytes() if other.exists() else None) == held
    assert {path.name for path in tmp_path.iterdir()} <= {"config.yaml", "settings.json", "folder"}


def test_removing_our_files_removes_the_folders_they_leave_empty(tmp_path: Path) -> None:
    path = tmp_path / "plugins/jev-engine/plugin.py"
    carry_out(plan_of(Change(path, b"pass", "why", is_ours=True)))
    carry_out(plan_of(Change(path, None, "why", is_ours=True)))

    assert not path.parent.exists()


def test_a_link_stays_a_link(theirs: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(theirs)
    carry_out(plan_of(Change(link, b"changed", "why")))

    assert link.is_symlink()
    assert theirs.read_bytes() == b"changed"


@pytest.fixture
def open_umask() -> Iterator[None]:
    """Whatever a program makes here, others may read, unless it says otherwise."""
    before = os.umask(0)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.mark.usefixtures("open_umask")
def test_a_secret_in_a_file_of_the_user_is_written_for_its_owner_only(theirs: Path, tmp_path: Path) -> None:
    new = tmp_path / "settings.json"
    carry_out(plan_of(Change(new, b"token", "why", is_secret=True), Change(theirs, b"token", "why", is_secret=True)))

    assert (mode(new), mode(theirs)) == (0o600, 0o600)


@pytest.mark.usefixtures("open_umask")
def test_a_secret_that_others_can_read_is_tightened_even_where_nothing_else_changes(theirs: Path) -> None:
    change = Change(theirs, theirs.read_bytes(), "why", is_secret=True)
    assert not change.is_done()

    carried = carry_out(plan_of(change))

    assert mode(theirs) == 0o600
    assert carried == ([theirs], [])
    assert change.is_done()
    assert carry_out(plan_of(change)) == ([], [])


@pytest.mark.usefixtures("open_umask")
def test_a_backup_is_for_the_owner_only_because_the_file_may_have_held_a_secret(theirs: Path) -> None:
    theirs.chmod(0o644)
    carried = carry_out(plan_of(Change(theirs, b"without the token", "why")))

    assert [mode(path) for path in carried.backups] == [0o600]
    assert mode(theirs) == 0o644


def test_a_secret_behind_a_link_is_tightened_where_it_lies(theirs: Path, tmp_path: Path) -> None:
    link = tmp_path / "link.yaml"
    link.symlink_to(theirs)
    carry_out(plan_of(Change(link, theirs.read_bytes(), "why", is_secret=True)))

    assert link.is_symlink()
    assert mode(theirs) == 0o600


def test_where_a_change_fails_a_file_that_was_tightened_gets_its_mode_back(theirs: Path) -> None:
    secret = Change(theirs, theirs.read_bytes(), "why", is_secret=True)

    with pytest.raises(HostError):
        carry_out(plan_of(secret, Change(theirs / "below/file", b"x", "why")))

    assert mode(theirs) == 0o640


@pytest.mark.usefixtures("open_umask")
@pytest.mark.parametrize("held", [None, "{}", '{"env": {"A": "1"}}'])
@pytest.mark.parametrize(
    ("host", "option", "kind"), [(gateway, "agent", "claude-code"), (claude_code, "hooks", "http")]
)
def test_no_host_leaves_the_token_where_others_can_read_it(
    host: HostIntegration, option: str, kind: str, held: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"JEV_ENGINE_RUNTIME": "run", "JEV_ENGINE_CONFIG": "none.toml", "XDG_DATA_HOME": "data"}.items():
        monkeypatch.setenv(name, str(tmp_path / value))
    path = tmp_path / "claude" / "settings.json"
    path.parent.mkdir()
    if held is not None:
        path.write_text(held)
    options = {"config": str(path.parent), option: kind}
    if host is claude_code:
        options |= {"command": sys.executable, "claude": str(tmp_path / "none")}

    carry_out(host.setup(options))
    token = read_token(places()).encode()
    path.chmod(0o644)  # as an earlier version has left it
    loose = [finding for finding in host.doctor(options) if "others can read" in finding.text]
    carry_out(host.setup(options))

    holders = [each for each in tmp_path.rglob("*") if each.is_file() and token in each.read_bytes()]
    assert path in holders
    assert [each for each in holders if mode(each) & 0o077] == []
    assert [finding.state for finding in loose] == ["bad"]
    assert not [finding for finding in host.doctor(options) if "others can read" in finding.text]
