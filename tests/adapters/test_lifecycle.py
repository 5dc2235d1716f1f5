"""What hosts tell through their hooks, as events: payloads of our own, in the shape each host documents."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from jev_engine import events
from jev_engine.audit.jsonl import JsonlSink
from jev_engine.audit.lifecycle import Told, length_of, text_of
from jev_engine.audit.records import read_events
from jev_engine.trail import Trail
from jev_engine_adapters.claude_code import lifecycle as claude_code
from jev_engine_adapters.hermes import lifecycle as hermes
from jev_engine_adapters.langgraph.lifecycle import Runs

CANARY = "CANARY-7431"

CLAUDE_CODE: list[dict[str, Any]] = [
    {"hook_event_name": "SessionStart", "source": "startup", "model": "claude-x"},
    {"hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": {"file_path": CANARY}, "tool_use_id": "u1"},
    {"hook_event_name": "PostToolUse", "tool_name": "Read", "tool_input": {"file_path": CANARY}, "tool_use_id": "u1",
     "tool_response": {"type": "text", "file": {"content": CANARY * 10}}, "duration_ms": 12},
    {"hook_event_name": "PostToolUseFailure", "tool_name": "Bash", "tool_use_id": "u2", "error": f"exit 1 {CANARY}"},
    {"hook_event_name": "SubagentStop", "agent_type": ""},
    {"hook_event_name": "SessionEnd", "reason": "prompt_input_exit"},
]  # fmt: skip
HERMES: list[tuple[str, dict[str, Any]]] = [
    ("on_session_start", {"session_id": "s1", "model": "m", "platform": "cli", "telemetry_schema_version": 1}),
    ("pre_api_request", {"session_id": "s1", "model": "m", "message_count": 9, "tool_count": 4, "max_tokens": 5_000,
                         "approx_input_tokens": 700, "request": {"body": CANARY}}),
    ("post_api_request", {"session_id": "s1", "model": "m", "usage": {"prompt_tokens": 800, "completion_tokens": 40},
                          "api_duration": 1.5, "response": CANARY}),
    ("pre_tool_call", {"session_id": "s1", "tool_name": "terminal", "args": {"command": CANARY}, "tool_call_id": "c1"}),
    ("post_tool_call", {"session_id": "s1", "tool_name": "terminal", "args": {"command": CANARY}, "tool_call_id": "c1",
                        "result": CANARY, "duration_ms": 30, "status": "error", "error_type": "Exit"}),
    ("on_session_end", {"session_id": "s1", "completed": True, "interrupted": False}),
    ("on_session_start", {"session_id": "s2", "old_session_id": "s1", "boundary_reason": "compression"}),
    ("on_session_finalize", {"session_id": "s2", "platform": "cli", "reason": "exit"}),
]  # fmt: skip


class Message(NamedTuple):
    """As much of a ToolMessage as a callback is given."""

    content: str
    tool_call_id: str
    status: str


class Generation(NamedTuple):
    message: Any


class Response(NamedTuple):
    generations: list[list[Generation]]


class WithUsage(NamedTuple):
    usage_metadata: dict[str, Any]


USAGE = WithUsage({"input_tokens": 900, "output_tokens": 30, "input_token_details": {"cache_read": 700}})
THREAD = {"metadata": {"thread_id": "s1"}}
LANGCHAIN: list[tuple[str, dict[str, Any]]] = [
    ("on_chain_start", {"run_id": 1, "parent_run_id": None, "inputs": CANARY, **THREAD}),
    ("on_chain_start", {"run_id": 2, "parent_run_id": 1, "inputs": CANARY, **THREAD}),
    ("on_chat_model_start", {"run_id": 3, "messages": [[CANARY] * 6], "invocation_params": {"model": "m",
                             "max_tokens": 2_000}, **THREAD}),
    ("on_llm_end", {"run_id": 3, "response": Response([[Generation(USAGE)]])}),
    ("on_tool_start", {"run_id": 4, "serialized": {"name": "search"}, "input_str": CANARY, "inputs": {"q": CANARY},
                       **THREAD}),
    ("on_tool_end", {"run_id": 4, "output": Message(CANARY, "c1", "success")}),
    ("on_tool_start", {"run_id": 5, "serialized": {"name": "search"}, "input_str": CANARY, **THREAD}),
    ("on_tool_error", {"run_id": 5, "error": ValueError(CANARY)}),
    ("on_chain_end", {"run_id": 2, "parent_run_id": 1, "outputs": CANARY}),
    ("on_chain_end", {"run_id": 1, "parent_run_id": None, "outputs": CANARY}),
]  # fmt: skip


def told_by(host: str) -> list[Told]:
    if host == "claude_code":
        found = [claude_code.told({"session_id": "s1", "transcript_path": CANARY, **given}) for given in CLAUDE_CODE]
    elif host == "hermes":
        found = [hermes.told(hook, given) for hook, given in HERMES]
    else:
        runs = Runs()
        found = [runs.told(callback, given) for callback, given in LANGCHAIN]
    return [told for told in found if told is not None]


EXPECTED = {
    "claude_code": ["session_started", "tool_called", "tool_finished", "tool_finished", "session_ended"],
    "hermes": ["session_started", "model_called", "model_called", "tool_called", "tool_finished", "session_rotated",
               "session_ended"],
    "langgraph": ["session_started", "model_called", "model_called", "tool_called", "tool_finished", "tool_called",
                  "tool_finished", "session_ended"],
}  # fmt: skip


@pytest.mark.parametrize("host", EXPECTED)
def test_hooks_become_events_without_content(tmp_path: Path, host: str) -> None:
    """Each in its place, nothing of what was said in them; and they belong to no pass."""
    sink = JsonlSink(tmp_path / "t.jsonl", key=b"k" * 32)
    trail = Trail([sink], host=host, is_pass=False)
    for told in told_by(host):
        trail.tell(told)
    trail._delivery.close(10)
    found = [event for event in read_events(sink.path) if event is not None]

    by_sequence = sorted(found, key=lambda event: event.sequence)
    assert [event.kind for event in by_sequence] == EXPECTED[host]  # type: ignore[attr-defined]
    assert {event.pass_id for event in found} == {""}
    assert {event.origin.actor for event in found} == {"host"}
    assert CANARY not in sink.path.read_text()
    assert '"s1"' not in sink.path.read_text()


def test_numbers_arrive() -> None:
    """Among them the model's max_tokens, which no compaction hook of Hermes tells."""
    by_hook = dict(zip([hook for hook, _ in HERMES if hook != "on_session_end"], told_by("hermes"), strict=True))
    assert by_hook["pre_api_request"].facts == {
        "model": "m", "ms": None, "messages": 9, "max_tokens": 5_000, "input_tokens": 700,
    }  # fmt: skip
    assert by_hook["post_api_request"].facts["ms"] == 1_500.0
    assert by_hook["post_tool_call"].facts["is_error"] is True

    model, ended = told_by("langgraph")[1:3]
    assert (model.facts["max_tokens"], model.facts["messages"], model.session) == (2_000, 6, "s1")
    assert (ended.facts["cached_tokens"], ended.session) == (700, "s1")
    assert told_by("langgraph")[6].facts["is_error"] is True


def test_the_same_call_has_the_same_digest_whatever_the_order_of_its_arguments() -> None:
    """So that a call made again is found."""
    first, second = (
        claude_code.told({"hook_event_name": "PreToolUse", "tool_name": "Read", "tool_input": given})
        for given in ({"a": 1, "b": [2, {"c": 3}]}, json.loads('{"b": [2, {"c": 3}], "a": 1}'))
    )

    assert first is not None
    assert second is not None
    assert first.digests["argument_digest"] == second.digests["argument_digest"]


def test_odd_payloads_are_events_or_nothing() -> None:
    """Never a crash: empty, of another kind, and one that holds itself."""
    loop: dict[str, Any] = {}
    loop["self"] = loop
    assert claude_code.told({}) is None
    assert hermes.told("kanban_move", {}) is None
    assert Runs().told("on_retry", {}) is None
    for hook in hermes.HOOKS:
        assert hermes.told(hook, {"args": loop, "usage": None, "result": loop}) is not None
    for name in claude_code.HOOKS:
        assert claude_code.told({"hook_event_name": name, "tool_input": loop, "tool_response": loop}) is not None
    for callback in ("on_tool_start", "on_tool_end", "on_chat_model_start", "on_llm_end", "on_chain_start"):
        assert Runs().told(callback, {}) is not None
    assert length_of([{"type": "text", "text": "abc"}, {"type": "text", "text": "de"}]) == 5
    assert text_of(loop).count("self") == 20


def test_events_of_a_host_name_their_kind() -> None:
    """Every mapping ends in a model of the host family."""
    for host in EXPECTED:
        found = told_by(host)
        assert len(found) > 4
        for told in found:
            assert issubclass(told.kind, events.Event)
            assert told.kind.__module__ == "jev_engine.events.host"
