"""What is not what it should be: the engine says what it wants, instead of falling over later."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jev_engine import ContextEngine
from jev_engine.bridge import run
from jev_engine.errors import ConfigError
from jev_engine.judges import Judge
from jev_engine.testing import ScriptedAsker, call, history, result, user

MESSAGES = history(user("Go."), call("read"), result("x" * 900), user("Go on."))


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("config", {"miss_cost": 8.0}, "make_config"),
        ("judge", "local", "make_judge"),
        ("judge", ScriptedAsker(lambda *_: 0.5), "AskedJudge"),
        ("judge", Judge, "leave it out"),
        ("store", "/x/originals.sqlite3", "SqliteStore"),
        ("store", Path("/x/originals.sqlite3"), "SqliteStore"),
        ("plugins", [object()], "load_plugins"),
        ("sinks", "jsonl", "list of sinks"),
        ("memories", {}, "Memories.load"),
        ("evidence", 1.0, "Evidence"),
    ],
)
def test_an_argument_of_the_wrong_kind_is_refused_with_the_way_to_a_right_one(
    name: str, value: Any, remedy: str
) -> None:
    with pytest.raises(ConfigError, match=remedy) as caught:
        ContextEngine(**{name: value})

    assert caught.value.setting == name
    assert str(caught.value).startswith(name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ledger", {}),
        ("paid", {}),
        ("current_tokens", "9000"),
        ("focus_topic", 5),
        ("goal", ["fix"]),
        ("session", 7),
    ],
)
def test_a_pass_with_an_argument_of_the_wrong_kind_fails_by_its_name_and_not_as_a_fault_of_ours(
    name: str, value: Any
) -> None:
    """The history comes back as it went in, as with every failure."""
    done = run(ContextEngine().compress, MESSAGES, **{name: value})

    assert done.outcome == "failed"
    assert done.messages is MESSAGES
    assert done.reason.startswith(f"ConfigError: {name} is of type {type(value).__name__}: ")


@pytest.mark.parametrize("tokens", [float("nan"), float("inf")])
def test_a_number_of_tokens_that_is_none_fails_by_its_name(tokens: float) -> None:
    done = run(ContextEngine().compress, MESSAGES, tokens)

    assert done.messages is MESSAGES
    assert done.reason == f"ConfigError: current_tokens = {tokens!r}: it is a finite number of tokens"


def test_what_is_no_ledger_is_not_applied() -> None:
    with pytest.raises(ConfigError, match=r"Ledger\.from_json"):
        ContextEngine().apply(MESSAGES, {})  # type: ignore[arg-type]  # the fault
    with pytest.raises(ConfigError, match=r"Ledger\.from_json"):
        run(ContextEngine().inspect, MESSAGES, ledger={})  # type: ignore[arg-type]  # the fault
