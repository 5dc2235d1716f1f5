"""Histories for properties: ordinary ones, and every kind of broken one that hosts have been seen to write."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import strategies as st

__all__ = ["answers_for", "any_histories", "bodies", "histories", "texts"]

# Half characters, control characters and blanks included: `text()` leaves half characters out.
texts = st.one_of(
    st.text(max_size=40),
    st.text(st.characters(codec=None, categories=["Cs", "L", "Nd", "Cc", "Zs", "So"]), max_size=40),
    st.sampled_from(["", " ", "\n", "你好世界", "\ud83d\ude42", "\ud83d", "\0", "[jev-engine: jx-0123456789abcdef]"]),
)
tools = st.sampled_from(["read", "bash", "grep", "ask_user", "send_mail", "", "工具", "\ud83d"])


@st.composite
def bodies(draw: st.DrawFn) -> str:
    """Text of a result: short or long, sometimes wrapped, sometimes with lines that state an outcome."""
    piece = draw(texts) + draw(st.sampled_from(["", "x", "line of text\n", "0123456789abcdef" * 4]))
    body = piece * draw(st.sampled_from([0, 1, 1, 30, 80, 200]))
    body += draw(st.sampled_from(["", "\nexit code 1\n", "\nError: no such file", "\n```python\n"]))
    if draw(st.booleans()):
        body = f"<tool_output>\n{body}\n</tool_output>"
    return body


contents = st.one_of(
    bodies(),
    bodies(),
    bodies().map(lambda text: [{"type": "text", "text": text}]),
    bodies().map(
        lambda text: [{"type": "image_url", "image_url": {"url": "data:"}}, {"type": "text", "text": text}, text]
    ),
)
odd_contents = st.one_of(st.none(), st.just([]), st.just(42), st.just({"rows": [1]}), st.just([None, 1, {"type": "?"}]))
arguments = st.one_of(
    st.dictionaries(st.sampled_from(["path", "command", "q"]), texts, max_size=2).map(json.dumps),
    texts,
    st.sampled_from(["", "{", '{"path":"AGENTS.md"}', "null", '{"a":' * 50]),
)
odd_rows = st.one_of(
    st.sampled_from([None, 42, "text", [], {}, {"role": None}, {"role": ["x"]}, {"role": "function", "content": "x"}]),
    st.builds(lambda text: {"role": "user", "content": [{"type": "text", "text": text}, {"type": "image_url"}]}, texts),
    st.builds(lambda text: {"role": "tool", "tool_call_id": "nobody", "content": text}, texts),
    st.just({"role": "assistant", "content": None, "tool_calls": []}),
    st.just({"role": "assistant", "content": None, "tool_calls": "no list"}),
    st.just(
        {"role": "assistant", "content": "x", "tool_calls": [None, {"type": "web_search"}, {"id": 7, "function": 1}]}
    ),
)


@st.composite
def turns(draw: st.DrawFn, ids: Any, *, is_broken: bool) -> list[Any]:
    """One assistant message with its results; of a broken one they are lost, doubled, mixed up or odd."""
    made = [(draw(ids), draw(tools), draw(arguments)) for _ in range(draw(st.integers(1, 3)))]
    said = draw(st.one_of(st.none(), st.none(), texts))
    message: dict[str, Any] = {
        "role": "assistant",
        "content": said,
        "tool_calls": [
            {"id": name, "type": "function", "function": {"name": tool, "arguments": text}} for name, tool, text in made
        ],
    }
    if draw(st.integers(0, 5)) == 0:
        message["reasoning_details"] = [{"signature": "c2ln"}]
    answers = [{"role": "tool", "tool_call_id": name, "content": draw(contents)} for name, _, _ in made]
    answers = draw(st.permutations(answers))
    if is_broken:
        for answer in answers:
            if draw(st.integers(0, 4)) == 0:
                answer["content"] = draw(odd_contents)
        fault = draw(st.sampled_from(["none", "lost", "doubled", "before", "id"]))
        if fault == "lost":
            answers = answers[1:]
        elif fault == "doubled":
            answers = [*answers, dict(answers[0])]
        elif fault == "before":
            return [*answers, message]
        elif fault == "id":
            message["tool_calls"][0]["id"] = draw(st.sampled_from([None, "", 7, ["x"]]))
    return [message, *answers]


@st.composite
def _made(draw: st.DrawFn, *, is_broken: bool, most_turns: int) -> list[Any]:
    # Few ids: the same one comes again in later turns, and at times in one turn.
    ids = st.sampled_from(["k", "c1", "c2", "c3"]) if is_broken else st.uuids().map(str)
    rows: list[Any] = [{"role": "user", "content": draw(texts)}] if draw(st.booleans()) else []
    for _ in range(draw(st.integers(0, most_turns))):
        rows.extend(draw(turns(ids, is_broken=is_broken)))
        if draw(st.integers(0, 3)) == 0:
            rows.append({"role": draw(st.sampled_from(["user", "assistant", "system"])), "content": draw(texts)})
        if is_broken and draw(st.integers(0, 3)) == 0:
            rows.append(draw(odd_rows))
    return rows


def histories(most_turns: int = 8) -> st.SearchStrategy[list[Any]]:
    """Well-formed Chat Completions histories."""
    return _made(is_broken=False, most_turns=most_turns)


def any_histories(most_turns: int = 8) -> st.SearchStrategy[list[Any]]:
    """Well-formed ones, and ones with lost, doubled, early and odd rows."""
    return st.one_of(histories(most_turns), _made(is_broken=True, most_turns=most_turns))


def answers_for() -> st.SearchStrategy[tuple[float | None, float | None]]:
    """One answer of a judge; None where it says nothing."""
    p = st.one_of(st.none(), st.sampled_from([0.0, 0.001, 0.3, 0.5, 0.9, 1.0]), st.floats(0, 1))
    return st.tuples(p, p)
