"""Faults of pairing and ids seen in the field (A01 to A08 of the fault study)."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from claude_code_rows import Session, use
from passing import NOTHING_MATTERS, compress, long_text, paired

from jev_engine import make_config
from jev_engine.pinning import pin
from jev_engine.state import STAGES, fit_history, reference_cost
from jev_engine.testing import assistant, call, calls, history, result, system, transcript_of, user
from jev_engine.tokens import TWENTIETHS
from jev_engine_adapters.openai import adapter


@pytest.mark.parametrize("protected", range(9))
def test_the_protected_end_starts_at_a_unit_border(protected: int) -> None:
    """A01: wherever the line falls, a protected result keeps its call and a protected call its result."""
    messages = history(
        system("Rules."),
        user("Fix it."),
        call("read", path="a"),
        result(long_text("a", 5_000)),
        user("And then?"),
        calls(("read", {"path": "b"}), ("read", {"path": "c"})),
        result(long_text("b", 5_000)),
        result(long_text("c", 5_000)),
    )
    done = compress(messages, profile="reference", pin_newest_messages=protected)
    kept = [m for row, m in enumerate(messages) if row >= len(messages) - protected]

    # From five rows on, the first call stands in the protected end too.
    assert done.outcome == ("committed" if protected < 5 else "nothing_to_prune"), done.reason
    assert paired(done.messages)
    assert [id(m) for m in done.messages[len(done.messages) - protected :]] == [id(m) for m in kept]


@pytest.mark.parametrize("profile", ["balanced", "reference", "hermes-classic"])
def test_a_dropped_result_leaves_a_short_result_in_its_place(profile: str) -> None:
    """A02: the row stays, its text is short, and nothing is invented."""
    messages = history(user("Fix it."), call("read"), result(long_text("a")), user("Go on."))
    done = compress(messages, lambda _: (0.9, 0.0), profile=profile, pin_newest_calls=0, pin_newest_messages=0)

    assert [m["role"] for m in done.messages] == [m["role"] for m in messages]
    assert done.messages[1] is messages[1]
    assert done.messages[2]["tool_call_id"] == messages[2]["tool_call_id"]
    assert len(done.messages[2]["content"]) < 600


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
@pytest.mark.parametrize("gone", range(3))
def test_siblings_of_a_removed_call_keep_partner_and_place(order: tuple[int, ...], gone: int) -> None:
    """A03: results of one batch in any order; exactly one call and one result go."""
    ids = ["c1", "c2", "c3"]
    batch = calls(*(("read", {"path": name}) for name in ids), call_ids=ids)
    answers = [result(long_text(ids[slot]), call_id=ids[slot]) for slot in order]
    messages = [user("Fix it."), batch, *answers, user("Go on.")]
    done = compress(messages, {ids[gone]: (0.0, 0.0)}, profile="reference", pin_newest_messages=0)
    left = [name for name in ids if name != ids[gone]]

    assert [made["id"] for made in done.messages[1]["tool_calls"]] == left
    assert [m["tool_call_id"] for m in done.messages if m["role"] == "tool"] == [
        ids[slot] for slot in order if slot != gone
    ]
    assert all(m in messages for m in done.messages if m["role"] == "tool")


@pytest.mark.parametrize("budget", [600, 1_000, 1_500, 2_560, 2_600])
def test_open_calls_are_shown_as_open_at_every_stage(budget: int) -> None:
    """A04: a running deployment is no candidate, stays, and is told to the judge in the smallest state."""
    rows = [row for n in range(30) for row in (call("read", path=f"{n}.py"), result(long_text(str(n))))]
    messages = history(user("Deploy it."), *rows, call("deploy", target="stage-7"))
    transcript = adapter.read(messages)
    fitted = fit_history(transcript.entries, frozenset(), budget * TWENTIETHS, reference_cost, first=1, last=8)

    assert fitted is not None
    stage, shown, _ = fitted
    text = "".join(item.json for item in shown)

    assert "deploy" in text, STAGES[stage]
    assert "pending" in text
    assert "stage-7" in text


def test_open_calls_are_never_judged_and_stay() -> None:
    """A04: whatever the answers say."""
    rows = [row for n in range(30) for row in (call("read", path=f"{n}.py"), result(long_text(str(n))))]
    messages = history(user("Deploy it."), *rows, call("deploy", target="stage-7"), user("Go on."), call("read"))
    done = compress(messages, profile="reference", pin_newest_messages=0)

    assert done.messages[-3:] == messages[-3:]
    assert done.stats.pinned["open"] == 2
    assert "deploy" not in {decision.call.tool for decision in done.decisions}


def test_text_and_calls_of_one_turn_in_separate_messages_are_one_turn() -> None:
    """A05: a run of assistant rows is one turn, so its narration protects its calls; the host's split stays."""
    messages = history(
        user("Open a ticket."),
        assistant("I open it now."),
        call("lookup"),
        call("create"),
        result(long_text("a")),
        result(long_text("b")),
        user("Go on."),
        call("lookup"),
        result(long_text("c")),
    )
    done = compress(messages, profile="hermes-classic", pin_newest_calls=0, max_removed_share=1.0)

    assert [d.action for d in done.decisions] == ["truncate", "truncate", "remove"]
    assert [m["role"] for m in done.messages] == [m["role"] for m in messages[:-2]]


def test_blocks_of_one_response_in_several_records_are_one_turn() -> None:
    """A05, Claude Code form: one message id over several records, results in two user records."""
    session = Session()
    session.user("Open a ticket.")
    session.says("I open it now.", response="m1")
    session.says(use("t1"), response="m1")
    session.says(use("t2"), response="m1")
    session.result("t1", "one")
    session.result("t2", "two")
    session.says(use("t3"), response="m2")
    session.result("t3", "three")
    transcript = session.read()
    first, second, third = transcript.calls

    assert first.turn == second.turn != third.turn
    assert transcript.spoken_turns() == {first.turn}


@pytest.mark.parametrize("empty", [None, "", [], [{"type": "text", "text": ""}]])
def test_a_message_that_loses_its_last_call_leaves_no_shell(empty: Any) -> None:
    """A06: without text the message goes, with text only the text stays; no empty list, no placeholder."""
    told, silent = call("read", text="Looked at it."), call("read", path="b")
    silent["content"] = empty
    messages = history(user("Fix it."), told, result(long_text("a")), silent, result(long_text("b")), user("Go on."))
    done = compress(messages, profile="reference", pin_newest_messages=0)

    assert done.messages == [messages[0], {"role": "assistant", "content": "Looked at it."}, messages[-1]]


@pytest.mark.parametrize("gone", range(4))
@pytest.mark.parametrize("answer", [(0.0, 0.0), (1.0, 0.0)], ids=["removed", "shortened"])
def test_a_decision_touches_one_occurrence_of_a_reused_id(gone: int, answer: tuple[float, float]) -> None:
    """A07: four turns with one id; pairing is by occurrence."""
    rows = [row for n in range(4) for row in (call("read", call_id="k"), result(long_text(str(n)), call_id="k"))]
    messages = [user("Fix it."), *rows, user("Go on.")]
    done = compress(messages, {f"t{gone + 1}": answer}, profile="reference", pin_newest_messages=0)
    left = [m["content"] for m in done.messages if m["role"] == "tool"]
    untouched = [long_text(str(n)) for n in range(4) if n != gone]

    assert [text for text in left if text in untouched] == untouched
    assert paired(done.messages)
    assert len(left) == (3 if answer == (0.0, 0.0) else 4)


ODD_PAIRS = {
    "result before its call": [result("early", call_id="x"), call("read", call_id="x"), result("first", call_id="x")],
    "second result": [call("read", call_id="x"), result("first", call_id="x"), result("last", call_id="x")],
    "id open twice": [
        call("read", call_id="x"),
        call("read", call_id="x"),
        result("1", call_id="x"),
        result("2", call_id="x"),
    ],
    "empty id": [
        call("read", call_id="x") | {"tool_calls": [{"id": "", "function": {"name": "read"}}]},
        result("1", call_id=""),
    ],
    "no id": [{"role": "assistant", "tool_calls": [{"function": {"name": "read"}}]}, {"role": "tool", "content": "1"}],
    "result without call": [result("x" * 900, call_id="nobody")],
    "provider-side tool": [{"role": "assistant", "content": None, "tool_calls": [{"type": "web_search", "id": "w"}]}],
}


@pytest.mark.parametrize("odd", ODD_PAIRS.values(), ids=ODD_PAIRS)
@pytest.mark.parametrize("profile", ["balanced", "reference", "hermes-classic"])
def test_what_cannot_be_paired_without_doubt_stays_and_stops_nothing(odd: list[Any], profile: str) -> None:
    """A08: such rows are the same objects afterwards, and the units around them are judged."""
    odd = [dict(m, content=m["content"] and m["content"] * 90) if m.get("role") == "tool" else dict(m) for m in odd]
    plain = [call("read", call_id="p"), result(long_text("p"), call_id="p")]
    messages = [user("Fix it."), *odd, *plain, user("Go on.")]
    done = compress(messages, lambda _: (1.0, 0.0), profile=profile, pin_newest_calls=0, pin_newest_messages=0)
    shortened = [d.call.call_id for d in done.decisions if d.action == "truncate"]

    assert done.outcome == "committed", done.reason
    assert "p" in shortened
    if odd[0].get("role") != "tool" or len(odd) == 1:
        assert shortened == ["p"]
        assert [id(m) for m in done.messages[1 : len(odd) + 1]] == [id(m) for m in odd]
        assert done.stats.odd


def test_the_early_result_stays_and_the_pair_behind_it_is_a_pair() -> None:
    """A08: `tool x, asst(x), tool x "first", tool x "last"` is read without a crash, and all four stay."""
    answers = [result(text * 900, call_id="x") for text in ("early ", "first ", "last ")]
    messages = [user("Fix it."), answers[0], call("read", call_id="x"), answers[1], answers[2], user("Go on.")]
    done = compress(messages, profile="reference", pin_newest_messages=0)

    assert done.messages is messages
    assert done.stats.odd == {"result without call": 1, "second result": 1}
    assert done.stats.pinned == {"ambiguous: two results": 1}


def test_of_two_id_fields_the_call_id_counts() -> None:
    """A08: a call with `id` fc_1 and `call_id` call_1 is answered by a result for call_1."""
    asked = {"id": "fc_1", "call_id": "call_1", "function": {"name": "read", "arguments": "{}"}}
    messages = [
        user("Fix it."),
        {"role": "assistant", "content": None, "tool_calls": [asked]},
        result(long_text("a"), call_id="call_1"),
        user("Go on."),
    ]
    transcript = adapter.read(messages)

    assert [(c.call_id, c.result_row) for c in transcript.calls] == [("call_1", 2)]
    assert not transcript.odd


def test_the_newest_turn_is_protected_however_large_and_older_ones_by_tokens() -> None:
    """The protected end is limited in tokens as well as rows; a batch is not cut in two."""
    rows = [row for n in range(6) for row in (call("read", path=str(n)), result(long_text(str(n), 40_000)))]
    batch = [
        calls(("read", {"path": "x"}), ("read", {"path": "y"})),
        result(long_text("x", 99_000)),
        result(long_text("y", 99_000)),
    ]
    transcript = transcript_of(user("Fix it."), *rows, *batch)
    pins = pin(transcript, make_config(pin_newest_calls=6, pin_newest_tokens=20_000))
    newest = {number for number, reason in pins.reasons.items() if reason == "newest"}

    assert newest == {7, 8}
    assert NOTHING_MATTERS(None) == (0.0, 0.0)
