"""What tests of Jev ask over the wire, and the judge that asks it."""

from __future__ import annotations

from typing import Any

from jev_engine.judges.asked import AskedJudge
from jev_engine.judges.jev import JevAsker
from jev_engine.testing import call, history, result, user
from jev_engine.testing.server import FaultServer

__all__ = ["KEY", "QUESTIONS", "STATE", "judge_of", "session"]

KEY = "k-0123456789"
STATE = '{"context":"c","goal":"g","history":[]}'
QUESTIONS = {name: {"type": "noul", "instructions": f"Is {name} needed?"} for name in ("call_t1", "result_t1")}


def session(calls: int = 40, chars: int = 2_000) -> list[dict[str, Any]]:
    """A session with so many calls, each with a result of so many characters."""
    rows = [user("Make the importer faster.")]
    for number in range(calls):
        rows += [call("read", path=f"src/part_{number}.py"), result(f"x_{number} = {number}\n" * (chars // 12))]
    return history(*rows)


def judge_of(server: FaultServer, **options: Any) -> AskedJudge:
    """A judge that asks that server."""
    limit = options.pop("deadline_seconds", 5.0)
    return AskedJudge(JevAsker(server.url, key=KEY, **options), name="jev", deadline_seconds=limit)
