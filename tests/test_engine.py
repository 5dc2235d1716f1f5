"""The engine: outcomes, faults at its edges, events, and a body that fits one screen."""

from __future__ import annotations

import ast
import inspect
import textwrap
from typing import Any

import anyio
import pytest
from passing import compress, long_text

from jev_engine import ContextEngine, make_config
from jev_engine.errors import ConfigError
from jev_engine.ledger import Ledger
from jev_engine.plugins import load_plugins
from jev_engine.store.memory import MemoryStore
from jev_engine.testing import call, history, result, user

CUT = {"pin_newest_calls": 0}


def session(units: int = 3, chars: int = 9_000) -> list[Any]:
    rows = [row for n in range(units) for row in (call("read", path=f"{n}.py"), result(long_text(str(n), chars)))]
    return history(user("Fix it."), *rows, user("Go on."))


@pytest.mark.parametrize(
    ("outcome", "script", "settings", "options"),
    [
        ("committed", (1.0, 0.0), {}, {}),
        ("nothing_to_prune", (1.0, 1.0), {}, {}),
        ("not_worth_it", (1.0, 0.0), {"min_freed_share": 0.999}, {}),
        ("committed", (1.0, 0.0), {"min_freed_share": 0.999}, {"force": True}),
        ("over_capacity", (1.0, 0.0), {"window_tokens": 8_000, "protect_ids": ("t1", "t2")}, {"current_tokens": 8_000}),
    ],
)
def test_outcomes(outcome: str, script: Any, settings: Any, options: Any) -> None:
    """Each with a reason in words, and numbers that agree with the messages."""
    messages = session()
    done = compress(messages, lambda _: script, options=options, **{**CUT, **settings})

    assert done.outcome == outcome
    assert done.reason
    assert (done.messages is messages) == (outcome in ("nothing_to_prune", "not_worth_it"))
    assert done.changed == (done.messages is not messages)
    after = sum(len(d.text or d.call.result or "") for d in done.decisions)
    assert (
        done.stats.chars_before - done.stats.chars_after
        == sum(len(d.call.result or "") for d in done.decisions) - after
    )


def test_a_forced_pass_frees_no_more_than_its_target_asks() -> None:
    """Under `worth` the price rises only as far as needed."""
    messages = session(20, 9_000)
    settings = {**CUT, "window_tokens": 50_000, "force_share": 0.5, "trigger_share": 0.5}
    some = compress(messages, lambda _: (1.0, 0.9), options={"force": True, "current_tokens": 20_000}, **settings)
    more = compress(messages, lambda _: (1.0, 0.9), options={"force": True, "current_tokens": 40_000}, **settings)
    out = [sum(d.action != "keep" for d in done.decisions) for done in (some, more)]

    assert 0 < out[0] < out[1]
    assert some.outcome == "committed"


def test_a_dry_run_says_what_would_happen_and_does_nothing() -> None:
    """No store is touched, the input comes back."""
    messages, store = session(), MemoryStore()
    done = compress(messages, lambda _: (1.0, 0.0), options={"dry_run": True}, engine={"store": store}, **CUT)

    assert done.messages is messages
    assert {d.action for d in done.decisions} == {"truncate"}
    assert store._originals == {}
    assert done.ledger == Ledger()


@pytest.mark.parametrize("messages", [[], [user("Hi.")], (user("Hi."),)], ids=["empty", "one row", "a tuple"])
def test_small_histories_come_back_as_they_are(messages: Any) -> None:
    """The same object."""
    done = compress(messages)

    assert done.outcome == "nothing_to_prune"
    assert done.messages is messages


@pytest.mark.parametrize("messages", ["text", b"bytes", None, 7, {"messages": []}, iter([])], ids=repr)
def test_what_is_no_history_is_refused_with_the_reason(messages: Any) -> None:
    """Without raising."""
    done = anyio.run(lambda: ContextEngine().compress(messages))

    assert done.outcome == "failed"
    assert done.messages is messages
    assert "a list of messages" in done.reason


def test_an_unknown_form_is_refused_with_the_known_ones() -> None:
    """A person then knows what to write for `host=`."""
    done = anyio.run(lambda: ContextEngine().compress([{"speaker": "me"}]))

    assert ", ".join(load_plugins(entry_points=False).adapter_names()) in done.reason


def test_should_compress_is_plain_arithmetic() -> None:
    """On the window less its reserve; False where nothing is known."""
    engine = ContextEngine(config=make_config(window_tokens=100_000, output_reserve_tokens=20_000, trigger_share=0.6))

    assert [engine.should_compress(tokens) for tokens in (None, 0, 47_999, 48_000)] == [False, False, False, True]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("keep_result", 1.5), ("keep_result", -0.1), ("keep_result", float("nan")), ("keep_result", True),
        ("keep_result", "0.9"), ("keep_call", float("inf")), ("miss_cost", -1), ("miss_cost", float("inf")),
        ("miss_cost", False), ("window_tokens", 0), ("window_tokens", True), ("window_tokens", 1.5), ("concurrency", 0),
        ("policy", "hope"), ("profile", "mine"), ("head_chars", -1), ("pin_newest_calls", "3"), ("keep_resutl", 0.5),
        ("protect_tools", 7), ("goal", 7),
    ],
)  # fmt: skip
def test_a_bad_setting_is_named(name: str, value: Any) -> None:
    """G21: with its value, and an error of ours."""
    with pytest.raises(ConfigError) as caught:
        make_config(**{name: value})

    assert caught.value.setting == name
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "settings", [{"target_share": 0.9}, {"trigger_share": 0.99}, {"state_tokens": 40_000}, {"request_tokens": 9_000}]
)
def test_settings_that_contradict_each_other_are_both_named(settings: Any) -> None:
    """Whichever was set."""
    with pytest.raises(ConfigError) as caught:
        make_config(**settings)

    assert all(name in str(caught.value) for name in settings)


def test_the_pass_fits_one_screen() -> None:
    """The body of `ContextEngine.compress` is at most 40 lines and calls each step of the line by name."""
    source = textwrap.dedent(inspect.getsource(ContextEngine.compress))
    (function,) = ast.parse(source).body
    assert isinstance(function, ast.AsyncFunctionDef)
    first = function.body[1]
    lines = [line for line in source.split("\n")[first.lineno - 1 : function.end_lineno] if line.strip()]

    assert len(lines) <= 40
    for step in ("read(", "pin(", "judged(", "weighed(", "decide(", "stored(", "rebuild(", "validate(", "ended("):
        assert any(step in line for line in lines), step
