"""Reasoning behind an edit: gone where the provider would refuse it, untouched where it would not."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor

import pytest
from hosts.messages_api import MessagesApi
from serve.gateway_lab import Agent, SigningApi, both, breaks, markers

from jev_engine.serve.gateway.chat_form import CHAT
from jev_engine.serve.gateway.messages_form import MESSAGES

ADAPTIVE = {"type": "adaptive"}
BY_HAND = {"type": "enabled", "budget_tokens": 1_024}
LONG = "SCRIPT: " + " ;; ".join([*(f"bash cat {n}" for n in range(13)), "text Done."])
LOOK = 'SCRIPT: text Look. &&& tool jev_expand {"id": "$REFERENCE"} ;; bash x ;; text Fine.'


def thoughts(turn):
    """How many thinking blocks a request holds."""
    return turn.body.count(b'"signature"')


def test_no_request_holds_reasoning_that_was_made_for_another_history():
    """Several passes, calls answered in between: the provider checks every signature of every request."""
    with both(SigningApi()) as (running, api):
        agent = Agent(running.anthropic, model="claude-fable-5-2", thinking=ADAPTIVE)
        for prompt in (LONG, LOOK, LONG, LOOK, LONG):
            agent.say(prompt)

    assert api.refusals == []
    assert running.counts["passes committed"] >= 3
    assert running.counts["calls answered here"] == 2
    assert breaks(api) == running.counts["passes committed"]
    assert thoughts(api.turns[-1]) > 0
    assert max(markers(turn.json()["messages"]) for turn in api.turns) >= 8


def test_forks_hold_none_either():
    """Two branches that are both pruned."""
    with both(SigningApi()) as (running, api):
        one = Agent(running.anthropic, model="claude-fable-5-2", thinking=ADAPTIVE)
        one.say(LONG)
        other = Agent(running.anthropic, model="claude-fable-5-2", thinking=ADAPTIVE)
        other.messages = list(one.messages)
        for agent in (one, other, one, other):
            agent.say(LONG)

    assert api.refusals == []
    assert running.counts["passes committed"] >= 4


@pytest.mark.slow
def test_twenty_conversations_at_once_keep_apart():
    """Passes, hidden calls and bound reasoning in all of them, with one first prompt."""

    def work(url):
        agent = Agent(url, model="claude-fable-5-2", thinking=ADAPTIVE)
        for prompt in (LONG, LOOK, LONG):
            agent.say(prompt)
        return agent.messages

    with both(SigningApi()) as (running, api), ThreadPoolExecutor(20) as pool:
        histories = list(pool.map(work, [running.anthropic] * 20))

    assert api.refusals == []
    assert running.counts.get("faults", 0) == 0
    assert running.counts["calls answered here"] == 20
    assert len({json.dumps(history) for history in histories}) == 20
    own = {block["id"] for message in histories[0] for block in blocks_of(message) if block["type"] == "tool_use"}
    for turn in api.turns:
        ids = {block["id"] for m in turn.json()["messages"] for block in blocks_of(m) if block["type"] == "tool_use"}
        assert len(ids & own) in (0, len(ids), len(ids) - 1)


def blocks_of(message):
    return message["content"] if isinstance(message["content"], list) else []


@pytest.mark.parametrize(
    ("model", "thinking"),
    [
        ("claude-sonnet-4-5", ADAPTIVE),
        ("claude-3-7-sonnet-latest", ADAPTIVE),
        ("claude-fable-5-2", {**ADAPTIVE, "block_binding": {"prefix_mismatch_behavior": "drop_block"}}),
    ],
)
def test_reasoning_stays_where_it_is_not_bound(model, thinking):
    """Older models take it with any history, and a client may let the provider drop it."""
    with both(MessagesApi()) as (running, api):
        agent = Agent(running.anthropic, model=model, thinking=thinking)
        agent.say(LONG)

    assert markers(api.turns[-1].json()["messages"]) >= 4
    assert thoughts(api.turns[-1]) == len(api.turns) - 1


def test_thinking_set_by_hand_waits_for_the_end_of_the_turn():
    """In the middle of its calls an answer has to begin with its thinking: no first edit there."""
    with both(MessagesApi()) as (running, api):
        agent = Agent(running.anthropic, model="claude-fable-5-2", thinking=BY_HAND)
        agent.say("SCRIPT: " + " ;; ".join([*(f"bash cat {n}" for n in range(9)), "text Done."]))
        before = markers([turn.json()["messages"] for turn in api.turns])
        agent.say("SCRIPT: text Again.")

    assert before == 0
    assert running.counts["passes put off until the turn ends"] >= 1
    assert markers(api.turns[-1].json()["messages"]) >= 4


def test_a_refused_edit_gives_way_to_the_original():
    """The provider knows something that we do not: it gets what the client wrote, now and from then on."""

    def refuses_markers(received):
        return 400 if b"[jev-engine" in received.body else 200

    with both(MessagesApi(status=refuses_markers)) as (running, api):
        agent = Agent(running.anthropic)
        agent.say(LONG)

    assert running.counts["edited requests refused"] == 1
    assert api.turns[-1].body.count(b"[jev-engine") == 0
    assert json.loads(agent.body())["messages"][:-1] == api.turns[-1].json()["messages"]


def test_a_conversation_whose_first_edit_is_refused_keeps_its_reasoning():
    """The provider took the original, reasoning and all: it goes on being sent."""

    class Picky(SigningApi):
        def _checked(self, received):
            return 400 if b"[jev-engine" in received.body else super()._checked(received)

    with both(Picky()) as (running, api):
        agent = Agent(running.anthropic, model="claude-fable-5-2", thinking=ADAPTIVE)
        agent.say(LONG)
        agent.ask()

    assert running.counts["edited requests refused"] == 1
    assert api.refusals == []
    assert len(api.turns) == 16
    assert api.turns[-1].body == agent.body()


def test_what_was_answered_unedited_is_unbound_later():
    """A fault in between: the answer to the original is bound to it, and goes when edits are back."""
    with both(SigningApi()) as (running, api):
        agent = Agent(running.anthropic, model="claude-fable-5-2", thinking=ADAPTIVE, chars=6_000)
        agent.say(LONG)
        plugins, running.gateway.brain.engine.plugins = running.gateway.brain.engine.plugins, None
        agent.chars = 300
        agent.messages.append({"role": "user", "content": "SCRIPT: bash a ;; bash b ;; text Done."})
        agent.step()
        running.gateway.brain.engine.plugins = plugins
        agent.step()
        agent.step()

    assert running.counts["faults"] == 1
    assert markers(api.turns[-3].json()["messages"]) == 0
    assert markers(api.turns[-1].json()["messages"]) >= 4
    # What was thought about the edited history does not fit the original either: it was refused, and taken without.
    assert len(api.refusals) == 1
    assert running.counts["originals without reasoning"] == 1


def test_a_conversation_that_is_left_alone_goes_on():
    """After a refused edit, with reasoning that is bound to earlier edits: the client never sees an error."""

    class Picky(SigningApi):
        is_picky = False

        def _checked(self, received):
            return 400 if self.is_picky and b"[jev-engine" in received.body else super()._checked(received)

    with both(Picky()) as (running, api):
        agent = Agent(running.anthropic, model="claude-fable-5-2", thinking=ADAPTIVE)
        agent.say(LONG)
        api.is_picky, agent.chars = True, 300
        agent.say("SCRIPT: bash a ;; bash b ;; text Done.")
        tries = len(api.turns)
        agent.say("SCRIPT: bash a ;; bash b ;; text Done.")

    assert running.counts["originals without reasoning"] == 1
    assert len(api.turns) == tries + 3
    assert markers(api.turns[-1].json()["messages"]) == 0
    assert thoughts(api.turns[-1]) >= 5


@pytest.mark.parametrize(
    ("model", "binds"),
    [
        ("claude-fable-5-2", True),
        ("claude-mythos-5.2", True),
        ("anthropic/claude-fable-5.1", True),
        ("claude-opus-4-1-20250805", False),
        ("us.anthropic.claude-sonnet-4-20250514-v1:0", False),
        ("claude-3-5-haiku-latest", False),
        ("claude-2.1", False),
        ("something-new", True),
    ],
)
def test_models_that_bind_reasoning(model, binds):
    """By the version in the name; what is not known counts as bound."""
    assert MESSAGES.binds_reasoning({"model": model}) is binds


def test_chat_completions_bind_it_for_claude_only():
    """Others drop it themselves."""
    assert CHAT.binds_reasoning({"model": "anthropic/claude-fable-5.2"})
    assert not CHAT.binds_reasoning({"model": "anthropic/claude-sonnet-4.5"})
    assert not CHAT.binds_reasoning({"model": "gpt-6"})


def test_a_message_of_reasoning_alone_goes():
    """No empty message is left behind."""
    thought = {"type": "thinking", "thinking": "x", "signature": "y"}
    said = {"role": "assistant", "content": [thought, {"type": "text", "text": "a"}]}

    assert MESSAGES.without_reasoning({"role": "assistant", "content": [thought]}) is None
    assert MESSAGES.without_reasoning(said) == {"role": "assistant", "content": said["content"][1:]}
