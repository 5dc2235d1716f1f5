"""The user's settings file is where the command's defaults come from."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from jev_engine.cli import main


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setenv("JEV_ENGINE_CONFIG", str(path))
    return path


def compress(shell: Any, messages: Any, *words: str) -> Any:
    line = ["compress", str(shell.file("s.json", messages)), "--force", *words, "--json"]
    return CliRunner().invoke(main, line)


def test_settings_of_the_file_hold_and_options_come_first(settings: Path, shell: Any, messages: Any) -> None:
    settings.write_text('policy = "threshold"\nkeep_result = 1.0\nkeep_call = 0.0\n')
    thresholds = json.loads(compress(shell, messages).stdout)
    price = json.loads(compress(shell, messages, "--policy", "worth").stdout)

    assert {each["reason"] for each in thresholds["decisions"]} == {"result not needed"}
    assert {each["reason"] for each in price["decisions"]} != {"result not needed"}


def test_the_store_of_the_file_is_used(settings: Path, shell: Any, messages: Any) -> None:
    settings.write_text(f'store = "{shell.store}"\npolicy = "threshold"\nkeep_result = 1.0\nkeep_call = 0.0\n')
    compress(shell, messages, "-o", str(shell.folder / "out.json"))

    assert shell.store.exists()


@pytest.mark.parametrize("text", ["keep_result = 2.0", "keep_resolt = 0.2", "keep_result = "])
def test_a_bad_file_is_named_and_nothing_is_done(settings: Path, shell: Any, messages: Any, text: str) -> None:
    settings.write_text(text)
    shown = compress(shell, messages)

    assert shown.exit_code != 0
    assert str(settings) in shown.output


def run(*words: Any) -> Any:
    return CliRunner().invoke(main, [str(word) for word in words])


@pytest.mark.parametrize("slip", ["miss_cots = 8.0", 'judge = "nope"', "trigger_share = 0.99"])
def test_a_slip_in_another_setting_is_a_warning_where_originals_are_read(
    settings: Path, shell: Any, messages: Any, slip: str
) -> None:
    """Whoever wants something back gets it; whoever decides or sends something is stopped, with exit code 2."""
    session, out, back = shell.file("s.json", messages), shell.folder / "out.json", shell.folder / "back.json"
    settings.write_text(f'store = "{shell.store}"\npolicy = "threshold"\nkeep_result = 1.0\nkeep_call = 0.0\n')
    run("compress", session, "-o", out)
    reference = out.read_text().partition("jx-")[2][:16]
    settings.write_text(f'store = "{shell.store}"\n{slip}\n')
    reading = [
        run("restore", out, "-o", back),
        run("expand", f"jx-{reference}"),
        run("search", "part"),
        run("store", "stats"),
    ]

    assert [done.exit_code for done in reading] == [0, 0, 0, 0], [done.output for done in reading]
    assert all(done.stderr.count(str(settings)) == 1 for done in reading)
    assert json.loads(back.read_text()) == messages
    assert "part 0" in reading[1].stdout
    for done in (run("compress", session, "-o", out), run("inspect", session)):
        assert done.exit_code == 2
        assert done.stderr.count(str(settings)) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("miss_cots = 8.0", "did you mean miss_cost?"),
        ('judge = "nope"', "no judge goes by that name"),
        ('judge = "jev"\nendpoint = "nope"', "typesafe, openrouter"),
        ("store = ", "cannot be read"),
        (None, "which is not there"),
    ],
    ids=["name", "judge", "endpoint", "file", "missing"],
)
def test_doctor_says_what_is_wrong_with_the_settings_and_goes_on(settings: Path, text: str | None, said: str) -> None:
    if text is not None:
        settings.write_text(text)
    done = run("doctor")
    shown = " ".join(done.stdout.split())

    assert done.exit_code == 1
    assert said in shown
    assert str(settings) in "".join(done.stdout.split())
    assert "self-test" in shown
    assert "All is well" not in shown


def test_a_settings_file_that_is_named_and_not_there_stops_what_decides(
    settings: Path, shell: Any, messages: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have said what is never to be judged."""
    monkeypatch.setenv("XDG_DATA_HOME", str(shell.folder))
    session = shell.file("s.json", messages)
    done, back = run("compress", session), run("store", "stats")

    assert not settings.exists()
    assert (done.exit_code, back.exit_code) == (2, 0)
    assert "JEV_ENGINE_CONFIG" in done.stderr
    assert "JEV_ENGINE_CONFIG" in back.stderr


@pytest.mark.parametrize("judge", ["local", "http://127.0.0.1:9/v1/systemone"])
def test_a_judge_named_on_the_line_needs_no_address_of_the_file(
    settings: Path, shell: Any, messages: Any, judge: str
) -> None:
    settings.write_text('judge = "jev"\nendpoint = "openrouter"\n')
    done = compress(shell, messages, "--judge", judge)

    assert done.exit_code == 0, done.output


def test_an_address_named_on_the_line_is_still_refused_for_the_local_judge(
    settings: Path, shell: Any, messages: Any
) -> None:
    settings.write_text('endpoint = "openrouter"\n')
    done = compress(shell, messages, "--judge", "local", "--endpoint", "typesafe")

    assert done.exit_code == 2
    assert "the local judge has no endpoint" in done.output
