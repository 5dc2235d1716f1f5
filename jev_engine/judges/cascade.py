"""Two judges in a row: the one on this machine settles what is clear, the one outside is asked about the rest.

An answer moves the local log-odds by a bounded step. Where the largest step either way would change nothing, the
question is saved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from jev_engine.answers import Belief, RawAnswer
from jev_engine.config import EngineConfig
from jev_engine.decisions import price_of
from jev_engine.judges import JudgeRequest, Verdict
from jev_engine.judges.asked import AskedJudge
from jev_engine.judges.local import LocalJudge
from jev_engine.questions import fixed_cost, question_cost
from jev_engine.sizes import MARKER_TOKENS
from jev_engine.tokens import whole
from jev_engine.transcript import ToolCall, Transcript

__all__ = ["SETTLED", "CascadeJudge", "LocalAnswers"]

LocalAnswers = Callable[[Transcript, Sequence[ToolCall]], Mapping[str, RawAnswer]]
"""What the judge on this machine says, by unit key."""

SETTLED = 0.004
"""A result needed with at most this probability is not asked about. The largest step of an answer (clip 1.5) would
raise it to 0.018: below a third of the 4.9 % of old results that are needed at all (docs/evidence.md)."""


class CascadeJudge:
    """Asks `asked` only about results that `local` does not settle: surely dead, or decided either way.

    Settled units are left without an answer: the engine's own local judge then decides them.
    What was saved is on the verdict: units, tokens of their questions, price.
    """

    is_calibrated = False
    applies_privacy = True

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
        self.version = asked.version
        self.endpoint = asked.endpoint
        self.deadline_seconds = asked.deadline_seconds
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
            p = None if answer is None else answer.p_result
            (settled if p is not None and self._is_settled(call, p, request.config) else unclear).append(call)
        return unclear, settled

    def _is_settled(self, call: ToolCall, p_result: float, config: EngineConfig) -> bool:
        if p_result <= self._settled:
            return True
        if config.policy != "worth":
            return False
        freed = max(0, call.tokens - MARKER_TOKENS)
        lowest, highest = (
            price_of(self.belief.result.step(p_result, raw), call.tokens, freed, config) for raw in (0.0, 1.0)
        )
        # It goes whatever is answered, or it stays whatever is answered.
        return highest <= 1.0 or lowest > 1.0
