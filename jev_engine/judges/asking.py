"""One question to a judge that may be anybody's: with a deadline, and of its answers only what can be used.

An answer that is none costs the judge that unit, and no other; a verdict that is none costs it the pass.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from numbers import Real
from types import NoneType
from typing import Any

import anyio

from jev_engine.answers import RawAnswer
from jev_engine.errors import BadAnswer, JudgeUnavailable
from jev_engine.judges import DEADLINE_SECONDS, Judge, JudgeRequest, Verdict
from jev_engine.transcript import ToolCall

__all__ = ["answered", "usable"]

GRACE_SECONDS = 5.0
"""On top of the deadline a judge keeps by itself, which begins after cleaning and planning: 20,000 calls take 3 s."""
NUMBERS = ("requests", "sent_bytes", "windows", "state_tokens", "hidden", "input_tokens", "settled", "saved_tokens")
KINDS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(NUMBERS, int),
    **dict.fromkeys(("price", "saved_price"), (int, float, NoneType)),
    **dict.fromkeys(("state_stage", "model", "privacy"), (str, NoneType)),
    **dict.fromkeys(("failures", "warnings"), (list, tuple)),
    "windows_of": dict,
}
"""What else stands in a verdict: somebody else's code may have put anything there."""


async def answered(judge: Judge, request: JudgeRequest) -> Verdict:
    """What a judge says, within `judge.deadline_seconds` and some grace where it has that, else in 10 seconds.

    Raises JudgeUnavailable after that, BadAnswer for what is no verdict, and whatever the judge raises. A judge that
    never awaits holds the loop, and no deadline reaches it.
    """
    own = getattr(judge, "deadline_seconds", None)
    seconds = own + GRACE_SECONDS if isinstance(own, int | float) else DEADLINE_SECONDS
    sent: Any = None
    given: Any = None
    with anyio.move_on_after(seconds) as scope:
        try:
            given = await judge.judge(request)
        except BaseException as error:
            sent = getattr(error, "verdict", None)
            raise
    if scope.cancelled_caught:
        raise JudgeUnavailable(f"judge {judge.name!r} did not answer within {seconds:g} s", verdict=sent)
    return usable(given, request.candidates)


def usable(verdict: Any, asked: Sequence[ToolCall]) -> Verdict:
    """The verdict with what can be used of it; what cannot is among its failures. Raises BadAnswer for no verdict."""
    answers = getattr(verdict, "answers", None)
    if not isinstance(verdict, Verdict) or not isinstance(answers, Mapping):
        raise BadAnswer(f"a judge returns a Verdict with answers by unit key, not {type(verdict).__name__}")
    taken: Verdict = copy.copy(verdict)  # a judge may give the same one again
    blank, faults = Verdict(), []
    for name, kinds in KINDS.items():
        if not isinstance(getattr(taken, name, None), kinds):
            faults.append(f"BadAnswer: {name} of the verdict is of another type")
            setattr(taken, name, getattr(blank, name))
    taken.failures = [str(each) for each in taken.failures]
    taken.warnings = [str(each) for each in taken.warnings]
    odd = as_given = 0
    for call in asked:
        given = answers.get(call.key)
        if given is not None:
            read = _read(given)
            as_given += read is given
            odd += read is None
    if as_given < len(answers):  # else all are as they should be, and 20,000 need no copy
        taken.answers = {call.key: read for call in asked if (read := _read(answers.get(call.key))) is not None}
    if odd:
        faults.append(
            f"BadAnswer: not usable: {odd:,} of {len(asked):,}; an answer is RawAnswer(p_call, p_result), each 0 to 1"
        )
    open_units = len(asked) - taken.hidden - taken.settled
    if open_units > 0 and not (odd or taken.failures) and all(a.p_result is None for a in taken.answers.values()):
        faults.append(f"BadAnswer: not one usable answer; asked about: {open_units:,}")
    taken.failures += faults
    return taken


def _read(given: Any) -> RawAnswer | None:
    """An answer about a unit; None where its half about the result is no probability, and not left out either."""
    if given.__class__ is RawAnswer:  # nearly every one, and two floats
        p_call, p_result = given
        if p_call.__class__ is p_result.__class__ is float and 0.0 <= p_call <= 1.0 and 0.0 <= p_result <= 1.0:
            return given
    elif not isinstance(given, tuple | list) or len(given) != len(RawAnswer._fields):
        return None
    p_call, p_result = given
    if p_result is not None and not _is_probability(p_result):
        return None
    if p_call is not None and not _is_probability(p_call):
        p_call = None
    if given.__class__ is RawAnswer and p_call is given[0]:
        return given
    return RawAnswer(None if p_call is None else float(p_call), None if p_result is None else float(p_result))


def _is_probability(value: Any) -> bool:
    # Not a number compares with nothing, so it fails here too. Nearly all are plain floats, and told by a look.
    is_number = value.__class__ is float or (isinstance(value, Real) and not isinstance(value, bool))
    return is_number and 0.0 <= float(value) <= 1.0
