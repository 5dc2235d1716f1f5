"""Faults of message shapes seen in the field (A09, A10, A13 of the fault study)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from passing import compress, long_text

from jev_engine.testing import call, calls, history, result, user

IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * 9_000}}


def text_part(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


@pytest.mark.parametrize(
    "content",
    [
        [text_part(long_text("a", 6_000)), IMAGE],
        [IMAGE, text_part(long_text("a", 6_000))],
        [text_part(long_text("a")), IMAGE, text_part(long_text("b"))],
        [long_text("a", 6_000)],
        [text_part(long_text("a")), {"type": "file", "file": {"file_id": "f"}}],
    ],
    ids=["image last", "image first", "image between", "plain strings", "unknown part"],
)
def test_results_in_parts_are_shortened_in_parts(content: list[Any]) -> None:
    """A09: the list form stays, the text is shortened, images and unknown parts are the same objects."""
    messages = history(user("Look."), call("screenshot"), result(content), user("Go on."))
    done = compress(messages, lambda _: (0.9, 0.0), pin_newest_calls=0)
    edited = done.messages[2]["content"]
    others = [part for part in content if isinstance(part, dict) and part["type"] != "text"]

    assert done.outcome == "committed", done.reason
    assert isinstance(edited, list)
    assert [id(p) for p in edited if isinstance(p, dict) and p["type"] != "text"] == [id(p) for p in others]
    assert len(str([p for p in edited if p not in others])) < 600


@pytest.mark.parametrize(
    "content", [None, 42, 1.5, True, {"rows": [1] * 999}, [], [None, 7], [[["x"] * 999]]], ids=repr
)
@pytest.mark.parametrize("profile", ["balanced", "reference", "hermes-classic"])
def test_results_of_unknown_form_stay_and_stop_nothing(content: Any, profile: str) -> None:
    """A09: null, numbers, objects and odd lists keep their place; the unit beside them is judged."""
    odd, plain = result(content, call_id="a"), result(long_text("b"), call_id="b")
    messages = history(user("Look."), call("x", call_id="a"), odd, call("read", call_id="b"), plain, user("Go on."))
    done = compress(messages, lambda _: (0.9, 0.0), profile=profile, pin_newest_calls=0, pin_newest_messages=0)

    assert done.outcome == "committed", done.reason
    assert done.messages[2] is odd
    assert [d.call.call_id for d in done.decisions if d.action == "truncate"] == ["b"]


def test_a_result_with_an_image_is_never_removed_with_its_image() -> None:
    """A09: the stated policy is that images are never judged, so such a unit is shortened at most."""
    messages = history(
        user("Look."), call("screenshot"), result([text_part(long_text("a")), IMAGE]), call("read"),
        result(long_text("b")), user("Go on."),
    )  # fmt: skip
    done = compress(messages, profile="hermes-classic", pin_newest_calls=0, max_removed_share=1.0)

    assert [d.action for d in done.decisions] == ["truncate", "remove"]
    assert done.messages[2]["content"][1] is IMAGE


@pytest.mark.parametrize(
    "arguments",
    [
        '{"code":"' + "x" * 8_000,
        "not json at all",
        "",
        {"content": {"a": 1}},
        ["a", "list"],
        None,
        '{"a":' * 5_000,
        json.dumps({"half": "\ud83d"}),
        '{"half": "\ud83d"}',
    ],
    ids=["unterminated", "prose", "empty", "object", "list", "null", "deep", "escaped half", "half character"],
)
def test_arguments_are_never_changed(arguments: Any) -> None:
    """A10: bad JSON, objects and half characters pass through as they are, in a message that is edited too."""
    made = calls(("write", {}), ("read", {}), call_ids=["a", "b"])
    made["tool_calls"][0]["function"]["arguments"] = arguments
    messages = [
        user("Fix it."), made, result(long_text("a"), call_id="a"), result(long_text("b"), call_id="b"), user("Go on."),
    ]  # fmt: skip
    done = compress(messages, {"a": (0.9, 0.0), "b": (0.0, 0.0)}, profile="reference", pin_newest_messages=0)

    assert done.outcome == "committed", done.reason
    assert done.messages[1]["tool_calls"] == [made["tool_calls"][0]]
    assert done.messages[1]["tool_calls"][0] is made["tool_calls"][0]
    assert len(done.messages[2]["content"]) < 600


BOUND = {
    "responses items": {"codex_reasoning_items": [{"id": "rs_1"}]},
    "signed details": {"reasoning_details": [{"signature": "c2ln"}]},
    "thinking blocks": {"thinking_blocks": [{"type": "thinking", "signature": "c2ln"}]},
    "thinking in content": {"content": [{"type": "thinking", "thinking": "…", "signature": "c2ln"}]},
}


@pytest.mark.parametrize("extra", BOUND.values(), ids=BOUND)
@pytest.mark.parametrize("profile", ["reference", "hermes-classic"])
def test_a_reasoning_item_and_its_calls_share_one_fate(extra: dict[str, Any], profile: str) -> None:
    """A13: rows that carry such items are shortened at most, in every profile; the items are the same objects."""
    bound = calls(("read", {"path": "a"}), ("read", {"path": "b"}), call_ids=["a", "b"]) | extra
    messages = [
        user("Fix it."), bound, result(long_text("a"), call_id="a"), result(long_text("b"), call_id="b"),
        call("read", call_id="c"), result(long_text("c"), call_id="c"), user("Go on."),
    ]  # fmt: skip
    done = compress(messages, profile=profile, pin_newest_calls=0, pin_newest_messages=0, max_removed_share=1.0)
    actions = {d.call.call_id: d.action for d in done.decisions}

    assert actions["a"] == actions["b"] == "truncate"
    assert done.messages[1] is bound


def test_readable_reasoning_stays_with_its_message() -> None:
    """Reasoning that a host keeps as text leaves only with a call it belongs to, never out of a message that stays."""
    thought = calls(("read", {}), ("read", {}), call_ids=["a", "b"]) | {"reasoning": "Let me see."}
    messages = [
        user("Fix it."), thought, result(long_text("a"), call_id="a"), result(long_text("b"), call_id="b"),
        user("Go on."),
    ]  # fmt: skip
    done = compress(messages, {"a": (0.0, 0.0)}, profile="reference", pin_newest_messages=0)

    assert done.messages[1]["reasoning"] == "Let me see."
