"""Characters that are no ordinary ones: line breaks of Unicode in answers, half a surrogate pair in requests."""

from __future__ import annotations

import json

import pytest
from hosts.messages_api import MessagesApi
from hypothesis import given
from hypothesis import strategies as st
from serve.chat_agent import ChatAgent
from serve.chat_api import ChatApi
from serve.gateway_lab import TOOLS, Agent, both, markers

from jev_engine.serve.gateway.body import Body, dump
from jev_engine.serve.gateway.chat_form import CHAT
from jev_engine.serve.gateway.form import encode_event, event_data
from jev_engine.serve.gateway.messages_form import MESSAGES
from jev_engine.serve.gateway.stream import Tap

LONG = "SCRIPT: " + " ;; ".join([*(f"bash cat {n} &&& bash head {n}" for n in range(9)), "text Done."])
BREAKS = "\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029"
"""All that Python takes for a line break and the specification of server-sent events does not."""
HALF = "\ud83d"
TEXTS = st.text(st.characters() | st.sampled_from(BREAKS + HALF + "\ude00\r\n"))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4),
)


@given(VALUES, st.sampled_from([b"\n", b"\r\n", b"\r"]))
def test_every_value_comes_out_of_an_event_as_it_went_in(value, line_end):
    """However the lines of the event end, and with whatever stands in its texts."""
    text = dump({"text": value})
    raw = encode_event("a", text).replace(b"\n", line_end)

    assert event_data(raw) == text


@given(VALUES)
def test_every_value_is_written_as_text_that_can_be_sent(value):
    """And means the same to whoever reads it."""
    written = dump(value).encode()

    assert json.loads(written) == json.loads(json.dumps(value))


def test_a_row_is_written_in_ascii_only_where_it_has_to_be():
    """The provider's cache knows the bytes of all others."""
    assert dump({"a": "é\u2028"}) == '{"a":"é\u2028"}'
    assert dump({"a": f"é{HALF}"}) == '{"a":"\\u00e9\\ud83d"}'
    body = Body.read('{"messages":[{"role":"user","content":"é"},{"role":"user","content":"\\ud83d"}]}')
    assert body.write({1: dump(body.messages[1])}).encode() == body.text.encode()


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_with_line_breaks_of_unicode_reaches_the_client_whole(stream):
    """Put together from two responses, because a call in it was answered here."""
    words = "One" + "two".join(BREAKS) + "three."
    look = f'SCRIPT: text Look{BREAKS}here. &&& tool jev_expand {{"id": "$REFERENCE"}} ;; text {words}'
    with both(MessagesApi()) as (running, _):
        agent = Agent(running.anthropic, stream=stream)
        agent.say(LONG)
        said = agent.say(look)

    assert running.counts["calls answered here"] == 1
    assert running.counts.get("answers broken off", 0) == 0
    assert [block["text"] for block in said["content"]] == [f"Look{BREAKS}here.", words]


@pytest.mark.parametrize("stream", [True, False])
def test_the_same_holds_for_chat_completions(stream):
    """Word by word."""
    words = "One\u2028two\u2029three\x85four."
    with both(ChatApi()) as (running, _):
        agent = ChatAgent(running.openai, stream=stream)
        agent.say("SCRIPT: " + " ;; ".join([*(f"bash cat {n}" for n in range(13)), "text Done."]))
        said = agent.say(f'SCRIPT: text Look. &&& tool jev_expand {{"id": "$REFERENCE"}} ;; text {words}')

    assert words in said["content"]
    assert running.counts["calls answered here"] == 1
    assert running.counts.get("answers broken off", 0) == 0


@pytest.mark.parametrize("character", BREAKS)
@pytest.mark.parametrize(
    ("form", "event"),
    [
        (MESSAGES, {"type": "message_start", "message": {"id": "?", "usage": {"input_tokens": 7}}}),
        (CHAT, {"choices": [{"delta": {"content": "?"}}], "usage": {"prompt_tokens": 7}}),
    ],
)
def test_the_usage_of_such_a_stream_is_read(form, event, character):
    """And that of what follows."""
    tap = Tap(form, is_stream=True)
    text = json.dumps(event, ensure_ascii=False).replace("?", character if character > "\x7f" else "x")

    tap.feed(f"data: {text}\n\n".encode())
    tap.feed(f"data: {text.replace('7', '9')}\n\n".encode())

    assert tap.end() == 9


class Strict(MessagesApi):
    """A provider that takes UTF-8 only."""

    def __init__(self):
        super().__init__(status=self._checked)
        self.refusals = []

    def _checked(self, received):
        try:
            received.body.decode()
        except UnicodeDecodeError as error:
            self.refusals.append(str(error))
            return 400
        return 200


class Escaping(Agent):
    """A client that writes half a pair as an escape, as JavaScript does; its tools cut texts off in the middle."""

    def body(self):
        """In ASCII."""
        fields = {**self.fields, "messages": self.messages, "tools": TOOLS, "stream": self.stream}
        return json.dumps(fields).encode()

    def output(self, call_id):
        """A long text, or a short one beside it that ends in the middle of a character."""
        return super().output(call_id) if call_id.endswith("x0") else f"cut off {HALF}"


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-fable-5-2"])
def test_half_a_surrogate_pair_never_goes_out_as_bytes_that_are_no_text(model, stream):
    """In an edited row, beside a call answered here, in an answer, and where reasoning is taken out."""
    look = f'SCRIPT: text Lo{HALF}ok. &&& tool jev_expand {{"id": "$REFERENCE"}} ;; text Go{HALF}od.'
    with both(Strict()) as (running, api):
        agent = Escaping(running.anthropic, model=model, thinking={"type": "adaptive"}, stream=stream)
        for prompt in (LONG, look, LONG):
            said = agent.say(prompt.replace("Done", f"Do{HALF}ne"))

    assert api.refusals == []
    assert running.counts.get("faults", 0) == 0
    assert running.counts["calls answered here"] == 1
    assert running.counts.get("edited requests refused", 0) == 0
    assert markers(api.turns[-1].json()["messages"]) >= 8
    assert said["content"][-1]["text"] == f"Do{HALF}ne."
    results = [
        block["content"]
        for message in api.turns[-1].json()["messages"]
        if isinstance(message["content"], list)
        for block in message["content"]
        if block["type"] == "tool_result" and block["content"].startswith("cut off")
    ]
    assert set(results) == {f"cut off {HALF}"}
