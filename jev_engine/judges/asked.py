"""A judge made of an asker: clean states, questions, packing, strict answers, salvage.

One broken request never costs another one its answers: what arrived stays valid, the rest is undecided.
"""

from __future__ import annotations

import math
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio

from jev_engine.answers import Belief, RawAnswer
from jev_engine.errors import BadAnswer, JudgeUnavailable, RequestTooLarge
from jev_engine.judges import DEADLINE_SECONDS, Asker, JudgeRequest, Verdict
from jev_engine.judges.belief import prior_for
from jev_engine.judges.endpoints import Budget
from jev_engine.judges.planning import PlannedRequest, budget_for, plan_requests
from jev_engine.judges.privacy import Cleaner, Redactor
from jev_engine.questions import WORDING, Wording, questions_for
from jev_engine.redact import redact
from jev_engine.state import quick_sizes
from jev_engine.tokens import whole
from jev_engine.transcript import ToolCall

__all__ = ["AskedJudge", "PlannedRequest", "plan_requests", "read_answers"]

HALVINGS = 4
"""How often a request that is too large is made smaller: to a sixteenth at least."""
SIMILAR_SIZE = 0.8
"""A request of at least this share of one that was refused for its size is not even tried."""
FAULT_CHARS = 200
"""Of an error's words that are told."""
CHARS_PER_TOKEN = 4
"""For a first look at whether results have room: real ones have 3 to 4 and are quoted besides."""


class AskedJudge:
    """Puts the two questions about every candidate to an `Asker`.

    What an asker may have beside `ask`, and this judge uses: `budget`, `price` (dollars for a million tokens),
    `model`, `url` (where it sends to), and `connect()`, a block that gives the asker of one pass. That one,
    or the asker itself, may count what it really sends: `sent` requests and `sent_bytes`.
    `redactors` come on top of the built-in one; `belief` says how far answers are believed.
    """

    is_calibrated = False
    applies_privacy = True

    def __init__(
        self,
        asker: Asker,
        *,
        name: str = "asked",
        wording: Wording = WORDING,
        deadline_seconds: float = DEADLINE_SECONDS,
        redactors: Sequence[Redactor] = (),
        belief: Belief | None = None,
    ) -> None:
        self.asker = asker
        self.name = name
        self.wording = wording
        self.deadline_seconds = deadline_seconds
        self.model: str | None = getattr(asker, "model", None)
        self.version = f"{self.model or name}/{wording.version}"
        """What answers are kept under: those of another model, or to other words, are other answers."""
        self.belief = belief or prior_for(self.model)
        self.endpoint: str | None = getattr(asker, "url", None)
        self._budget: Budget | None = getattr(asker, "budget", None)
        self.price: float | None = getattr(asker, "price", None)
        self._cleaner = Cleaner(redactors)

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Ask; raises JudgeUnavailable where not one request was answered, JudgeError where redaction failed."""
        verdict = Verdict()
        verdict.privacy = request.config.privacy
        clean = self.clean(request)
        planned = self.plan(clean)
        if not planned:
            return verdict
        states = {id(p.state): p.state for p in planned}
        verdict.windows = len(states)
        places = {state: place for place, state in enumerate(states, 1)}
        verdict.windows_of = {call.key: places[id(p.state)] for p in planned for call in p.calls}
        verdict.state_stage = planned[0].state.stage
        verdict.state_tokens = max(whole(state.cost) for state in states.values())
        verdict.hidden = len(clean.candidates) - sum(len(p.calls) for p in planned)
        async with _connected(self.asker) as asker:
            with _counted(asker, verdict):
                await _Asking(self, asker, clean, verdict).all(planned)
        if self.price is not None:
            verdict.price = verdict.input_tokens * self.price / 1e6
        if not verdict.answers and verdict.failures:
            raise JudgeUnavailable(f"no request was answered: {verdict.failures[0]}", verdict=verdict)
        return verdict

    def clean(self, request: JudgeRequest) -> JudgeRequest:
        """The request without secrets; raises JudgeError where a redactor fails."""
        config = request.config
        may_show = config.show_excerpts and config.privacy != "sizes" and config.profile != "reference"
        if may_show and config.privacy == "excerpts":
            # Results are cleaned only where there is room to show them.
            chars = quick_sizes(request.transcript.entries)[0]
            may_show = chars <= CHARS_PER_TOKEN * budget_for(config, self._budget).state_tokens
        return self._cleaner.request(request, shows_results=may_show)

    def plan(self, clean: JudgeRequest, budget: Budget | None = None) -> list[PlannedRequest]:
        """The requests a clean request becomes."""
        return plan_requests(clean, self.wording, budget or budget_for(clean.config, self._budget))


@asynccontextmanager
async def _connected(asker: Any) -> AsyncIterator[Any]:
    """The asker for one pass: its connection where it has one, else itself."""
    if hasattr(asker, "connect"):
        async with asker.connect() as line:
            yield line
    else:
        yield asker


@contextmanager
def _counted(asker: Any, verdict: Verdict) -> Iterator[None]:
    """What an asker sends meanwhile by its own count, on the verdict; else what it was asked stays there.

    A cancellation carries the verdict along: what was sent was sent.
    """
    requests, size = getattr(asker, "sent", None), getattr(asker, "sent_bytes", None)
    try:
        yield
    except BaseException as error:
        error.verdict = verdict  # type: ignore[attr-defined]  # as of a JudgeError
        raise
    finally:
        if requests is not None:
            verdict.requests = asker.sent - requests
        if size is not None:
            verdict.sent_bytes = asker.sent_bytes - size


class _Asking:
    """The requests of one pass under way."""

    def __init__(self, judge: AskedJudge, asker: Any, clean: JudgeRequest, verdict: Verdict) -> None:
        self._judge = judge
        self._asker = asker
        self._clean = clean
        self._verdict = verdict
        self._too_large: list[ToolCall] = []
        self._refused_cost = math.inf
        self._open = 0

    async def all(self, planned: list[PlannedRequest]) -> None:
        """Send everything before the deadline; what is too large is sent again in smaller requests."""
        budget = budget_for(self._clean.config, self._judge._budget)  # noqa: SLF001  # same file
        limiter = anyio.CapacityLimiter(self._clean.config.concurrency)
        with anyio.move_on_after(self._judge.deadline_seconds) as scope:
            for _ in range(HALVINGS + 1):
                self._too_large, self._refused_cost = [], math.inf
                self._open = len(planned)
                async with anyio.create_task_group() as group:
                    for each in planned:
                        group.start_soon(self._one, each, limiter)
                if not self._too_large:
                    return
                budget = budget.halved()
                planned = self._judge.plan(self._clean._replace(candidates=self._too_large), budget)
        if scope.cancelled_caught:
            self._note(f"Deadline: {self._open} requests without an answer after {self._judge.deadline_seconds:g} s")
        elif self._too_large:
            size = f"{budget.request_tokens:,} tokens"
            self._note(f"RequestTooLarge: {len(self._too_large)} units are refused even in requests of {size}")

    async def _one(self, planned: PlannedRequest, limiter: anyio.CapacityLimiter) -> None:
        async with limiter:
            if planned.cost >= SIMILAR_SIZE * self._refused_cost:
                # About as large as one that was refused a moment ago.
                self._too_large.extend(planned.calls)
                self._open -= 1
                return
            questions: dict[str, dict[str, Any]] = {}
            for call in planned.calls:
                questions.update(questions_for(call, self._judge.wording))
            self._verdict.requests += 1
            self._verdict.sent_bytes += len(planned.state.text.encode("utf-8", "surrogatepass"))
            try:
                answers = await self._asker.ask(planned.state.text, questions)
                self._verdict.answers.update(read_answers(answers, planned.calls))
                self._count(answers, planned)
            except RequestTooLarge:
                self._refused_cost = min(self._refused_cost, planned.cost)
                self._too_large.extend(planned.calls)
            except Exception as error:  # noqa: BLE001  # an asker is somebody else's: its fault voids its request only
                self._note(f"{type(error).__name__}: {error}")
            self._open -= 1

    def _count(self, answers: Any, planned: PlannedRequest) -> None:
        verdict, judge = self._verdict, self._judge
        tokens = getattr(answers, "input_tokens", None)
        verdict.input_tokens += tokens if tokens is not None else whole(planned.cost)
        model = getattr(answers, "model", None)
        if model and verdict.model is None:
            verdict.model = model
            if judge.model and model != judge.model:
                verdict.warnings.append(f"{model} answered, {judge.model} was asked")

    def _note(self, fault: str) -> None:
        # The text of somebody else's error may repeat a header or what was sent.
        self._verdict.failures.append(redact("".join(c for c in fault if c.isprintable()))[:FAULT_CHARS])


def read_answers(answers: Any, calls: Sequence[ToolCall]) -> dict[str, RawAnswer]:
    """Answers by unit key; raises BadAnswer where one breaks the contract. Missing answers stay missing."""
    if not isinstance(answers, Mapping):
        raise BadAnswer(f"answers are {type(answers).__name__}, not a mapping")
    read: dict[str, RawAnswer] = {}
    for call in calls:
        p_call = read_probability(answers.get(f"call_t{call.number}"))
        p_result = read_probability(answers.get(f"result_t{call.number}"))
        if p_call is not None or p_result is not None:
            read[call.key] = RawAnswer(p_call, p_result)
    return read


def read_probability(answer: Any) -> float | None:
    """One answer as a number from 0 to 1; None where there is none. Anything else raises BadAnswer."""
    if answer.__class__ is float and 0.0 <= answer <= 1.0:
        return answer
    if isinstance(answer, Mapping):
        if answer.get("type", "noul") != "noul" or "noul" not in answer:
            raise BadAnswer("answer is of another type than 'noul'")
        answer = answer["noul"]
        if answer is None:
            raise BadAnswer("answer is null")
    if answer is None:
        return None
    if isinstance(answer, bool) or not isinstance(answer, (int, float)):
        raise BadAnswer(f"answer is {type(answer).__name__}, not a number")
    # Not a number compares with nothing, so it fails here too.
    if not 0.0 <= answer <= 1.0:
        raise BadAnswer("answer is not within 0 and 1")
    return float(answer)
