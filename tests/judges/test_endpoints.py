"""Presets are plain data, and no address is accepted that a history should not be sent to."""

from __future__ import annotations

import pickle
import traceback

import pytest

from jev_engine.errors import ConfigError, JudgeUnavailable
from jev_engine.judges.endpoints import PRESETS, Budget, endpoint_for, is_loopback
from jev_engine.judges.jev import JevAsker

KEY = "sk-or-v1-0123456789abcdef0123456789abcdef"


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_complete(name: str) -> None:
    preset = endpoint_for(name)

    assert preset.url.startswith("https://")
    assert preset.host
    assert preset.key_variable.endswith("_API_KEY")
    assert 0 < preset.budget.state_tokens <= preset.budget.request_tokens
    assert preset.price is not None


def test_the_model_is_pinned_unless_another_is_named() -> None:
    assert JevAsker("typesafe").model == "jev-1.13.0"
    assert JevAsker("typesafe", model="jev-latest").model == "jev-latest"


@pytest.mark.parametrize(
    "address",
    [
        "http://example.org/v1/systemone",
        "ftp://example.org/",
        "https://",
        "https://user:secret@example.org/v1",
        "http://127.0.0.1.example.org/",
        "https://[::1",
        "https://example.org:port/",
    ],
)
def test_an_address_that_is_not_safe_is_refused(address: str) -> None:
    with pytest.raises(ConfigError) as caught:
        endpoint_for(address)

    assert caught.value.setting == "endpoint"
    assert "secret" not in str(caught.value)


def test_an_unknown_preset_names_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="typesafe, openrouter, openai-decisions"):
        endpoint_for("typesave")


@pytest.mark.parametrize(
    ("host", "expected"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("10.0.0.1", False)]
)
def test_what_counts_as_this_machine(host: str, *, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_a_key_in_the_environment_is_read_only_for_the_host_of_its_preset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TYPESAFE_API_KEY", KEY)
    monkeypatch.delenv("JEV_ENGINE_API_KEY", raising=False)

    assert "with a key" in repr(JevAsker("typesafe"))
    assert "without a key" in repr(JevAsker("typesafe", url="https://example.org/v1/systemone"))
    assert "without a key" in repr(JevAsker("openrouter"))
    assert "without a key" in repr(JevAsker("https://example.org/v1/systemone"))


def test_a_plain_address_takes_its_key_from_our_own_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JEV_ENGINE_API_KEY", KEY)

    assert "with a key" in repr(JevAsker("https://example.org/v1/systemone"))


@pytest.mark.parametrize(
    "key", [KEY + "\n", "\n" + KEY, KEY[:8] + "ü", KEY[:8] + " x", KEY[:8] + "\x00", KEY[:8] + "\u2028"]
)
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(key: str) -> None:
    with pytest.raises(ConfigError, match="line break, blank or non-ASCII") as caught:
        JevAsker("typesafe", key=key)

    shown = "".join(traceback.format_exception(caught.value))
    assert KEY[:8] not in shown.replace(__file__, "")
    assert caught.value.setting == "key"


def test_a_key_shows_itself_nowhere() -> None:
    asker = JevAsker("typesafe", key=KEY)

    assert KEY not in repr(asker)
    assert KEY not in str(vars(asker))
    with pytest.raises(TypeError):
        pickle.dumps(asker)


async def test_a_preset_without_a_key_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TYPESAFE_API_KEY", raising=False)

    with pytest.raises(JudgeUnavailable, match="TYPESAFE_API_KEY"):
        await JevAsker("typesafe").ask("{}", {})


def test_half_a_budget_still_holds_one_unit() -> None:
    assert Budget(10, 20, 3).halved() == Budget(5, 10, 2)
