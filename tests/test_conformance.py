"""The conformance suites pass what ships and name what is broken."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import neutral_adapter
import pytest
from claude_code_rows import Session

from jev_engine.answers import RawAnswer
from jev_engine.errors import JudgeUnavailable
from jev_engine.host import RowChange
from jev_engine.judges import JudgeRequest, Verdict
from jev_engine.judges.asked import AskedJudge
from jev_engine.store import Original, PassRecord
from jev_engine.store.memory import MemoryStore
from jev_engine.store.sqlite import SqliteStore
from jev_engine.testing import (
    Report,
    ScriptedAsker,
    ScriptedJudge,
    assistant,
    call,
    calls,
    check_adapter,
    check_judge,
    check_store,
    history,
    result,
    user,
)
from jev_engine.transcript import Transcript
from jev_engine_adapters.claude_code import adapter as claude_code
from jev_engine_adapters.openai import OpenAIAdapter


def openai_sample() -> list[Any]:
    parts = [
        {"type": "text", "text": "first"},
        {"type": "image_url", "image_url": {"url": "data:"}},
        {"type": "text", "text": "b"},
    ]
    return history(
        user("Fix the parser."),
        calls(("read", {"path": "a.py"}), ("bash", {"command": "ls"}), text="I look first."),
        result("text of a\n" * 50),
        result(parts),
        call("test"),
        result("c" * 900, is_error=True),
        assistant("Done."),
    )


def claude_code_sample() -> list[Any]:
    session = Session()
    session.user("Fix the parser.")
    session.unit("t1", "text of a\n" * 50)
    session.unit("t2", "b")
    return session.rows


def neutral_sample() -> list[Any]:
    def use(name: str) -> dict[str, Any]:
        return {"tool_use_id": name, "tool": "read", "input": {"path": name}, "text": f"text of {name}"}

    def answer(name: str) -> dict[str, Any]:
        return {"tool_use_id": name, "text": f"text of {name}", "isError": False}

    return [
        {"role": "user", "text": "Fix the parser.", "toolUses": []},
        {"role": "assistant", "text": "I look.", "toolUses": [use("a"), use("b")]},
        {"role": "user", "text": "", "toolUses": [], "toolResults": [answer("a"), answer("b")]},
        {"role": "assistant", "text": "", "toolUses": [use("c")]},
        {"role": "user", "text": "", "toolUses": [], "toolResults": [answer("c")]},
    ]


# --- what ships -----------------------------------------------------------------------------------------------------


def test_the_openai_adapter_keeps_the_contract() -> None:
    """Reading and writing."""
    report = check_adapter(OpenAIAdapter, openai_sample)

    assert report.ok, str(report)
    assert report.names("skipped") == []


def test_the_claude_code_adapter_keeps_the_contract() -> None:
    """Reading and writing; calls are shortened, never removed."""
    report = check_adapter(lambda: claude_code, claude_code_sample)

    assert report.ok, str(report)
    assert len(report.names("skipped")) == 2
    assert "can_delete is False" in str(report)


def test_the_neutral_test_adapter_keeps_the_contract() -> None:
    """Two copies of a result; it reads no odd rows, which the format does not have."""
    report = check_adapter(neutral_adapter.NeutralAdapter, neutral_sample)

    assert report.names("failed") == ["odd rows stop nothing"], str(report)


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_the_stores_keep_the_contract(kind: str, tmp_path: Path) -> None:
    """In memory and in a file."""
    number = itertools.count()
    made = {"memory": MemoryStore, "sqlite": lambda: SqliteStore(tmp_path / str(next(number)) / "o.sqlite3")}
    report = await check_store(made[kind])

    assert report.ok, str(report)


@pytest.mark.parametrize(
    "make_judge",
    [
        lambda: ScriptedJudge(lambda _call: (0.5, 0.1)),
        lambda: ScriptedJudge({}, fails=True),
        lambda: AskedJudge(ScriptedAsker(lambda *_: 0.5)),
        lambda: AskedJudge(ScriptedAsker(lambda *_: "rubbish")),
    ],
    ids=["scripted", "failing", "asked", "asked in vain"],
)
async def test_the_judges_keep_the_contract(make_judge: Callable[[], Any]) -> None:
    """Those that answer, and those that honestly cannot."""
    report = await check_judge(make_judge)

    assert report.ok, str(report)


# --- what is broken -------------------------------------------------------------------------------------------------


class ForgetsText(OpenAIAdapter):
    def edit(self, message: Any, change: RowChange) -> Any:
        edited = super().edit(message, change)
        return edited and {name: value for name, value in edited.items() if name != "tool_call_id"}


class WritesInPlace(OpenAIAdapter):
    def edit(self, message: Any, change: RowChange) -> Any:
        edited = super().edit(message, change)
        if edited is not None:
            message.update(edited)
        return edited


class LeavesShells(OpenAIAdapter):
    def edit(self, message: Any, change: RowChange) -> Any:
        edited = super().edit(message, change)
        return {**message, "tool_calls": []} if edited is None and message["role"] == "assistant" else edited


class SeesNothing(OpenAIAdapter):
    def check(self, before: Any, after: Any, change: RowChange) -> str | None:
        return None


class SeesOnlyTexts(OpenAIAdapter):
    def check(self, before: Any, after: Any, change: RowChange) -> str | None:
        return (
            None
            if after.get("content") != before.get("content")
            and super().check(before, after, change) != ("result is not the decided text")
            else "no"
        )


class RejectsItself(OpenAIAdapter):
    def check(self, before: Any, after: Any, change: RowChange) -> str | None:
        return "never right"


class StopsAtOddRows(OpenAIAdapter):
    def read(self, messages: Sequence[Any]) -> Transcript:
        return super().read([m for m in messages if m["role"]])


class ReadsACopy(OpenAIAdapter):
    def read(self, messages: Sequence[Any]) -> Transcript:
        return super().read(list(messages))


class LosesBytes(OpenAIAdapter):
    def load(self, data: Any) -> Any:
        return {"role": data["role"]}


class PretendsToBeReadOnly(OpenAIAdapter):
    is_read_only = True


class TakesEverything(OpenAIAdapter):
    def sniff(self, messages: Sequence[Any]) -> bool:
        return True


@pytest.mark.parametrize(
    ("broken", "caught"),
    [
        (ForgetsText, "edit shortens one result and nothing else"),
        (WritesInPlace, "edit changes no input"),
        (LeavesShells, "edit removes all units and leaves nothing empty"),
        (SeesNothing, "check sees another text"),
        (SeesNothing, "check sees any other difference"),
        (SeesOnlyTexts, "check sees any other difference"),
        (RejectsItself, "check passes what edit made"),
        (StopsAtOddRows, "odd rows stop nothing"),
        (ReadsACopy, "read changes nothing"),
        (LosesBytes, "dump is plain JSON and load gives the row back"),
        (PretendsToBeReadOnly, "is_read_only says whether edit is refused"),
        (TakesEverything, "sniff takes anything and recognises no odd rows"),
    ],
)
def test_a_broken_adapter_is_caught_by_name(broken: type[OpenAIAdapter], caught: str) -> None:
    """One fault, one named check."""
    report = check_adapter(broken, openai_sample)

    assert caught in report.names("failed"), str(report)


class ChangesReferences(MemoryStore):
    number = 0

    def reference(self, session: str, key: str) -> str:
        ChangesReferences.number += 1
        return f"jx-{ChangesReferences.number:016x}"


class SharesSessions(MemoryStore):
    async def read(self, reference: str, *, session: str | None = None) -> Original:
        return await super().read(reference)


class ReplacesHalves(MemoryStore):
    async def save(self, originals: Sequence[Original]) -> set[str]:
        return await super().save([o._replace(text=o.text.encode("utf-8", "replace").decode()) for o in originals])


class RaisesKeyError(MemoryStore):
    async def read(self, reference: str, *, session: str | None = None) -> Original:
        return self._originals[reference]


class Overwrites(MemoryStore):
    async def save(self, originals: Sequence[Original]) -> set[str]:
        self._originals.update({original.reference: original for original in originals})
        return {original.reference for original in originals}


class PromisesTooMuch(MemoryStore):
    async def save(self, originals: Sequence[Original]) -> set[str]:
        await super().save(originals[:1])
        return {original.reference for original in originals}


class OldestFirst(MemoryStore):
    async def find_passes(self, anchor: str) -> list[PassRecord]:
        return (await super().find_passes(anchor))[::-1]


class ForgetsSpelling(MemoryStore):
    async def save_pass(self, record: PassRecord) -> None:
        await super().save_pass(record._replace(written=()))


class SharesRows(MemoryStore):
    async def save_pass(self, record: PassRecord) -> None:
        self._passes[record.anchor].insert(0, record)


@pytest.mark.parametrize(
    ("broken", "caught"),
    [
        (ChangesReferences, "one reference for one session and key"),
        (SharesSessions, "a reference of another session is not found"),
        (ReplacesHalves, "saved texts come back byte for byte"),
        (RaisesKeyError, "an unknown reference is not found"),
        (Overwrites, "saving again changes nothing"),
        (PromisesTooMuch, "saved texts come back byte for byte"),
        (PromisesTooMuch, "known tells key and length"),
        (OldestFirst, "pass records come back, newest first"),
        (ForgetsSpelling, "pass records come back, newest first"),
        (SharesRows, "pass records do not follow the host's later changes"),
    ],
)
async def test_a_broken_store_is_caught_by_name(broken: type[MemoryStore], caught: str) -> None:
    """One fault, one named check."""
    report = await check_store(broken)

    assert caught in report.names("failed"), str(report)


class AnswersFor:
    """A judge whose answers are made by a function of the request."""

    name = "broken"
    is_calibrated = True

    def __init__(self, answers: Callable[[JudgeRequest], dict[str, RawAnswer]]) -> None:
        self.answers = answers

    async def judge(self, request: JudgeRequest) -> Verdict:
        return Verdict(self.answers(request))


def raise_value_error(_request: JudgeRequest) -> dict[str, RawAnswer]:
    raise ValueError("no")


def raise_unavailable(_request: JudgeRequest) -> dict[str, RawAnswer]:
    raise JudgeUnavailable("no")


def change_history(request: JudgeRequest) -> dict[str, RawAnswer]:
    request.transcript.messages[0]["content"] = "changed"
    return {}


@pytest.mark.parametrize(
    ("answers", "is_fine"),
    [
        (lambda r: {c.key: RawAnswer(0.1, 0.9) for c in r.candidates}, True),
        (raise_unavailable, True),
        (lambda r: {c.key: RawAnswer(0.1, 1.3) for c in r.candidates}, False),
        (lambda r: {c.key: RawAnswer(float("nan"), 0.2) for c in r.candidates}, False),
        (lambda r: {c.key: RawAnswer(p_call=True, p_result=0.2) for c in r.candidates}, False),
        (lambda r: {c.label: RawAnswer(0.1, 0.2) for c in r.candidates}, False),
        (raise_value_error, False),
        (change_history, False),
    ],
    ids=[
        "plain",
        "unavailable",
        "above one",
        "not a number",
        "a bool",
        "by label",
        "another error",
        "changes the history",
    ],
)
async def test_a_broken_judge_is_caught(answers: Any, is_fine: bool) -> None:  # noqa: FBT001  # a parameter of the test
    """Odd numbers, foreign keys, foreign errors."""
    report = await check_judge(lambda: AnswersFor(answers))

    assert report.ok is is_fine, str(report)


def test_a_report_reads_like_one() -> None:
    """Counts first, then one line a check with its reason."""
    report = Report("adapter x")
    report.add("first", lambda: None)
    report.add("second", lambda: "it does not hold")

    assert not report.ok
    assert str(report) == "adapter x: 1 passed, 1 failed, 0 skipped\npassed  first\nfailed  second: it does not hold"
