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
