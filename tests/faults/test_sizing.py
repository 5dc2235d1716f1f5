"""Faults of sizes and states seen in the field (A19 to A22 of the fault study)."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import pytest
from passing import compress, long_text

from jev_engine.config import make_config
from jev_engine.judges import JudgeRequest
from jev_engine.judges.asked import AskedJudge, plan_requests
from jev_engine.ledger import Ledger, assign_keys
from jev_engine.sizes import measure
from jev_engine.testing import ScriptedAsker, call, history, result, user
from jev_engine.tokens import IMAGE_TOKENS, estimate_tokens, sample_tokens
from jev_engine_adapters.openai import adapter

DATA_URL = "data:image/png;base64," + "iVBORw0KGgo" * 270_000


@pytest.mark.parametrize("sign", "你語かカ한ㄱ。")
def test_a_cjk_sign_costs_at_least_one_token(sign: str) -> None:
    """A19: length divided by four undercounts such sessions three to four times."""
    assert estimate_tokens(sign * 160) >= 160
    assert estimate_tokens("a" * 160) < 60
    assert sample_tokens(sign * 9_000) >= 9_000


@pytest.mark.parametrize("sign", ["🙂", "𠮷", "\U0010ffff"])
def test_a_sign_of_a_rare_plane_costs_two(sign: str) -> None:
    """A19: emoji and rare ideographs."""
    assert estimate_tokens(sign * 50) >= 100
    assert sample_tokens(sign * 9_000) >= 18_000


def test_mixed_text_costs_the_sum_of_its_parts() -> None:
    """A19: the ASCII fast path is not taken for a text with one foreign sign."""
    english, chinese = "some words here " * 40, "中文" * 80

    assert estimate_tokens(english + chinese) >= estimate_tokens(english) + 160


DENSE = {
    "commit ids": " ".join(hashlib.sha1(str(n).encode()).hexdigest() for n in range(300)),  # noqa: S324  # shape only
    "base64": "".join(random.Random(1).choices("ABCDEFGHIJKLMNOPabcdefghijklmnop0123456789+/", k=60_000)),  # noqa: S311
    "hex": "".join(random.Random(1).choices("0123456789abcdef", k=60_000)),  # noqa: S311  # the same each time
    "url-safe": "".join(random.Random(1).choices("ABCDEFabcdef0123456789-_", k=60_000)),  # noqa: S311
}


@pytest.mark.parametrize("text", DENSE.values(), ids=DENSE)
def test_dense_runs_cost_about_half_a_token_a_sign(text: str) -> None:
    """A20: as words they would cost a sixth, and the request would be refused as too large."""
    signs = len(text.replace(" ", ""))

    assert 0.44 * signs <= estimate_tokens(text) <= 0.65 * signs
    assert sample_tokens(text) >= 0.40 * signs


def test_a_state_of_ids_and_base64_stays_within_its_budget() -> None:
    """A20: counted honestly, the request fits at half a token a sign."""
    messages = history(
        user(DENSE["commit ids"]), call("put", body=DENSE["base64"]), result(DENSE["base64"]),
        call("put", body=DENSE["hex"]), result(DENSE["hex"]), user(DENSE["base64"]),
    )  # fmt: skip
    asker = ScriptedAsker(lambda *_: 0.5)
    compress(messages, judge=AskedJudge(asker), pin_newest_calls=0, state_tokens=3_000, request_tokens=4_000)
    (state, questions), *_ = asker.requests

    assert len(json.dumps([state, questions])) * 0.25 < 4_000
    assert estimate_tokens(json.dumps(state)) <= 3_000


def test_an_image_costs_the_same_whatever_its_bytes() -> None:
    """A21: a screenshot is no reason to compact, and its bytes never reach the judge."""
    image = {"type": "image_url", "image_url": {"url": DATA_URL}}
    messages = history(
        {"role": "user", "content": [image]},
        call("screenshot"),
        result([{"type": "text", "text": long_text("a")}, image]),
        user("Go on."),
    )
    asker = ScriptedAsker(lambda *_: 0.5)
    done = compress(messages, judge=AskedJudge(asker), pin_newest_calls=0)
    shown = json.dumps(asker.requests)

    assert 2 * IMAGE_TOKENS < done.stats.tokens_before < 2 * IMAGE_TOKENS + 2_000
    assert "iVBOR" not in shown
    assert len(shown) < 9_000


def test_images_are_named_to_the_judge_and_not_dropped_in_silence() -> None:
    """A21: one in a user row, one beside text, one in a result."""
    image = {"type": "image_url", "image_url": {"url": DATA_URL}}
    messages = history(
        {"role": "user", "content": [image]},
        {"role": "user", "content": [{"type": "text", "text": "And this?"}, image, image]},
        call("screenshot"),
        result([{"type": "text", "text": long_text("a")}, image]),
        user("Go on."),
    )
    asker = ScriptedAsker(lambda *_: 0.5)
    compress(messages, judge=AskedJudge(asker), pin_newest_calls=0)
    history_shown = asker.requests[0][0]["history"]

    assert [row.get("images") for row in history_shown] == [1, 2, None, None]
    assert "1 images" in history_shown[2]["tool_calls"][0]["result"]


def planned(messages: list[Any], **settings: Any) -> Any:
    transcript = adapter.read(messages)
    assign_keys(transcript, Ledger())
    measure(transcript)
    config = make_config(**settings)
    candidates = [c for c in transcript.calls if not c.is_open]
    return candidates, plan_requests(JudgeRequest(transcript, candidates, None, None, frozenset([0]), config))


@pytest.mark.parametrize(
    ("state_tokens", "request_tokens"), [(3_000, 4_000), (3_000, 3_000), (25_000, 30_000), (2_000, 9_000)]
)
@pytest.mark.parametrize("profile", ["balanced", "reference"])
def test_four_hundred_units_are_asked_about_only_where_they_are_shown(
    state_tokens: int, request_tokens: int, profile: str
) -> None:
    """A22: no question about a hidden unit, room for the questions, every unit at most once."""
    rows = [row for n in range(400) for row in (call("read", path=f"src/{n}.py"), result(long_text(str(n))))]
    candidates, requests = planned(
        history(user("Fix it."), *rows), profile=profile, state_tokens=state_tokens, request_tokens=request_tokens
    )
    asked = [c.label for request in requests for c in request.calls]

    assert requests
    assert len(asked) == len(set(asked))
    for request in requests:
        labels = shown_labels(json.loads(request.state.text))
        assert {c.label for c in request.calls} <= labels
        assert request.cost <= request_tokens * 20
    if profile == "balanced":
        assert sorted(asked) == sorted(c.label for c in candidates)


def shown_labels(state: Any) -> set[str]:
    """Labels of the calls that can be seen in a state, as objects or as lines."""
    made = [c for row in state["history"] for c in row.get("tool_calls", ())]
    return {c["id"] if isinstance(c, dict) else c.split(" ", 1)[0] for c in made}


def test_hidden_units_are_reported_and_kept() -> None:
    """A22: where no state can show a unit it is counted, and stays."""
    rows = [row for n in range(400) for row in (call("read", path=f"src/{n}.py"), result(long_text(str(n))))]
    asker = ScriptedAsker(lambda *_: 0.0)
    done = compress(
        history(user("Fix it."), *rows),
        judge=AskedJudge(asker),
        profile="reference",
        state_tokens=1_500,
        request_tokens=4_000,
    )
    asked = {name.removeprefix("call_") for _, questions in asker.requests for name in questions if name[0] == "c"}
    out = {d.label for d in done.decisions if d.action != "keep"}

    assert out <= asked
    assert done.stats.hidden == len(done.decisions) - len(asked)
