"""When a pass is due: the whole state table, by rules and by a machine that walks through it at random."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jev_engine import make_config
from jev_engine.triggers import MOST_DOUBLINGS, Trigger

WINDOW = 100_000


def trigger(**options) -> Trigger:
    """A trigger at 60 % of a window of 100,000 tokens."""
    return Trigger(make_config(**{"window_tokens": WINDOW, "trigger_share": 0.6, **options}))


def test_the_output_reserve_counts():
    """What the model needs for its answer is no room for history."""
    plain, reserved = trigger(), trigger(output_reserve_tokens=20_000)
    for each in (plain, reserved):
        each.report(48_000)

    assert not plain.due()
    assert reserved.due()


def test_real_usage_beats_an_estimate():
    """A27: an estimate of 90,000 does not count where the host has reported 50,000."""
    known = trigger()
    known.report(50_000)

    assert not known.due(estimated_tokens=90_000)


def test_after_a_pass_usage_is_unknown_until_the_host_reports_it():
    """A27: usage 60,000 reported, a pass, no report yet, estimate 90,000, asked again."""
    waits = trigger()
    waits.report(60_000)
    waits.ended("committed", tokens_after=40_000)
    before = waits.due(estimated_tokens=90_000)
    waits.report(71_000)

    assert not before
    assert waits.due()


def test_what_came_in_since_the_report_counts_on_top_of_it():
    """A result that has just arrived is in the host's estimate, and not yet in any report."""
    known = trigger()
    known.report(50_000)

    assert not known.due(grown_tokens=9_000)
    assert known.due(grown_tokens=11_000)


def test_a_host_that_does_not_count_is_not_waited_for():
    """After a pass an empty report ends the wait: estimates count again."""
    waits = trigger()
    waits.ended("committed", tokens_after=10_000)
    before = waits.due(estimated_tokens=70_000)
    waits.report_nothing()

    assert not before
    assert waits.due(estimated_tokens=70_000)


def test_without_any_report_the_estimate_counts():
    """A host that never reports usage is served by estimates."""
    fresh = trigger()

    assert not fresh.due()
    assert fresh.due(estimated_tokens=61_000)


def test_passes_that_free_nothing_are_tried_less_and_less_often_but_again():
    """A28: each no-op in a row doubles the growth that the next pass waits for, up to four tenths of the window."""
    idle = trigger(trigger_share=0.3)
    due_at = []
    tokens = 30_000
    for _ in range(4):
        while not (idle.report(tokens) or idle.due()):
            tokens += 1_000
        due_at.append(tokens)
        idle.ended("nothing_to_prune", tokens_after=tokens)
    steps = [b - a for a, b in pairwise(due_at)]

    assert steps[:2] == [20_000, 40_000]
    # The fourth is not asked to wait beyond the share at which a pass is forced.
    assert due_at[3] <= 0.95 * WINDOW


def test_good_passes_that_follow_each_other_at_once_are_backed_off_too():
    """A28: twelve passes in twelve minutes, each freeing four tenths, are not twelve reasons for a thirteenth."""
    busy = trigger()
    floors = []
    for minute in range(12):
        busy.report(65_000)
        if busy.due():
            busy.ended("committed", tokens_after=39_000, now=60.0 * minute)
            floors.append(minute)

    assert len(floors) <= 3


def test_a_slow_rhythm_recovers():
    """Passes far apart wait for the plain growth of a tenth again."""
    calm = trigger()
    for hour in range(3):
        calm.report(70_000)
        calm.ended("committed", tokens_after=40_000, now=3_600.0 * hour)
    calm.report(61_000)

    assert calm.due()


def test_overflow_forces_at_once_and_once():
    """A refusal of the provider is answered whatever the counters say."""
    full = trigger()
    full.report(20_000)
    full.overflow()
    first = full.due()
    full.ended("committed", tokens_after=15_000)

    assert first.is_forced
    assert not full.due()


def test_a_full_window_is_tried_again_only_after_it_has_grown():
    """A pass that freed nothing at 96 % is not repeated on every turn."""
    stuck = trigger()
    stuck.report(96_000)
    forced = stuck.due()
    stuck.ended("nothing_to_prune", tokens_after=96_000)
    same = stuck.due()
    stuck.report(97_100)

    assert forced.is_forced
    assert not same
    assert stuck.due().is_forced


def test_a_model_switch_counts_at_once():
    """A smaller window makes a pass due now."""
    switched = trigger()
    switched.report(50_000)
    before = switched.due()
    switched.switch_model(64_000)

    assert not before
    assert switched.due()


@pytest.mark.parametrize("nonsense", [0, -5])
def test_a_report_that_is_no_number_of_tokens_says_nothing(nonsense):
    """Hosts send -1 and 0 where they do not know."""
    unsure = trigger()
    unsure.report(70_000)
    unsure.report(nonsense)

    assert unsure.usage_tokens == 70_000


class AnyOrder(RuleBasedStateMachine):
    """Reports, estimates, passes, overflows and switches in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.trigger = trigger()
        self.now = 0.0

    @rule(tokens=st.integers(-1, 150_000))
    def report(self, tokens):
        self.trigger.report(tokens)

    @rule(
        outcome=st.sampled_from(["committed", "nothing_to_prune", "not_worth_it", "over_capacity", "failed"]),
        after=st.integers(0, 120_000),
        later=st.floats(0, 10_000),
    )
    def end_a_pass(self, outcome, after, later):
        self.now += later
        self.trigger.ended(outcome, tokens_after=after, now=self.now)

    @rule()
    def overflow(self):
        self.trigger.overflow()

    @rule(window=st.integers(1, 300_000))
    def switch(self, window):
        self.trigger.switch_model(window)

    @invariant()
    def forced_means_due_and_every_answer_has_a_reason(self):
        due = self.trigger.due(estimated_tokens=50_000)

        assert due.is_due or not due.is_forced
        assert due.reason

    @invariant()
    def a_full_window_that_grows_is_always_answered_in_the_end(self):
        probe = trigger()
        probe._doublings = self.trigger._doublings
        probe._floor_tokens = self.trigger._floor_tokens
        probe.report(WINDOW + 50_000 + (self.trigger._floor_tokens or 0))

        assert probe.due().is_due
        assert self.trigger._doublings <= MOST_DOUBLINGS


AnyOrder.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestAnyOrder = AnyOrder.TestCase
