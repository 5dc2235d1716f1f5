"""The parts of the gateway, each by itself: bodies, streams, records, recognition and views."""

from __future__ import annotations

import asyncio
import gzip
import json
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from serve.gateway_lab import engine_of

from jev_engine.ledger import KeyCache, Ledger, LedgerEntry, assign_keys
from jev_engine.serve.gateway.body import BadBody, Body, common_prefix, dump
from jev_engine.serve.gateway.brain import Brain
from jev_engine.serve.gateway.conversations import MOST_HISTORIES, Conversations, Newest
from jev_engine.serve.gateway.hidden import Hidden, Round
from jev_engine.serve.gateway.messages_form import MESSAGES
from jev_engine.serve.gateway.messages_reply import MessagesReply
from jev_engine.serve.gateway.records import MOST_BYTES, Record, Records
from jev_engine.serve.gateway.stream import EventCutter, Tap
from jev_engine.serve.gateway.upstream import forwarded, returned
from jev_engine.serve.gateway.view import view_of
from jev_engine_adapters.anthropic import adapter

words = st.text(max_size=12)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
blocks = st.fixed_dictionaries({"type": st.just("text"), "text": words}, optional={"cache_control": values})
messages = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "system"]), "content": words | st.lists(blocks, max_size=3)}
    ),
    max_size=6,
)
styles = st.fixed_dictionaries(
    {
        "indent": st.sampled_from([None, 0, 2]),
        "ensure_ascii": st.booleans(),
        "separators": st.sampled_from([None, (",", ":")]),
    }
)


@st.composite
def requests(draw):
    """A body with its messages somewhere among other fields."""
    fields = draw(st.dictionaries(words.filter(lambda name: name != "messages"), values, max_size=4))
    places = list(fields.items())
    places.insert(draw(st.integers(0, len(places))), ("messages", draw(messages)))
    return dict(places), draw(styles)


@given(requests())
def test_a_body_is_read_as_json_reads_it(request_and_style):
    """And written back unchanged as the very text it was."""
    value, style = request_and_style
    text = json.dumps(value, **style)
    body = Body.read(text)

    assert {**body.fields, "messages": body.messages} == json.loads(text)
    assert [json.loads(text[start:end]) for start, end in body.spans] == body.messages
    assert body.write({}).text == text
    assert len(set(body.chain)) == len(body.chain)


@given(requests(), st.data())
def test_edits_change_their_rows_and_nothing_else(request_and_style, data):
    """Replaced, gone, or several in the place of one; a field too, and more messages at the end."""
    value, style = request_and_style
    body = Body.read(json.dumps(value, **style))
    rows = data.draw(st.dictionaries(st.integers(0, max(0, len(body.messages) - 1)), st.sampled_from([None, 1, 2])))
    rows = {row: kind for row, kind in rows.items() if row < len(body.messages)}
    new = {"role": "user", "content": "new"}
    texts = {row: None if kind is None else ",".join([dump(new)] * kind) for row, kind in rows.items()}
    names = data.draw(st.sets(st.sampled_from(sorted(body.fields)))) if body.fields else set()
    expected = [
        each
        for row, old in enumerate(body.messages)
        for each in ([old] if row not in rows else [] if rows[row] is None else [new] * rows[row])
    ]

    out = body.write(texts, dict.fromkeys(names, '"changed"'))

    changed = {name: "changed" if name in names else each for name, each in body.fields.items()}
    assert json.loads(out.text) == {**changed, "messages": expected}
    if expected:
        assert json.loads(out.followed_by([new, new]).text)["messages"] == [*expected, new, new]


@given(requests(), messages)
def test_a_body_read_with_an_earlier_one_is_the_same(request_and_style, more):
    """Whatever they share."""
    value, style = request_and_style
    earlier = Body.read(json.dumps(value, **style))
    text = json.dumps({**value, "messages": [*value["messages"], *more]}, **style)
    alone, helped = Body.read(text), Body.read(text, earlier)

    assert (helped.messages, helped.spans, helped.chain) == (alone.messages, alone.spans, alone.chain)
    assert (helped.fields, helped.list_start, helped.list_end) == (alone.fields, alone.list_start, alone.list_end)


@given(words, words, words)
def test_the_common_prefix_is_the_longest(shared, one, other):
    """Found by halving."""
    found = common_prefix(shared + one, shared + other)

    assert found >= len(shared)
    assert (shared + one)[:found] == (shared + other)[:found]
    assert (shared + one)[found : found + 1] != (shared + other)[found : found + 1] or found == min(
        len(shared + one), len(shared + other)
    )


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "1", '{"messages": {}}', '{"messages": [1 2]}', '{"a": 1, "a": 2}', "{}"]
)
def test_what_is_no_request_is_said_to_be_none(text):
    """With one kind of error."""
    with pytest.raises(BadBody):
        Body.read(text)


def test_marks_and_the_shape_of_a_text_make_no_other_history():
    """Clients move cache marks, and turn a text into a block to put one on it."""
    plain = {"role": "user", "content": "Fix it."}
    marked = {"role": "user", "content": [{"type": "text", "text": "Fix it.", "cache_control": {"type": "ephemeral"}}]}
    other = {"role": "user", "content": "Fix it!"}

    chains = [Body.read(dump({"messages": [each]})).chain for each in (plain, marked, other)]

    assert chains[0] == chains[1] != chains[2]


@given(st.lists(st.binary(min_size=1, max_size=30).filter(lambda b: b"\n" not in b and b"\r" not in b)), st.data())
def test_events_are_cut_the_same_however_they_come(lines, data):
    """Byte by byte or all at once, with either line end."""
    end = data.draw(st.sampled_from([b"\n", b"\r\n"]))
    stream = b"".join(b"data: " + line + end + end for line in lines) + b"data: open"
    cutter, got, at = EventCutter(), [], 0
    while at < len(stream):
        size = data.draw(st.integers(1, 20))
        got += cutter.feed(stream[at : at + size])
        at += size

    assert got == [b"data: " + line + end + end for line in lines]
    assert cutter.rest() == b"data: open"


def test_usage_is_seen_in_what_is_compressed():
    """The bytes go on as they are; a copy is looked into."""
    event = b'event: message_start\ndata: {"type": "message_start", "message": {"usage": {"input_tokens": 7}}}\n\n'
    whole = json.dumps({"usage": {"input_tokens": 5, "cache_read_input_tokens": 6}}).encode()
    seen = []
    for is_stream, data in ((True, event), (False, whole), (True, b"data: {broken\n\n" + b'"usage"')):
        tap = Tap(MESSAGES, is_stream=is_stream, decoder=zlib.decompressobj(wbits=31))
        packed = gzip.compress(data)
        for at in range(len(packed)):
            tap.feed(packed[at : at + 1])
        seen.append(tap.end())

    assert seen == [7, 11, None]


def test_headers_of_one_hop_stay_there():
    """Those named in `connection` as well."""
    given_headers = [
        (b"Connection", b"close, X-Mine"), (b"x-mine", b"1"), (b"Accept-Encoding", b"br, gzip"), (b"x-k", b"v"),
        (b"Content-Length", b"9"), (b"Host", b"h"),
    ]  # fmt: skip

    assert forwarded(given_headers, length=5, must_read=False) == [
        (b"x-k", b"v"), (b"accept-encoding", b"gzip"), (b"content-length", b"5")
    ]  # fmt: skip
    assert (b"accept-encoding", b"identity") in forwarded(given_headers, length=5, must_read=True)
    assert returned([(b"Transfer-Encoding", b"chunked"), (b"X-A", b"1"), (b"X-A", b"2")]) == [
        (b"x-a", b"1"),
        (b"x-a", b"2"),
    ]


def test_records_survive_a_torn_line_and_stay_bounded(tmp_path):
    """The newest of a conversation counts; a file that grew too large is written anew."""
    path = tmp_path / "sub" / "records.jsonl"
    large = "x" * (MOST_BYTES // 6)
    call = {"type": "tool_use", "id": "t", "name": "jev_expand", "input": {"id": "jx-0", "why": large}}
    hidden = {b"p" * 16: [Hidden("seen", [Round(2, [(1, call)], [{"x": 1}], closes=True)])]}

    def record(number, edits):
        return Record(f"s{number % 3}", "", edits, frozenset({b"u" * 16}), hidden, offers_expand=True)

    records = Records(path)
    for number in range(6):
        records.save(record(number, (bytes([number]) * 16,)))
    with path.open("a", encoding="utf-8") as file:
        file.write('{"session": "s0", "hi')
    again = Records(path)

    found = again.find([bytes([5]) * 16, b"z" * 16], "")
    assert found.session == "s2"
    assert found.hidden[b"p" * 16][0].rounds[0].calls == [(1, call)]
    assert found.hidden[b"p" * 16][0].rounds[0].results == []
    assert again.find([bytes([1]) * 16], "") is None
    assert path.stat().st_mode & 0o077 == 0
    again.save(record(7, (b"7" * 16,)))
    assert [json.loads(line)["session"] for line in path.read_text(encoding="utf-8").splitlines()] == ["s2", "s1"]
    assert Records(tmp_path).find([], "") is None


def test_a_file_that_cannot_be_written_stops_nothing(tmp_path, caplog):
    """It costs what is remembered over restarts."""
    blocked = tmp_path / "file"
    blocked.write_text("", encoding="utf-8")
    records = Records(blocked / "records.jsonl")
    records.save(Record("s", "", (b"e" * 16,), frozenset(), {}, offers_expand=False))

    assert records.find([b"e" * 16], "").session == "s"
    assert "cannot be written" in caplog.text


def test_histories_are_held_up_to_a_limit():
    """The newest ones; what fits no more goes."""
    held = Newest(len)
    for number in range(3 * MOST_HISTORIES):
        held.put(number, "x")
    assert [held.get(number) for number in (0, 3 * MOST_HISTORIES - 1)] == [None, "x"]
    held.put("long", "x" * 17_000_000)
    held.put("next", "x")

    assert list(held.newest_first()) == ["x"]


def history(calls, text="a line of text\n" * 60):
    """A history of so many calls."""
    rows = [{"role": "user", "content": "Go."}]
    for n in range(calls):
        rows.append(
            {"role": "assistant", "content": [{"type": "tool_use", "id": f"c{n}", "name": "Read", "input": {"n": n}}]}
        )
        rows.append(
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": f"c{n}", "content": f"{n} {text}"}]}
        )
    return rows


def decided(rows, *numbers):
    """A ledger that shortens these calls."""
    transcript = adapter.read(rows)
    assign_keys(transcript, Ledger())
    return Ledger.of(
        [
            LedgerEntry(c.key, "truncate", "jx-1", f"[out {c.number}]", 9)
            for c in transcript.calls
            if c.number in numbers
        ]
    )


@given(st.integers(2, 9), st.integers(1, 6), st.integers(0, 3))
def test_a_view_made_of_the_one_before_is_the_view(calls, more, rewind):
    """As if it had been made from nothing, whatever grew or was taken back."""
    conversations = Conversations(engine_of(), Records())
    rows = history(calls + more)
    ledger = decided(rows, 1, 2, calls)
    first = asyncio.run(conversations.read(dump({"messages": rows[: 2 * calls + 1]})))
    found = asyncio.run(conversations.find(first, "anthropic", ""))
    known = view_of(found, first, ledger, MESSAGES, adapter, KeyCache(), None)
    second = asyncio.run(conversations.read(dump({"messages": rows[: 2 * (calls + more - rewind) + 1]})))

    grown = view_of(found, second, ledger, MESSAGES, adapter, KeyCache(), known)
    alone = view_of(found, second, ledger, MESSAGES, adapter, KeyCache(), None)

    assert (grown.rows, grown.edited) == (alone.rows, alone.edited)


def test_requests_find_their_conversation():
    """Continued, sent again, forked, under another name, and new."""
    conversations = Conversations(engine_of(), Records())

    def find(rows, hint=""):
        body = asyncio.run(conversations.read(dump({"messages": rows})))
        return asyncio.run(conversations.find(body, "anthropic", hint))

    rows = history(4)
    main = find(rows[:3])

    assert find(rows[:3]) is main
    assert find(rows[:5]) is main
    side = find([*rows[:3], {"role": "user", "content": "A title?"}])
    assert side is not main
    assert side.session is main.session
    assert find(rows[:7]) is main
    named = find(rows[:7], hint="name")
    assert named is not main
    assert named.session is main.session
    assert find([{"role": "user", "content": "Else."}]).session is not main.session
    assert len(conversations) == 4


@pytest.mark.parametrize("stop", ["max_tokens", "refusal"])
def test_a_hidden_call_that_was_cut_off_is_left_out(stop):
    """The answer ends as the provider ended it; nothing is answered."""
    reply = MessagesReply("jev_expand")
    events = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}},
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "t", "name": "jev_expand"},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"id": "jx'},
        },
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": stop}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]
    out = [reply.event(b"data: " + json.dumps(event).encode() + b"\n\n") for event in events]

    assert [bool(each) for each in out] == [True, False, False, False, True, True]
    assert not reply.goes_on
    assert reply.hidden() is None


def test_events_of_kinds_unknown_to_us_go_on_untouched():
    """Pings, comments, and whatever a provider adds."""
    reply = MessagesReply("jev_expand")
    for raw in (
        b": comment\n\n",
        b'event: ping\ndata: {"type": "ping"}\n\n',
        b'data: {"type": "new_thing", "index": 3}\n\n',
    ):
        assert reply.event(raw) is raw


def test_a_session_named_in_the_users_id_is_found():
    """As Claude Code writes it, in its older and its newer form; anything odd names none."""
    name = "c03251bc-7c3e-437e-9c32-2ac03fb50742"
    ids = [f"user_abc_account__session_{name}", json.dumps({"device_id": "d", "session_id": name}), "me", 7, None]

    assert [MESSAGES.hint({}, {"metadata": {"user_id": each}}) for each in ids] == [name, name, "", "", ""]
    assert MESSAGES.hint({"x-claude-code-session-id": "../etc"}, {}) == ""


def test_a_brain_needs_no_loop_where_nothing_is_asked():
    """A request before any pass is prepared without waiting."""
    brain = Brain(engine_of(), Records(), deadline_seconds=1)
    raw = dump({"messages": history(1)}).encode()

    prepared = asyncio.run(brain.prepare(MESSAGES, "/v1/messages", {}, raw))

    assert prepared.content is raw
