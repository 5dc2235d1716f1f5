"""Answers that take an odd turn: what cannot be followed goes on as it comes, or ends with an error."""

from __future__ import annotations

import json

import httpx
import pytest
from hosts.messages_api import MessagesApi
from serve.gateway_lab import Agent, both, engine_of

from jev_engine.serve.gateway.answering import MOST_ROUNDS, Answering
from jev_engine.serve.gateway.body import Outgoing
from jev_engine.serve.gateway.brain import Brain, Prepared
from jev_engine.serve.gateway.chat_form import CHAT
from jev_engine.serve.gateway.messages_form import MESSAGES
from jev_engine.serve.gateway.records import Records

pytestmark = pytest.mark.anyio

START = {"type": "message_start", "message": {"content": [], "usage": {"input_tokens": 5, "output_tokens": 1}}}
HIDE = [
    {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "jev_expand"}},
    {
        "type": "content_block_delta",
        "index": 0,
        "delta": {"type": "input_json_delta", "partial_json": '{"id": "jx-0"}'},
    },
    {"type": "content_block_stop", "index": 0},
]
TEXT = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
WORDS = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Done."}}
STOP = {"type": "content_block_stop", "index": 0}


def end(reason):
    return [
        {"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 3}},
        {"type": "message_stop"},
    ]


def events(*made):
    return b"".join(
        b"data: " + (each if isinstance(each, bytes) else json.dumps(each).encode()) + b"\n\n" for each in made
    )


class Bytes(httpx.AsyncByteStream):
    """A body that comes in one piece."""

    def __init__(self, data):
        self.left = [data]

    def __aiter__(self):
        return self

    async def __anext__(self):
        if not self.left:
            raise StopAsyncIteration
        return self.left.pop()


def response(data, *, kind="text/event-stream", status=200):
    return httpx.Response(status, headers={"content-type": kind}, stream=Bytes(data))


class Line:
    """The client's end and the provider's, in memory."""

    def __init__(self, *following):
        self.following = list(following)
        self.sent = []
        self.got = b""
        self.has_ended = False

    async def send_on(self, content, *, must_read):
        assert must_read
        self.sent.append(json.loads(content))
        return self.following.pop(0) if len(self.following) > 1 else self.following[0]

    async def start(self, response, *, changed=False):
        self.status = response.status_code

    async def write(self, data, *, is_last=False):
        self.got += data
        self.has_ended = self.has_ended or is_last


async def run(first, *following, form=MESSAGES):
    brain = Brain(engine_of(), Records(), deadline_seconds=1)
    prepared = Prepared(form, b"")
    body = await brain.conversations.read('{"messages": [{"role": "user", "content": "a"}]}')
    prepared.body, prepared.outgoing = body, body.write({})
    prepared.conversation = await brain.conversations.find(body, form.name, "")
    line = Line(*following)
    await Answering(line, brain, prepared, form.reply("jev_expand")).run(first)
    return line, brain


async def test_a_stream_that_cannot_be_followed_goes_on_as_it_comes():
    """Before anything is hidden, the very bytes are the answer."""
    data = events(START, b"{broken", TEXT, WORDS, STOP, *end("end_turn"))

    line, brain = await run(response(data))

    assert line.got == data
    assert line.has_ended
    assert "answers broken off" not in brain.counts


async def test_blocks_out_of_order_are_not_touched():
    """Whatever a provider means by them."""
    data = events(START, {**TEXT, "index": 7}, *HIDE, *end("tool_use"))

    line, _ = await run(response(data))

    assert line.got == data


async def test_behind_a_hidden_call_what_cannot_be_followed_ends_the_answer():
    """Something is held back already, so it cannot go on as it comes: the client asks again."""
    line, brain = await run(response(events(START, *HIDE, b"{broken", *end("tool_use"))))

    assert line.got.startswith(events(START))
    assert b"event: error" in line.got
    assert line.has_ended
    assert brain.counts["answers broken off"] == 1


async def test_a_block_that_cannot_be_said_again_ends_the_answer():
    """A kind of delta nobody has told us of, and a hidden call behind it."""
    odd = {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "x": 1}}
    hide = [{**event, "index": 1} for event in HIDE]

    line, brain = await run(response(events(START, TEXT, odd, STOP, *hide, *end("tool_use"))))

    assert events(odd) in line.got
    assert brain.counts["answers broken off"] == 1


async def test_such_a_block_without_a_hidden_call_is_no_matter():
    """It goes on, and so does the answer."""
    odd = {"type": "content_block_delta", "index": 0, "delta": {"type": "new_delta", "x": 1}}
    data = events(START, TEXT, odd, STOP, *end("end_turn"))

    line, _ = await run(response(data))

    assert line.got == data


async def test_a_model_that_asks_without_end_is_stopped():
    """After sixteen rounds, with an error."""
    again = events(START, *HIDE, *end("tool_use"))

    class Endless(Line):
        async def send_on(self, content, *, must_read):
            self.sent.append(content)
            return response(again)

    brain = Brain(engine_of(), Records(), deadline_seconds=1)
    prepared = Prepared(MESSAGES, b"")
    prepared.outgoing = Outgoing('{"messages": [{}', "]}")
    body = await brain.conversations.read('{"messages": [{"role": "user", "content": "a"}]}')
    prepared.body, prepared.conversation = body, await brain.conversations.find(body, "anthropic", "")
    line = Endless(None)
    await Answering(line, brain, prepared, MESSAGES.reply("jev_expand")).run(response(again))

    assert len(line.sent) == MOST_ROUNDS
    assert line.got == events(START) + line.got[len(events(START)) :]
    assert b"event: error" in line.got


async def test_a_whole_answer_that_is_no_object_is_passed_back():
    """Bytes and all."""
    line, _ = await run(response(b"[1,  2]", kind="application/json"))

    assert line.got == b"[1,  2]"


async def test_a_whole_answer_without_hidden_calls_is_the_very_bytes():
    """Blanks included."""
    data = b'{ "content": [ {"type": "text", "text": "a"} ], "stop_reason": "end_turn", "usage": {} }'

    line, _ = await run(response(data, kind="application/json"))

    assert line.got == data


async def test_several_answers_of_chat_completions_are_not_touched():
    """The tool is not offered where they are asked for."""
    data = json.dumps({"choices": [{"message": {"content": "a"}}, {"message": {"content": "b"}}]}).encode()
    chunks = events({"choices": [{"index": 1, "delta": {}}, {"index": 0, "delta": {}}]}, b"[DONE]")

    whole, _ = await run(response(data, kind="application/json"), form=CHAT)
    stream, _ = await run(response(chunks), form=CHAT)

    assert whole.got == data
    assert stream.got == chunks


async def test_a_chunk_that_holds_hidden_and_shown_calls_is_divided():
    """Numbers are counted anew for the client."""
    hidden = {
        "index": 0,
        "id": "h",
        "type": "function",
        "function": {"name": "jev_expand", "arguments": '{"id": "jx-0"}'},
    }
    shown = {"index": 1, "id": "s", "type": "function", "function": {"name": "Bash", "arguments": "{}"}}
    data = events(
        {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "tool_calls": [hidden, shown]}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
        b"[DONE]",
    )

    line, brain = await run(response(data), form=CHAT)

    first = json.loads(line.got.split(b"\n\n")[0][6:])
    assert first["choices"][0]["delta"] == {"role": "assistant", "tool_calls": [{**shown, "index": 0}]}
    assert line.got.endswith(b'"finish_reason": "tool_calls"}]}\n\ndata: [DONE]\n\n')
    assert brain.counts["calls answered here"] == 1


def test_calls_may_leave_with_their_results():
    """Where the settings say so and no thinking binds them: both messages go, and the rest pairs."""
    engine = engine_of(policy="threshold", keep_result=1.0, keep_call=1.0, guards=False, extra_pins=False)
    with both(MessagesApi(), engine=engine) as (_, api):
        Agent(_.anthropic).say("SCRIPT: " + " ;; ".join([*(f"bash cat {n}" for n in range(13)), "text Done."]))

    sent = api.turns[-1].json()["messages"]
    blocks = [block for message in sent if isinstance(message["content"], list) for block in message["content"]]
    made = [block["id"] for block in blocks if block["type"] == "tool_use"]
    assert made == [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
    assert len(made) < 13
    assert [message["role"] for message in sent] == ["user", *["assistant", "user"] * len(made)]
