"""A judge made of an asker: states, questions, packing, strict answers, salvage.

One broken request never costs another one its answers: what arrived stays valid, the rest is undecided.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import anyio

from jev_engine.answers import RawAnswer
from jev_engine.errors import BadAnswer, JudgeUnavailable
from jev_engine.judges import Asker, JudgeRequest, Verdict
from jev_engine.questions import WORDING, Wording, fixed_cost, pack, question_cost, questions_for
from jev_engine.state import State, fit_state, goal_of
from jev_engine.tokens import TWENTIETHS, whole
from jev_engine.transcript import ToolCall
from jev_engine.windows import windows

__all__ = ["AskedJudge", "PlannedRequest", "plan_requests", "read_answers"]

# Estimates are counted high, and still a body must stay below the limit: one part in a hundred is left free.
RESERVE = 0.01


class PlannedRequest(NamedTuple):
    """One request: a state and the units asked about."""

    state: State
    calls: Sequence[ToolCall]
    cost: int
    """State and questions, in twentieths of a token."""


class AskedJudge:
    """Puts the two questions about every candidate to an `Asker`."""

    is_calibrated = False

    def __init__(self, asker: Asker, *, name: str = "asked", wording: Wording = WORDING) -> None:
        self.asker = asker
        self.name = name
        self.wording = wording

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Ask; raises JudgeUnavailable where not one request was answered."""
        planned = plan_requests(request, self.wording)
        verdict = Verdict()
        verdict.requests = len(planned)
        if not planned:
            return verdict
        states = {id(p.state): p.state for p in planned}
        verdict.windows = len(states)
        verdict.state_stage = planned[0].state.stage
        verdict.state_tokens = max(whole(state.cost) for state in states.values())
        verdict.hidden = len(request.candidates) - sum(len(p.calls) for p in planned)
        limiter = anyio.CapacityLimiter(request.config.concurrency)
        async with anyio.create_task_group() as group:
            for each in planned:
                group.start_soon(self._ask, each, verdict, limiter)
        if not verdict.answers and verdict.failures:
            raise JudgeUnavailable(f"no request was answered: {verdict.failures[0]}")
        return verdict

    async def _ask(self, planned: PlannedRequest, verdict: Verdict, limiter: anyio.CapacityLimiter) -> None:
        questions: dict[str, dict[str, Any]] = {}
        for call in planned.calls:
            questions.update(questions_for(call, self.wording))
        async with limiter:
            try:
                answers = await self.asker.ask(planned.state.text, questions)
                verdict.answers.update(read_answers(answers, planned.calls))
            except Exception as error:  # noqa: BLE001  # an asker is somebody else's: its fault voids its request only
                verdict.failures.append(f"{type(error).__name__}: {error}")


def read_answers(answers: Any, calls: Sequence[ToolCall]) -> dict[str, RawAnswer]:
    """Answers by unit key; raises BadAnswer where one breaks the contract. Missing answers stay missing."""
    if not isinstance(answers, Mapping):
        raise BadAnswer(f"answers are {type(answers).__name__}, not a mapping")
    read: dict[str, RawAnswer] = {}
    for call in calls:
        p_call = read_probability(answers.get(f"call_{call.label}"))
        p_result = read_probability(answers.get(f"result_{call.label}"))
        if p_call is not None or p_result is not None:
            read[call.key] = RawAnswer(p_call, p_result)
    return read


def read_probability(answer: Any) -> float | None:
    """One answer as a number from 0 to 1; None where there is none. Anything else raises BadAnswer."""
    if isinstance(answer, Mapping):
        if answer.get("type", "noul") != "noul" or "noul" not in answer:
            raise BadAnswer(f"answer of type {answer.get('type')!r} instead of 'noul'")
        answer = answer["noul"]
        if answer is None:
            raise BadAnswer("answer is null")
    if answer is None:
        return None
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        raise BadAnswer(f"answer is {type(answer).__name__}, not a number")
    if not math.isfinite(answer) or not 0.0 <= answer <= 1.0:
        raise BadAnswer(f"answer {answer!r} is not within 0 and 1")
    return float(answer)


def plan_requests(request: JudgeRequest, wording: Wording = WORDING) -> list[PlannedRequest]:
    """As few requests as the budgets allow. A unit is asked about only in a state that shows it."""
    candidates = list(request.candidates)
    if not candidates:
        return []
    config = request.config
    fixed = fixed_cost(wording)
    costs = [question_cost(call, fixed) for call in candidates]
    longest = max(costs)
    room = int(config.request_tokens * (1 - RESERVE)) * TWENTIETHS
    state_room = min(int(config.state_tokens * (1 - RESERVE)) * TWENTIETHS, room - longest)
    goal = goal_of(request.transcript, request.goal, request.focus, with_first=config.profile != "reference")
    state = fit_state(
        request.transcript,
        request.pinned_rows,
        config,
        context=wording.context,
        goal=goal,
        budget_tokens=max(0, state_room // TWENTIETHS),
    )
    if state is not None:
        seen = {call.number for call in state.shown}
        visible = [(call, amount) for call, amount in zip(candidates, costs, strict=True) if call.number in seen]
        price = {call.number: amount for call, amount in visible}
        return [
            PlannedRequest(state, calls, state.cost + sum(price[call.number] for call in calls))
            for calls in pack([c for c, _ in visible], [a for _, a in visible], room - state.cost)
        ]
    shown = windows(
        request.transcript,
        candidates,
        costs,
        context=wording.context,
        goal=goal,
        state_room=state_room,
        request_room=room,
    )
    amounts = {call.number: amount for call, amount in zip(candidates, costs, strict=True)}
    return [
        PlannedRequest(window, calls, window.cost + sum(amounts[call.number] for call in calls))
        for window, calls in shown
    ]
