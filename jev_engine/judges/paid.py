"""Answers that were paid for are not asked for again.

Kept by unit, question version and goal. Answers of the local judge change with age and cost nothing: they are never
kept. A new answer within the scatter of an old one is the old one, so that borderline units do not flip.

>>> paid = PaidAnswers()
>>> paid.add("v1", "goal", {"k": RawAnswer(0.52, 0.31)})
>>> paid.add("v1", "other goal", {"k": RawAnswer(0.49, 0.38)})
>>> paid.get("v1", "other goal", "k")
RawAnswer(p_call=0.52, p_result=0.38)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from jev_engine.answers import RawAnswer

__all__ = ["DEAD_BAND", "PaidAnswers"]

# Repeated answers of jev-1.13.0 to one question scatter by up to 0.022 (five repeats; docs/threshold-analysis.md of
# deadczarvc/hermes-jev-compaction).
DEAD_BAND = 0.03
# With more answers than this all are forgotten, and asked for again.
MOST_ANSWERS = 100_000


class PaidAnswers:
    """The memory of one session."""

    __slots__ = ("_answers", "_latest")

    def __init__(self) -> None:
        self._answers: dict[tuple[str, str, str], RawAnswer] = {}
        self._latest: dict[tuple[str, str], RawAnswer] = {}

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, version: str, goal: str, key: str) -> RawAnswer | None:
        """What was answered about a unit under this goal."""
        return self._answers.get((version, goal, key))

    def known(self, version: str, goal: str, keys: Iterable[str]) -> dict[str, RawAnswer]:
        """The answers there are for these units, by key."""
        found = {key: self._answers.get((version, goal, key)) for key in keys}
        # An answer without the result's half leaves the unit undecided: it is asked about again.
        return {key: answer for key, answer in found.items() if answer is not None and answer.p_result is not None}

    def add(self, version: str, goal: str, answers: Mapping[str, RawAnswer]) -> None:
        """Keep answers; one that differs from an earlier one by no more than scatter counts as the earlier one."""
        if len(self._answers) > MOST_ANSWERS:
            self._answers.clear()
        for key, answer in answers.items():
            before = self._latest.get((version, key))
            if before is not None:
                answer = RawAnswer(  # noqa: PLW2901  # settled by the earlier answer
                    _settled(before.p_call, answer.p_call), _settled(before.p_result, answer.p_result)
                )
            self._answers[version, goal, key] = self._latest[version, key] = answer


def _settled(before: float | None, now: float | None) -> float | None:
    # The margin is for binary fractions: 0.52 and 0.49 differ by a hair more than 0.03.
    return before if before is not None and now is not None and abs(now - before) <= DEAD_BAND + 1e-9 else now
