"""Public test kit: scripted judges, small histories, and conformance suites for adapters, stores and judges.

Nothing here imports a test framework. A suite takes a factory and returns a report.
"""

from __future__ import annotations

from jev_engine.testing.conformance import Check, Report, check_adapter, check_judge, check_store
from jev_engine.testing.judges import ScriptedAsker, ScriptedJudge
from jev_engine.testing.transcripts import assistant, call, calls, history, result, system, transcript_of, user

__all__ = [
    "Check",
    "Report",
    "ScriptedAsker",
    "ScriptedJudge",
    "assistant",
    "call",
    "calls",
    "check_adapter",
    "check_judge",
    "check_store",
    "history",
    "result",
    "system",
    "transcript_of",
    "user",
]
