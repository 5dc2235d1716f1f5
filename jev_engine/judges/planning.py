"""From a history to requests: as few as the budgets allow, and no question about a unit its state does not show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from jev_engine.config import EngineConfig
from jev_engine.judges import JudgeRequest
from jev_engine.judges.endpoints import Budget
from jev_engine.questions import WORDING, Wording, fixed_cost, pack, question_cost
from jev_engine.state import HOPELESS, State, fit_state, goal_of, outlook
from jev_engine.tokens import TWENTIETHS
from jev_engine.transcript import ToolCall
from jev_engine.windows import windows

__all__ = ["PlannedRequest", "budget_for", "plan_requests"]

# Estimates are counted high, and still a body must stay below the limit: one part in a hundred is left free.
RESERVE = 0.01
# Without a budget of an endpoint only tokens count; a question is 60 of them at least.
MANY_QUESTIONS = 100_000


class PlannedRequest(NamedTuple):
    """One request: a state and the units asked about."""

    state: State
    calls: Sequence[ToolCall]
    cost: int
    """State and questions, in twentieths of a token."""


class _Rooms(NamedTuple):
    """A budget less the reserve and the longest question, in twentieths."""

    state: int
    request: int
    calls: int


def budget_for(config: EngineConfig, own: Budget | None) -> Budget:
    """What a request may hold: settings the user named, else the endpoint's own budget, else the defaults."""
    named = config.model_fields_set
    is_own = own is not None and config.profile != "reference"
    request = own.request_tokens if own and is_own and "request_tokens" not in named else config.request_tokens
    if own and is_own and "state_tokens" not in named:
        return Budget(min(own.state_tokens, request), request, own.questions)
    return Budget(min(config.state_tokens, request), request, own.questions if own else MANY_QUESTIONS)


def plan_requests(
    request: JudgeRequest, wording: Wording = WORDING, budget: Budget | None = None
) -> list[PlannedRequest]:
    """As few requests as the budgets allow. A unit is asked about only in a state that shows it."""
    candidates = list(request.candidates)
    if not candidates:
        return []
    config = request.config
    budget = budget_for(config, None) if budget is None else budget
    fixed = fixed_cost(wording)
    costs = [question_cost(call, fixed) for call in candidates]
    longest = max(costs)
    room = int(budget.request_tokens * (1 - RESERVE)) * TWENTIETHS
    # The default ceilings are for a state alone; an endpoint counts the longest question in.
    alone = longest if budget.state_tokens > config.state_tokens else 0
    state_room = min(int(budget.state_tokens * (1 - RESERVE)) * TWENTIETHS - alone, room - longest)
    rooms = _Rooms(state_room, room, max(1, budget.questions // 2))
    goal = goal_of(request.transcript, request.goal, request.focus, with_first=config.profile != "reference")
    state = _whole_history(request, wording.context, goal, rooms, costs)
    if state is None:
        shown = windows(
            request.transcript,
            candidates,
            costs,
            context=wording.context,
            goal=goal,
            state_room=rooms.state,
            request_room=rooms.request,
            most=rooms.calls,
        )
    else:
        seen = {call.number for call in state.shown}
        shown = [(state, [call for call in candidates if call.number in seen])]
    price = {call.number: amount for call, amount in zip(candidates, costs, strict=True)}
    planned = []
    for each, asked in shown:
        amounts = [price[call.number] for call in asked]
        planned += [
            PlannedRequest(each, calls, each.cost + sum([price[call.number] for call in calls]))
            for calls in pack(asked, amounts, rooms.request - each.cost, rooms.calls)
        ]
    return planned


def _whole_history(request: JudgeRequest, context: str, goal: str, rooms: _Rooms, costs: Sequence[int]) -> State | None:
    """One state for all requests, as small as it must be for as few of them as possible; None where it does not fit."""
    transcript, config = request.transcript, request.config

    def fit(room: int, outlooked: Sequence[float] | None) -> State | None:
        return fit_state(
            transcript,
            request.pinned_rows,
            config,
            context=context,
            goal=goal,
            budget_tokens=max(0, room // TWENTIETHS),
            costs=outlooked,
        )

    if config.profile == "reference":
        return fit(rooms.state, None)
    expected = outlook(transcript.entries)
    least = min(expected) * HOPELESS
    total, longest = sum(costs), max(costs)
    number = max(1, -(-len(costs) // rooms.calls), -(-total // rooms.request))

    def room_for_state(number: int) -> int:
        """What is left for the state in each of so many requests."""
        return min(rooms.state, rooms.request - (total if number == 1 else total // number + longest))

    if number == 1 and config.show_excerpts and room_for_state(1) < expected[0] <= room_for_state(2):
        # Seeing how results begin and end is worth a second request, not more.
        number = 2
    # Each request of one state holds all of it, each window its own part: one more is worth seeing everything.
    most = 1 + -(-int(total + expected[2]) // rooms.request)
    while least <= rooms.state and number <= most:
        room = room_for_state(number)
        if least <= room and (state := fit(room, expected)) is not None:
            return state
        if room >= rooms.state:
            return None
        number += 1
    return None
