"""The golden vectors of the reference implementation hold under the `reference` profile."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import neutral_adapter
import pytest

from jev_engine import ContextEngine, make_config
from jev_engine.pinning import pin
from jev_engine.plugins import load_plugins
from jev_engine.state import STAGES, fit_history, reference_cost
from jev_engine.testing import ScriptedJudge
from jev_engine.tokens import TWENTIETHS, reference_tokens

ADAPTER = neutral_adapter.NeutralAdapter()
# What our actions are called in the vectors.
NAMES = {"keep": "keep", "truncate": "drop_result", "remove": "drop_call"}


@pytest.fixture(scope="module")
def golden(shared: Path) -> Any:
    """Reads a file of golden vectors by its name."""
    folder = shared / "golden"
    if not folder.is_dir():
        pytest.skip(f"GOLDEN VECTORS NOT CHECKED: no folder {str(folder)!r}")
    return cache(lambda name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")))


def test_token_estimates_are_those_of_the_reference(golden: Any) -> None:
    """The published rule, exactly, for every text of the vectors."""
    cases = golden("token_estimates")["cases"]
    wrong = [case for case in cases if reference_tokens(case["text"]) != case["tokens"]]

    assert len(cases) == 84
    assert wrong == []


def test_pairs_and_pins_are_those_of_the_reference(golden: Any) -> None:
    """Every call with its rows, its size, its error flag and whether it is pinned."""
    cases = golden("pairing")["cases"]
    for case in cases:
        transcript = ADAPTER.read(golden("transcripts")["transcripts"][case["transcript"]])
        config = make_config(profile="reference", pin_newest_messages=case["preserve_recent_messages"])
        pins = pin(transcript, config)
        found = [
            {
                "id": call.label,
                "tool_use_id": call.call_id,
                "tool": call.tool,
                "call_index": call.row,
                "result_index": call.result_row,
                "result_chars": len(call.result or ""),
                "is_error": call.is_error,
                "pinned": call.number in pins.reasons,
            }
            for call in transcript.calls
            if not call.is_open
        ]

        assert found == case["calls"], case["transcript"]
    assert len(cases) == 28


def test_the_ladder_stops_at_the_stage_of_the_reference(golden: Any) -> None:
    """Stage, tokens and history for every budget of the vectors."""
    ladder = golden("state_ladder")
    for case in ladder["cases"]:
        transcript = ADAPTER.read(golden("transcripts")["transcripts"][case["transcript"]])
        rows = len(transcript.messages)
        pinned = frozenset([0, *range(rows - case["preserve_recent_messages"], rows)])
        budget = case["history_budget"] * TWENTIETHS
        fitted = fit_history(transcript.entries, pinned, budget, reference_cost, first=1, last=8)
        where = f"{case['transcript']} within {case['history_budget']} tokens"
        if fitted is None:
            assert case["stage"] is None, where
            continue
        stage, shown, total = fitted

        assert STAGES[stage] == case["stage"], where
        assert total == case["history_tokens"] * TWENTIETHS, where
        if case.get("history"):
            assert [json.loads(item.json) for item in shown] == case["history"], where
    assert len(ladder["cases"]) == 122
    assert list(STAGES[1:]) == ladder["stages"]


async def test_decisions_and_rebuilt_shape_are_those_of_the_reference(golden: Any) -> None:
    """The real engine with the scripted answers: actions, rows, identity, ids and characters."""
    cases = golden("decisions")["cases"]
    for case in cases:
        messages = golden("transcripts")["transcripts"][case["transcript"]]
        engine = ContextEngine(
            config=make_config(
                profile="reference",
                keep_call=case["keep_threshold"],
                keep_result=case["keep_threshold"],
                pin_newest_messages=case["preserve_recent_messages"],
                head_chars=case["truncate_head_chars"],
            ),
            judge=ScriptedJudge({label: (a["keepCall"], a["keepResult"]) for label, a in case["answers"].items()}),
            plugins=load_plugins(extra=[neutral_adapter], entry_points=False),
        )
        done = await engine.compress(messages, host="neutral")
        where = f"{case['transcript']} at {case['keep_threshold']}"

        assert done.outcome in ("committed", "nothing_to_prune"), done.reason
        assert actions_of(done, case) == {label: a[0] for label, a in case["actions"].items()}, where
        assert len(done.messages) == case["messages_after"], where
        assert places(messages, done.messages) == case["same_object_as_input_index"], where
        assert done.stats.chars_before == case["chars_before"], where
        assert [u["tool_use_id"] for m in done.messages for u in m["toolUses"]] == case["kept_ids"], where
        assert verbatim_chars(messages, done.messages) == case["result_chars_kept_verbatim"], where
        assert_copies_are_equal(done.messages)
        assert_replaced_texts_are_shorter(messages, done.messages)
    assert len(cases) == 15


def actions_of(done: Any, case: Any) -> dict[str, str]:
    """Actions by label in the words of the vectors; a unit too short to shorten counts as dropped there."""
    ours = dict.fromkeys(case["actions"], "keep")
    for decision in done.decisions:
        ours[decision.label] = NAMES[decision.action]
        if decision.reason == "too short to shorten":
            assert len(decision.call.result) <= case["truncate_head_chars"] + 120
            ours[decision.label] = "drop_result"
    return ours


def places(before: list[Any], after: list[Any]) -> list[int | None]:
    """For each output row the input row that is the same object."""
    rows = {id(message): row for row, message in enumerate(before)}
    return [rows.get(id(message)) for message in after]


def results_of(messages: list[Any]) -> dict[str, str]:
    return {answer["tool_use_id"]: answer["text"] for m in messages for answer in m.get("toolResults", ())}


def verbatim_chars(before: list[Any], after: list[Any]) -> int:
    """Characters of the results that are the same as before."""
    kept = results_of(after)
    return sum(len(text) for name, text in results_of(before).items() if kept.get(name) == text)


def assert_copies_are_equal(messages: list[Any]) -> None:
    texts = results_of(messages)
    for message in messages:
        for use in message["toolUses"]:
            if use["tool_use_id"] in texts:
                assert use["text"] == texts[use["tool_use_id"]]


def assert_replaced_texts_are_shorter(before: list[Any], after: list[Any]) -> None:
    kept = results_of(after)
    for name, text in results_of(before).items():
        if name in kept and kept[name] != text:
            assert len(kept[name]) < len(text)
