"""The user's own settings, and the engine they make."""

from __future__ import annotations

from pathlib import Path

import pytest

from jev_engine.errors import ConfigError
from jev_engine.settings import CONFIG_VARIABLE, load_settings, missing_file, open_engine, settings_to_read


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("miss_cots = 8.0", "no setting goes by that name; did you mean miss_cost?"),
        ("stoer = 'x'", "did you mean store?"),
        ("qqq = 1", "no setting goes by that name"),
        ("judge = 'jve'", "known are local, jev, cascade, or give a URL"),
        ("trigger_share = 0.99", "trigger_share (0.99) <= force_share (0.95) must hold"),
    ],
)
def test_what_is_wrong_is_told_with_the_remedy_and_the_file(file: Path, text: str, said: str) -> None:
    file.write_text(text)

    with pytest.raises(ConfigError) as caught:
        load_settings()

    assert str(caught.value).startswith(f"{file}: ")
    assert said in str(caught.value)
    assert "Value error" not in str(caught.value)


def test_a_contradiction_between_settings_a_host_gives_is_not_laid_to_the_file(file: Path) -> None:
    file.write_text("miss_cost = 4.0")

    with pytest.raises(ConfigError, match="must hold") as caught:
        load_settings(trigger_share=0.99)

    assert str(file) not in str(caught.value)


@pytest.mark.parametrize(
    "text",
    ["miss_cots = 8.0", "judge = 'nope'", "trigger_share = 0.99", "audit = 5", "without_plugins = 'x'"],
    ids=["unknown", "judge", "contradiction", "trail", "plugins"],
)
def test_a_slip_in_one_setting_hides_no_originals(file: Path, tmp_path: Path, text: str) -> None:
    file.write_text(f'store = "{tmp_path}/o.sqlite3"\n{text}\n')

    settings, fault = settings_to_read()

    assert settings.store == tmp_path / "o.sqlite3"
    assert str(file) in str(fault)


def test_a_file_that_cannot_be_read_at_all_is_named_and_the_defaults_are_read(file: Path) -> None:
    file.write_text("store = ")

    settings, fault = settings_to_read()

    assert (settings.store, str(file) in str(fault)) == (None, True)


def test_a_file_that_is_named_and_not_there_is_told(file: Path) -> None:
    assert CONFIG_VARIABLE in str(missing_file())
    assert settings_to_read()[1] == missing_file()

    file.touch()

    assert missing_file() is None
    assert settings_to_read()[1] is None


@pytest.mark.parametrize(
    ("judge", "endpoint"), [("local", None), ("https://example.org/x", None), ("cascade", "openrouter")]
)
def test_a_judge_that_is_given_takes_the_address_of_the_file_along_only_where_it_uses_it(
    file: Path, judge: str, endpoint: str | None
) -> None:
    file.write_text('judge = "jev"\nendpoint = "openrouter"\n')

    assert load_settings(judge=judge).endpoint == endpoint
    assert load_settings(judge=judge, endpoint="typesafe").endpoint == "typesafe"
