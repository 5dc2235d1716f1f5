"""Setting up a host changes all of what was planned or none of it, and every file of the user can be had back."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from jev_engine.errors import HostError
from jev_engine.hosts import Change, Plan, carry_out


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
