"""A refusal that the client has caused itself: it sees the provider's words, and nothing else changes."""

from __future__ import annotations

import pytest
from serve.gateway_lab import Agent, SigningApi, both, markers

ADAPTIVE = {"type": "adaptive"}
MODEL = "claude-fable-5-2"
LONG = "SCRIPT: " + " ;; ".join([*(f"bash cat {n}" for n in range(13)), "text Done."])
SHORT = "SCRIPT: bash a ;; text Fine."


def thoughts(turn):
    """How many thinking blocks a request holds."""
    return turn.body.count(b'"signature"')


class Finicky(SigningApi):
    """A provider that refuses a temperature of 9, in words of the test's own."""

    def __init__(self, status=400, words="temperature: 9 is greater than 1"):
        super().__init__()
        self.mistake = status, words

    def _checked(self, received):
        return self.mistake if received.json().get("temperature") == 9 else super()._checked(received)


@pytest.mark.parametrize(
    ("status", "words", "requests"),
    [
        (400, "temperature: 9 is greater than 1", 2),
        (422, "unprocessable", 2),
        (400, "your credit balance is too low", 2),
        (400, "messages: roles must alternate", 2),
        # A provider that speaks of thinking is asked once more without it, in vain.
        (400, "`temperature` may only be set to 1 when thinking is enabled", 3),
    ],
)
@pytest.mark.parametrize("mistakes", [1, 3])
def test_a_mistake_of_the_client_costs_a_conversation_nothing(status, words, requests, mistakes):
    """It gets the refusal; afterwards everything is sent as if it had not been, thinking included."""
    seen = []
    for is_wrong in (False, True):
        with both(Finicky(status, words)) as (running, api):
            agent = Agent(running.anthropic, model=MODEL, thinking=ADAPTIVE)
            agent.say(LONG)
            agent.say(LONG)
            before = len(api.turns)
            for _ in range(mistakes if is_wrong else 0):
                agent.messages.append({"role": "user", "content": SHORT})
                agent.fields["temperature"] = 9
                refused = agent.ask()
                del agent.fields["temperature"]
                agent.messages.pop()
            tries = len(api.turns) - before
            agent.say(SHORT)
        turns = api.turns[-2:]
        seen.append([(turn.json()["messages"], thoughts(turn), markers(turn.json()["messages"])) for turn in turns])
        assert api.refusals == []
        assert running.counts.get("originals without reasoning", 0) == 0
        assert running.counts.get("edited requests refused", 0) == 0
        assert all(count > 3 and out >= 8 for _, count, out in seen[-1])

    assert refused.status_code == status
    assert words in refused.text
    assert mistakes <= tries <= requests * mistakes
    assert [each[1:] for each in seen[0]] == [each[1:] for each in seen[1]]


def test_reasoning_that_is_taken_out_in_vain_is_not_noted():
    """The provider refuses the history whatever is in it: the next request has all its thinking again."""

    class Down(SigningApi):
        is_down = False

        def _checked(self, received):
            if self.is_down:
                return 400, "Invalid `signature` in `thinking` block"
            return super()._checked(received)

    with both(Down()) as (running, api):
        agent = Agent(running.anthropic, model=MODEL, thinking=ADAPTIVE)
        agent.say(LONG)
        agent.say(LONG)
        before = thoughts(api.turns[-1])
        api.is_down = True
        refused = agent.ask()
        api.is_down = False
        agent.say(SHORT)

    assert refused.status_code == 400
    assert thoughts(api.turns[-1]) >= before > 3
    assert running.counts.get("originals without reasoning", 0) == 0
