"""Every member of the host's contract: tolerant of what comes in, never raising, never giving back anything odd."""

from __future__ import annotations

import copy
import inspect
import json
import math
from typing import Any

import pytest
from hosts.hermes_fake import FakeBase
from hosts.hermes_process import big_history, process, started

from jev_engine import ContextEngine
from jev_engine.testing import ScriptedJudge, call, history, result, user
from jev_engine_adapters.hermes.engine import engine_class
from jev_engine_adapters.hermes.state import Shared

LOOP: dict[str, Any] = {}
LOOP["self"] = LOOP
ODD = [None, "", "text", -1, math.nan, math.inf, 10**400, True, [], {}, [1], [None], {"a": 1}, b"x", object(), LOOP]


# --- every member, any argument --------------------------------------------------------------------------------------

MEMBERS = (
    "update_model", "update_from_response", "should_compress", "should_compress_info", "should_compress_preflight",
    "should_defer_preflight_to_real_usage", "has_content_to_compress", "compress", "on_session_start",
    "on_session_end", "bind_session_state", "carry_over_new_session_context", "handle_tool_call",
    "prune_tool_results_only", "select_context", "on_turn_complete", "pending_compression_operation",
    "record_timeout_failure", "record_rejected_compaction",
)  # fmt: skip


@pytest.mark.parametrize("member", MEMBERS)
@pytest.mark.parametrize("odd", ODD, ids=[f"{n}-{type(odd).__name__}" for n, odd in enumerate(ODD)])
def test_no_member_raises_whatever_it_is_given(member: str, odd: Any) -> None:
    """One odd value, two, and keywords of a host to come."""
    engine = started()

    getattr(engine, member)(odd)
    getattr(engine, member)(odd, odd)
    getattr(engine, member)(odd, of_a_host_to_come=odd)

    assert isinstance(engine.should_compress(1), bool)
    assert isinstance(engine.handle_tool_call(odd, odd), str)
    assert isinstance(engine.get_status(), dict)
    assert engine.compress(odd, current_tokens=odd, focus_topic=odd, force=False) is odd


FAULT = "internal fault, see the log"
MESSAGES = big_history(3)
GIVEN: dict[str, Any] = {
    "compress": MESSAGES, "has_content_to_compress": MESSAGES, "prune_tool_results_only": MESSAGES,
    "should_compress": 99_000, "should_compress_info": 99_000,
}  # fmt: skip
HARMLESS: dict[str, Any] = {
    "compress": MESSAGES, "get_status": {}, "get_tool_schemas": [], "handle_tool_call": json.dumps({"error": FAULT}),
    "has_content_to_compress": True, "prune_tool_results_only": (MESSAGES, 0), "should_compress": False,
    "should_compress_info": (False, FAULT), "should_compress_preflight": False,
    "should_defer_preflight_to_real_usage": False,
}  # fmt: skip
"""What a member answers that has nothing to go by; None where it is not named."""


@pytest.mark.parametrize("member", [*MEMBERS, "get_tool_schemas", "get_status", "on_session_reset"])
def test_no_member_raises_where_everything_behind_it_is_gone(member: str) -> None:
    """An instance that has lost what the process knows: the answer is the harmless one of its kind."""
    engine = started()
    engine.shared = None

    answer = getattr(engine, member)(*([GIVEN[member]] if member in GIVEN else []))

    assert answer == HARMLESS.get(member)
    assert answer is MESSAGES or member != "compress"
    assert type(engine.clone_for_agent()) is type(engine)


def test_the_host_accepts_it() -> None:
    """An instance of a child of its own class, with nothing abstract left, named as in the settings."""
    kind = engine_class(FakeBase)
    engine = kind(process())

    assert isinstance(engine, FakeBase)
    assert not inspect.isabstract(kind)
    assert engine.name == "jev-engine"


@pytest.mark.parametrize(
    "written",
    [
        "last_prompt_tokens", "last_completion_tokens", "last_compression_rough_tokens", "threshold_tokens",
        "threshold_percent", "context_length", "compression_count", "_verify_compaction_cleared_threshold",
        "awaiting_real_usage_after_compression", "model_thresholds", "_compression_cancelled_check",
        "_last_compress_refused_would_grow", "_context_probed", "max_tokens",
    ],
)  # fmt: skip
def test_attributes_the_host_writes_can_be_written(written: str) -> None:
    engine = started()
    setattr(engine, written, 7)

    assert getattr(engine, written) == 7


@pytest.mark.parametrize(
    ("read", "kind"),
    [
        ("context_length", int), ("threshold_tokens", int), ("threshold_percent", float), ("protect_first_n", int),
        ("protect_last_n", int), ("last_prompt_tokens", int), ("last_real_prompt_tokens", int),
        ("compression_count", int), ("_last_compress_aborted", bool), ("_last_summary_fallback_used", bool),
        ("_last_compression_made_progress", bool), ("_ineffective_compression_count", int),
    ],
)  # fmt: skip
def test_attributes_the_host_reads_are_there(read: str, kind: type) -> None:
    assert type(getattr(started(), read)) is kind


def test_a_copy_has_the_budget_and_nothing_else_of_its_own() -> None:
    """The host copies per agent: a helper's model must not become its parent's (and no lock may stop the copy)."""
    parent = started()
    child = copy.deepcopy(parent)
    child.update_model(model="small", context_length=70_000)

    assert (parent.context_length, parent.model) == (64_000, "m")
    assert child.shared is parent.shared
    assert child._session_id == ""
    assert type(parent.clone_for_agent()) is type(parent)
    assert not [value for value in vars(child).values() if hasattr(value, "acquire") or inspect.isawaitable(value)]


def test_the_deepest_window_that_a_provider_reports_counts_at_once() -> None:
    engine = started(window=200_000)
    engine.update_from_response({"prompt_tokens": 60_000})
    before = engine.should_compress(60_000)
    engine.update_model(model="m", context_length=70_000)

    assert not before
    assert engine.should_compress(60_000)
    assert engine.threshold_tokens == 35_000


def test_an_answer_that_is_reserved_is_no_room() -> None:
    """`max_tokens` may come with a model switch of newer hosts, or from the hook before each request."""
    engine = started()
    engine.update_model(model="m", context_length=64_000, max_tokens=16_000)

    assert engine.threshold_tokens == 24_000
    assert engine.session.core.trigger.config.output_reserve_tokens == 16_000


@pytest.mark.parametrize("usage", [{}, None, {"prompt_tokens": 0}, {"prompt_tokens": "many"}, {"prompt_tokens": -1}])
def test_a_provider_that_does_not_count_leaves_it_to_estimates(usage: Any) -> None:
    """Otherwise the engine would wait for ever after its first pass."""
    engine = started()
    engine.session.core.trigger.ended("committed", tokens_after=10_000)
    waits = engine.should_compress(60_000)
    engine.update_from_response(usage)

    assert not waits
    assert engine.should_compress(60_000)


def test_tokens_of_other_buckets_are_counted_where_the_sum_is_missing() -> None:
    engine = started()
    engine.update_from_response({"input_tokens": 1_000, "cache_read_tokens": 40_000, "cache_write_tokens": 500})

    assert engine.last_prompt_tokens == 41_500
    assert engine.should_compress(41_500)


def test_what_a_tool_round_adds_counts_before_the_provider_has_counted_it() -> None:
    """The host estimates the whole request; real usage lags behind a result that has just arrived."""
    engine = started()
    engine.should_compress(9_000)
    engine.update_from_response({"prompt_tokens": 12_000})
    as_before = engine.should_compress(9_500)
    grown = engine.should_compress(35_000)

    assert not as_before
    assert grown


def test_an_estimate_of_long_ago_is_no_growth() -> None:
    """Hosts up to 0.17 estimate once a turn: what came since is in the reports already."""
    engine = started()
    engine.should_compress(5_000)
    for used in (6_000, 14_000, 25_000):
        engine.update_from_response({"prompt_tokens": used})

    assert not engine.should_compress(26_000)


# --- compress --------------------------------------------------------------------------------------------------------


def test_nothing_to_do_gives_back_the_same_list() -> None:
    """The host compares by value, its database's mark included: only the very list is safe."""
    engine = started()
    messages = [{**user("Hello."), "_db_persisted": True}]
    kept = copy.deepcopy(messages)

    assert engine.compress(messages, current_tokens=100, force=True) is messages
    assert messages == kept


def test_a_change_gives_back_copies_and_leaves_the_hosts_rows_alone() -> None:
    engine = started()
    messages = [{**row, "_db_persisted": True} for row in big_history()]
    kept = copy.deepcopy(messages)
    engine.should_compress(60_000)

    made = engine.compress(messages, current_tokens=60_000)

    assert made is not messages
    assert messages == kept
    assert not any("_db_persisted" in row for row in made)
    assert engine._last_compression_made_progress
    assert len(json.dumps(made)) < len(json.dumps(messages)) / 2


@pytest.mark.parametrize(
    "options",
    [
        {"current_tokens": 1, "focus_topic": "x", "force": True, "future": 1},
        {"current_tokens": None, "focus_topic": None, "force": False, "memory_context": "remember this"},
        {"current_tokens": 50_000, "bypass_cooldown": True},
        {},
    ],
)
def test_any_call_of_any_version_is_taken(options: dict[str, Any]) -> None:
    """A35: also the second, shorter call that older hosts make."""
    messages = big_history()

    made = started().compress(messages, **options)

    assert isinstance(made, list)
    assert [row["role"] for row in made] == [row["role"] for row in messages]


def test_the_focus_reaches_the_judge() -> None:
    seen = []

    class Asked(ScriptedJudge):
        async def judge(self, request: Any) -> Any:
            seen.append(request.focus)
            return await super().judge(request)

    state = Shared(lambda: ContextEngine(judge=Asked(lambda _: (0.9, 0.001))))
    started(state).compress(big_history(), current_tokens=60_000, focus_topic="the parser", force=True)

    assert seen == ["the parser"]


def test_flags_of_the_last_pass_do_not_stay() -> None:
    engine = started()
    engine._last_compress_aborted, engine._last_summary_error = True, "old"
    engine.compress([user("Hello.")], current_tokens=1)

    assert not engine._last_compress_aborted
    assert engine._last_summary_error is None


def test_there_is_something_to_compress_only_where_there_is() -> None:
    engine = started(process(handover="never"))

    assert engine.has_content_to_compress(big_history())
    assert not engine.has_content_to_compress(history(user("a"), call("t"), result("short"), call("t"), result("x")))
    assert not engine.has_content_to_compress([user("Hello.")])


# --- tools -----------------------------------------------------------------------------------------------------------


def test_tools_are_named_described_and_bare() -> None:
    """Wrapped ones have no name for some versions, which then skip them."""
    found = started().get_tool_schemas()

    assert [schema["name"] for schema in found] == ["jev_expand", "jev_search"]
    assert all(schema["description"] and schema["parameters"]["type"] == "object" for schema in found)


def test_markers_name_the_tool_only_where_it_was_offered() -> None:
    state = process()
    offered = started(state, session="a")
    plain = copy.deepcopy(offered)
    plain.bind_session_state(None, "b")

    with_tool = offered.compress(big_history(), current_tokens=60_000, force=True)
    without = plain.compress(big_history(), current_tokens=60_000, force=True)

    assert "call jev_expand with this id" in json.dumps(with_tool)
    assert "jev_expand" not in json.dumps(without)
    assert "ask the user to restore it" in json.dumps(without)


def test_an_original_comes_back_byte_for_byte_and_is_found() -> None:
    engine = started()
    messages = big_history()
    made = engine.compress(messages, current_tokens=60_000, force=True)
    row = next(n for n, message in enumerate(made) if "[jev-engine:" in str(message["content"]))
    reference = made[row]["content"].split("intact as ")[1][:19]

    parts, offset = [], 0
    while len("".join(parts)) < len(messages[row]["content"]):
        page = engine.handle_tool_call("jev_expand", {"id": reference, "offset": str(offset)}, messages=made)
        parts.append(page.rpartition("\n[jev-engine expand ")[0])
        offset += len(parts[-1])
    found = engine.handle_tool_call("jev_search", {"query": "some output of a tool"})

    assert "".join(parts) == messages[row]["content"]
    assert "hit 1 of" in found


@pytest.mark.parametrize("window", [8_000, 32_000, 64_000, 1_000_000])
def test_pages_stay_below_what_the_host_would_spill(window: int) -> None:
    """15 % of the window at 4 characters a token, at least 8,000; beyond that the agent would get a file's name."""
    engine = started(window=window)
    made = engine.compress(big_history(4), current_tokens=10 * window, force=True)
    reference = json.dumps(made).split("intact as ")[1][:19]
    limit = max(8_000, min(100_000, int(window * 4 * 0.15)))

    assert 2_000 < len(engine.handle_tool_call("jev_expand", {"id": reference})) <= limit
    assert len(engine.handle_tool_call("jev_search", {"query": "some output of a tool"})) <= limit + 500


def test_odd_calls_of_tools_are_answered_in_words() -> None:
    engine = started()

    assert "no tool goes by" in engine.handle_tool_call("lcm_grep", {})
    assert "No original" in engine.handle_tool_call("jev_expand", None)
    assert "No original" in engine.handle_tool_call("jev_expand", {"id": "jx-0000000000000000", "offset": "x"})
