"""Two judges in a row: the one on this machine settles what is clear, the one outside is asked about the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jev_engine.answers import Belief, RawAnswer
from jev_engine.judges import JudgeRequest, Verdict
from jev_engine.judges.asked import AskedJudge
from jev_engine.judges.local import LocalJudge
from jev_engine.questions import fixed_cost, question_cost
from jev_engine.tokens import whole
from jev_engine.transcript import ToolCall, Transcript

__all__ = ["SETTLED", "CascadeJudge", "LocalAnswers"]

LocalAnswers = Callable[[Transcript, Sequence[ToolCall]], Mapping[str, RawAnswer]]
"""What the judge on this machine says, by unit key."""

SETTLED = 0.004
"""A result needed with at most this probability is not asked about. The largest step of an answer (clip 1.5) would
raise it to 0.018: below a third of the 4.9 % of old results that are needed at all [reference/evaluation.md 4]."""


class CascadeJudge:
    """Asks `asked` only about results that `local` does not settle.

    Settled units are left without an answer: the engine's own local judge then decides them.
    What was saved is on the verdict: units, tokens of their questions, price.
    """

    is_calibrated = False

    def __init__(
        self,
        asked: AskedJudge,
        *,
        local: LocalAnswers | None = None,
        settled: float = SETTLED,
        name: str = "cascade",
    ) -> None:
        self.asked = asked
        self.name = name
        self.belief: Belief = asked.belief
        # The engine takes this one for its own, so that facts about texts are worked out once.
        self.local = LocalJudge()
        self._local = self.local.answers if local is None else local
        self._settled = settled

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Ask about what is open; raises what `AskedJudge.judge` raises."""
        unclear, settled = self.split(request)
        verdict = await self.asked.judge(request._replace(candidates=unclear))
        fixed = fixed_cost(self.asked.wording)
        verdict.settled = len(settled)
        verdict.saved_tokens = whole(sum([question_cost(call, fixed) for call in settled]))
        if self.asked.price is not None:
            verdict.saved_price = verdict.saved_tokens * self.asked.price / 1e6
        return verdict

    def split(self, request: JudgeRequest) -> tuple[list[ToolCall], list[ToolCall]]:
        """Candidates to ask about, and those that are settled."""
        known = self._local(request.transcript, request.candidates)
        unclear: list[ToolCall] = []
        settled: list[ToolCall] = []
        for call in request.candidates:
            answer = known.get(call.key)
            sure = answer is not None and answer.p_result is not None and answer.p_result <= self._settled
            (settled if sure else unclear).append(call)
        return unclear, settled
