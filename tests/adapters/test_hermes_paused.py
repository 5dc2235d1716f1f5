"""Where the user wants no passes is remembered by the session, not by the process."""

from __future__ import annotations

import json
import logging
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jev_engine_adapters.hermes.paused import MOST_NAMES, Paused
from jev_engine_adapters.hermes.state import Shared


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data" / "paused.json"


def test_a_session_stays_off_over_a_restart(path: Path) -> None:
    Shared(paused=Paused(path)).session("a").is_paused = True

    again = Shared(paused=Paused(path))

    assert again.session("a").is_paused
    assert not again.session("b").is_paused


def test_a_session_that_rotates_stays_off_under_its_new_name(path: Path) -> None:
    shared = Shared(paused=Paused(path))
    shared.session("a").is_paused = True
    shared.rotate("a", "a2")

    assert Shared(paused=Paused(path)).session("a2").is_paused


def test_turning_passes_on_is_remembered_too(path: Path) -> None:
    Paused(path).add("a")
    Paused(path).discard("a")

    assert "a" not in Paused(path)


def test_two_processes_see_each_other(path: Path) -> None:
    one, other = Paused(path), Paused(path)
    one.add("a")
    other.add("b")
    one.discard("c")

    assert set(one) == set(other) == {"a", "b"}
    one.discard("b")
    assert "b" not in other


def test_only_its_owner_can_read_it(path: Path) -> None:
    Paused(path).add("a")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_the_oldest_are_forgotten_first(path: Path) -> None:
    path.parent.mkdir()
    path.write_text(json.dumps([str(n) for n in range(MOST_NAMES)]))
    paused = Paused(path)
    paused.add("new")

    assert len(paused) == MOST_NAMES
    assert ("0" in paused, "1" in paused, "new" in paused) == (False, True, True)


@pytest.mark.parametrize("content", ["", "{", "5", "null", '[1, "a"', "\x00"])
def test_a_file_that_is_damaged_is_told_once_and_written_anew(
    path: Path, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    path.parent.mkdir()
    path.write_text(content)
    paused = Paused(path)
    with caplog.at_level(logging.WARNING):
        assert "a" not in paused
        assert "b" not in paused
    paused.add("a")

    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "a" in Paused(path)


def test_where_nothing_can_be_written_this_process_still_knows(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "data").write_text("a file where a folder should be")
    paused = Paused(tmp_path / "data" / "paused.json")
    with caplog.at_level(logging.WARNING):
        paused.add("a")
        paused.add("b")

    assert set(paused) == {"a", "b"}
    assert len(caplog.records) == 1


@given(st.lists(st.tuples(st.booleans(), st.text(st.characters(exclude_categories=["Cs"]), max_size=3)), max_size=12))
def test_it_is_a_set_of_any_names(tmp_path_factory: pytest.TempPathFactory, deeds: list[tuple[bool, str]]) -> None:
    path = tmp_path_factory.mktemp("paused") / "p.json"
    kept, memory, plain = Paused(path), Paused(), set[str]()
    for is_on, name in deeds:
        for names in (kept, memory, plain):
            (names.add if is_on else names.discard)(name)

    assert set(kept) == set(memory) == set(Paused(path)) == plain
