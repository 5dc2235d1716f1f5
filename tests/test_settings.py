"""The user's own settings, and the engine they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from jev_engine.errors import ConfigError
from jev_engine.settings import CONFIG_VARIABLE, load_settings, open_engine


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "config.toml"
    monkeypatch.setenv(CONFIG_VARIABLE, str(path))
    return path


def test_without_a_file_the_defaults_hold(file: Path) -> None:
    assert not file.exists()
    assert load_settings().model_fields_set == load_settings(path=None).model_fields_set
    assert load_settings().judge == "local"


def test_what_a_host_gives_comes_before_the_file(file: Path) -> None:
    file.write_text('miss_cost = 9.0\nprotect_tools = ["deploy_*"]\n')

    settings = load_settings(miss_cost=3.0, goal=None)

    assert (settings.miss_cost, settings.protect_tools) == (3.0, ("deploy_*",))


@pytest.mark.parametrize(
    ("text", "named"),
    [("miss_cost = -1.0", "miss_cost"), ("mis_cost = 1.0", "mis_cost"), ("miss_cost = ", "settings")],
)
def test_a_bad_file_is_named_with_its_setting(file: Path, text: str, named: str) -> None:
    file.write_text(text)

    with pytest.raises(ConfigError, match=named) as caught:
        load_settings()

    assert str(file) in str(caught.value)


def test_a_bad_value_given_by_a_host_is_not_laid_to_the_file(file: Path) -> None:
    with pytest.raises(ConfigError, match="miss_cost") as caught:
        load_settings(miss_cost=-1.0)

    assert str(file) not in str(caught.value)


def test_an_engine_has_the_users_store_and_the_hosts_settings(tmp_path: Path) -> None:
    settings = load_settings(path=None, store=tmp_path / "o.sqlite3", audit=tmp_path / "t.jsonl", profile="reference")
    engine = open_engine(settings, expand_tool="jev_expand")

    assert engine.config.expand_tool == "jev_expand"
    assert engine.config.head_chars == 300
    assert [sink.name for sink in engine.sinks] == ["jsonl"]
    assert engine.store.path == tmp_path / "o.sqlite3"  # type: ignore[attr-defined]


def test_a_setting_left_alone_stays_unset_for_the_engine() -> None:
    settings = load_settings(path=None, miss_cost=2.0)

    assert settings.for_engine().model_fields_set == {"miss_cost"}
