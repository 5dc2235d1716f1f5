"""What this machine settles is not asked about, and the saving is reported."""

from __future__ import annotations

from typing import Any

from jev_engine import ContextEngine, EngineConfig
from jev_engine.answers import RawAnswer
from jev_engine.judges.asked import AskedJudge
from jev_engine.judges.cascade import CascadeJudge
from jev_engine.testing import ScriptedAsker, call, history, result, user

MESSAGES = history(
    user("Go."),
    *(row for n in range(20) for row in (call("read", path=f"src/{n}.py"), result(f"line {n}\n" * 400))),
)


class PricedAsker(ScriptedAsker):
    price = 0.042


def sure_of(is_sure: Any) -> Any:
    """A judge on this machine that says for which calls it is sure."""

    def answers(_transcript: Any, candidates: Any) -> dict[str, RawAnswer]:
        return {unit.key: RawAnswer(1.0, 0.001 if is_sure(unit.number) else 0.2) for unit in candidates}

    return answers


async def test_only_what_is_open_is_asked_about() -> None:
    asker = PricedAsker(lambda name, *_: 0.1 + len(name) / 100)
    judge = CascadeJudge(AskedJudge(asker), local=sure_of(lambda number: number % 2 == 0))
    config = EngineConfig(policy="threshold")
    done = await ContextEngine(config=config, judge=judge).compress(MESSAGES, force=True, dry_run=True)

    names = {
        name.removeprefix("call_").removeprefix("result_") for _, questions in asker.requests for name in questions
    }
    sources = {d.label: d.probability.source for d in done.decisions}
    assert names == {f"t{n}" for n in range(1, 18, 2)}
    assert {label for label, source in sources.items() if source == "judge"} == names
    assert done.stats.settled == 8
    assert done.stats.saved_tokens > 8 * 100
    assert done.stats.saved_price == done.stats.saved_tokens * 0.042e-6


async def test_where_everything_is_settled_nobody_is_asked() -> None:
    asker = ScriptedAsker(lambda *_: 0.1)
    judge = CascadeJudge(AskedJudge(asker), local=sure_of(lambda _number: True))
    done = await ContextEngine(judge=judge).compress(MESSAGES, force=True, dry_run=True)

    assert asker.requests == []
    assert done.stats.settled == len(done.decisions)
    assert done.stats.failures == []


async def test_under_worth_only_what_an_answer_could_change_is_asked_about() -> None:
    """Asking about everything gives the same decisions, whatever is answered."""
    sizes = [900, 2_000, 4_000, 9_000, 20_000, 40_000] * 6
    rows = history(
        user("Go."),
        *(
            row
            for n, size in enumerate(sizes)
            for row in (call("read", path=f"{n}.py"), result(f"l {n}\n" * (size // 5)))
        ),
    )
    saved = []
    for extreme in (0.0, 1.0):

        def answer(name: str, *_: Any, extreme: float = extreme) -> float:
            return abs(extreme - (sum(name.encode()) % 30) / 100)

        everything, some = ScriptedAsker(answer), ScriptedAsker(answer)
        asked = await ContextEngine(judge=AskedJudge(everything)).compress(rows, dry_run=True)
        cascade = await ContextEngine(judge=CascadeJudge(AskedJudge(some), settled=0.0)).compress(rows, dry_run=True)
        saved.append(cascade.stats.settled)

        assert [d.action for d in cascade.decisions] == [d.action for d in asked.decisions]
    assert min(saved) > 0
