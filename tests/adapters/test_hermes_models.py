"""Agents with models of their own on one session, and work that fails: each is asked in its own window, and seldom."""

from __future__ import annotations

import copy
import sys
import time
from types import ModuleType
from typing import Any

import pytest
from hosts.hermes_fake import FakeBase
from hosts.hermes_process import big_history, process, started

from jev_engine.errors import ConfigError
from jev_engine_adapters.hermes import compaction, hooks
from jev_engine_adapters.hermes.engine import HermesEngine, engine_class
from jev_engine_adapters.hermes.state import Shared

WINDOWS = (65_536, 200_000, 1_000_000)


def agent_on(shared: Shared, window: int, **options: Any) -> HermesEngine:
    """An agent made anew on the one session, as the host makes it."""
    made = copy.deepcopy(engine_class(FakeBase)(shared))
    made.update_model(**{"model": f"of {window}", "context_length": window, "api_key": f"key {window}", **options})
    made.bind_session_state(None, "s1")
    made.on_session_start("s1", platform="cli")
    return made


def host_has(summariser: type, monkeypatch: pytest.MonkeyPatch) -> None:
    """As if that were the host's own compressor."""
    module = ModuleType("agent.context_compressor")
    module.ContextCompressor = summariser  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "agent", ModuleType("agent"))
    monkeypatch.setitem(sys.modules, "agent.context_compressor", module)


def request(shared: Shared, max_tokens: int | None) -> None:
    """What the host tells plugins before it sends one."""
    hooks._listener("pre_api_request", shared)(session_id="s1", max_tokens=max_tokens, request_messages=[])


@pytest.mark.parametrize("window", WINDOWS)
@pytest.mark.parametrize("others", [(), (1_000_000,), (65_536,), (200_000, 65_536), (65_536, 1_000_000, 200_000)])
@pytest.mark.parametrize("used", [20_000, 33_000, 60_000, 99_000, 101_000, 499_000, 501_000])
def test_each_agent_of_a_session_is_asked_in_its_own_window(window: int, others: tuple[int, ...], used: int) -> None:
    """Whoever else was made on that session, before and after, and whoever has asked in between."""
    alone = agent_on(process(), window)
    alone.update_from_response({"prompt_tokens": used})
    shared = process()
    temporary = [agent_on(shared, other) for other in others[:1]]
    live = agent_on(shared, window)
    temporary += [agent_on(shared, other) for other in others[1:]]
    for other in temporary:
        other.should_compress(1)
    live.update_from_response({"prompt_tokens": used})

    assert live.should_compress(used) == alone.should_compress(used)
    assert live.threshold_tokens == alone.threshold_tokens


@pytest.mark.parametrize("maker", WINDOWS)
def test_a_pass_and_a_summary_are_made_for_the_model_of_the_agent_that_asks(
    maker: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its window decides how much has to go, and its key pays."""
    seen: list[Any] = []

    class Seen:
        def __init__(self, model: str, api_key: str, config_context_length: int) -> None:
            seen.append((model, api_key, config_context_length))

        def compress(self, messages: Any) -> Any:
            return messages[-2:]

    host_has(Seen, monkeypatch)
    shared = process()
    live = agent_on(shared, maker)
    for other in WINDOWS:
        agent_on(shared, other).should_compress(1)
    words = [{"role": role, "content": "why is it so? " * 400} for _ in range(60) for role in ("user", "assistant")]
    live.compress(words, current_tokens=2 * maker, force=True)

    assert seen == [(f"of {maker}", f"key {maker}", maker)]
    assert live.session.core.engine.config.window_tokens == maker


@pytest.mark.parametrize("told", [None, 5_000, 16_000])
@pytest.mark.parametrize("given", [None, 8_000])
@pytest.mark.parametrize("anew", [False, True])
@pytest.mark.parametrize("outcome", ["not_worth_it", "failed", "over_capacity"])
def test_what_did_not_help_is_tried_less_often_whoever_asks(
    told: int | None,
    given: int | None,
    anew: bool,  # noqa: FBT001
    outcome: str,
) -> None:
    """A gateway makes agents anew; what is reserved for the answer is told at each request, and by settings."""
    shared = process()
    live = agent_on(shared, 200_000, max_tokens=given)
    asked = []
    for _ in range(5):
        if anew:
            live = agent_on(shared, 200_000, max_tokens=given)
        request(shared, told)
        live.update_from_response({"prompt_tokens": 130_000})
        asked.append(live.should_compress(130_000))
        if asked[-1]:
            live.session.trigger.ended(outcome, tokens_after=130_000, now=time.monotonic())
    assert asked == [True, False, False, False, False]


def test_the_reserve_a_hook_has_told_stays_until_it_tells_another() -> None:
    shared = process()
    live = agent_on(shared, 200_000)
    reserves = []
    for told in (None, 5_000, 5_000, None, 7_000):
        request(shared, told)
        live = agent_on(shared, 200_000)
        live.should_compress(1)
        reserves.append(live.session.trigger.config.output_reserve_tokens)

    usual = process().engine().config.output_reserve_tokens
    assert reserves == [usual, 5_000, 5_000, usual, 7_000]


def test_another_window_of_the_same_agent_counts_at_once_and_forgets_what_was_learned() -> None:
    live = agent_on(process(), 200_000)
    live.update_from_response({"prompt_tokens": 130_000})
    live.session.trigger.ended("not_worth_it", tokens_after=130_000)
    before = live.should_compress(130_000)
    live.update_model(model="m", context_length=190_000)
    live.update_from_response({"prompt_tokens": 130_000})

    assert (before, live.should_compress(130_000)) == (False, True)


# --- work that fails -------------------------------------------------------------------------------------------------


def refuse() -> Any:
    raise ConfigError("settings.toml: no", setting="miss_cost")


class Boom:
    """A compressor of the host that cannot be made, or raises, or gives nothing."""

    made = 0
    where = "compress"

    def __init__(self, model: str = "", config_context_length: int = 0) -> None:
        type(self).made += 1
        if self.where == "init":
            raise RuntimeError("no such model")

    def compress(self, messages: Any, current_tokens: Any = None) -> Any:
        if self.where == "compress":
            raise RuntimeError("the network is down")
        return None


def checks(made: Any, tokens: int | None, messages: Any, count: int = 8) -> int:
    """As the host checks before each request; how many passes it was told to make."""
    told = 0
    for _ in range(count):
        if made.should_compress(60_000):
            told += 1
            assert made.compress(messages, current_tokens=tokens) is messages
    return told


@pytest.mark.parametrize("where", ["init", "compress", "nothing"])
@pytest.mark.parametrize("tokens", [60_000, None])
def test_a_summariser_that_raises_is_not_called_at_every_check(
    where: str, tokens: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Settings that make no engine leave the work to the host's compressor; its faults are no reason for circles."""
    host_has(Boom, monkeypatch)
    monkeypatch.setattr(Boom, "made", 0)
    monkeypatch.setattr(Boom, "where", where)
    made = started(Shared(refuse))

    assert checks(made, tokens, big_history(2)) == 1
    assert Boom.made == 1


@pytest.mark.parametrize("tokens", [60_000, None])
def test_a_fault_in_a_pass_is_not_met_at_every_check(tokens: int | None) -> None:
    """Here in what the host gives us to ask whether it has given up."""

    def broken() -> bool:
        raise RuntimeError("a fault of the host")

    made = started()
    made._compression_cancelled_check = broken

    assert checks(made, tokens, big_history(2)) == 1


@pytest.mark.parametrize("tokens", [60_000, None])
def test_a_pass_that_never_ends_is_not_waited_for_at_every_check(
    tokens: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def late(*_: Any, **__: Any) -> Any:
        raise TimeoutError

    monkeypatch.setattr(compaction, "run", late)

    assert checks(started(), tokens, big_history(2)) == 1


def test_what_has_failed_is_tried_again_once_the_context_has_grown(monkeypatch: pytest.MonkeyPatch) -> None:
    host_has(Boom, monkeypatch)
    monkeypatch.setattr(Boom, "where", "compress")
    made = started(Shared(refuse))
    messages = big_history(2)
    checks(made, 50_000, messages)

    assert not made.should_compress(50_500)
    assert made.should_compress(63_900)
