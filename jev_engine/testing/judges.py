"""Judges and askers that answer from a script: tests replace the edge, never the engine."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from jev_engine.answers import RawAnswer
from jev_engine.errors import JudgeUnavailable
from jev_engine.judges import JudgeRequest, Verdict
from jev_engine.transcript import ToolCall

__all__ = ["ScriptedAsker", "ScriptedJudge"]

Script = (
    Mapping[str, tuple[float | None, float | None]] | Callable[[ToolCall], tuple[float | None, float | None] | None]
)


class ScriptedJudge:
    """Answers `(p_call, p_result)` by label (`t1`), by call id, or by a function of the unit.

    Units the script does not know stay undecided. `fails=True` raises JudgeUnavailable instead.
    """

    name = "scripted"

    def __init__(self, script: Script, *, is_calibrated: bool = True, fails: bool = False) -> None:
        self.script = script
        self.is_calibrated = is_calibrated
        self.fails = fails
        self.asked: list[list[str]] = []
        """Labels of the candidates, by pass."""

    def answer(self, call: ToolCall) -> tuple[float | None, float | None] | None:
        """The scripted answer for one unit."""
        if callable(self.script):
            return self.script(call)
        known = self.script.get(call.label)
        return self.script.get(str(call.call_id)) if known is None else known

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Answer from the script."""
        self.asked.append([call.label for call in request.candidates])
        if self.fails:
            raise JudgeUnavailable("the script says that nobody answers")
        verdict = Verdict()
        verdict.requests = 1
        for call in request.candidates:
            known = self.answer(call)
            if known is not None:
                verdict.answers[call.key] = RawAnswer(*known)
        return verdict


class ScriptedAsker:
    """Answers questions by a function of `(question id, question, state)`; keeps what it was asked."""

    def __init__(self, script: Callable[[str, Mapping[str, Any], dict[str, Any]], Any]) -> None:
        self.script = script
        self.requests: list[tuple[dict[str, Any], dict[str, Any]]] = []
        """State and questions of each request, parsed."""

    async def ask(self, state: str, questions: Mapping[str, Mapping[str, Any]]) -> Mapping[str, Any]:
        """Answer from the script; None leaves a question without an answer."""
        parsed = json.loads(state)
        self.requests.append((parsed, dict(questions)))
        answers = {name: self.script(name, question, parsed) for name, question in questions.items()}
        return {name: answer for name, answer in answers.items() if answer is not None}
