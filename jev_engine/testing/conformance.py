"""Suites that tell whether an adapter, a store or a judge keeps its contract: a factory in, a report out.

>>> from jev_engine.store.memory import MemoryStore
>>> import anyio
>>> report = anyio.run(check_store, MemoryStore)
>>> report.ok, str(report).splitlines()[0]
(True, 'store MemoryStore: 12 passed, 0 failed, 0 skipped')
"""

from __future__ import annotations

import copy
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Literal, NamedTuple

import anyio

from jev_engine.config import EngineConfig
from jev_engine.errors import AdapterError, JudgeError, OriginalNotFound, TranscriptError
from jev_engine.host import Adapter, RowChange
from jev_engine.judges import Judge, JudgeRequest
from jev_engine.ledger import Ledger, LedgerEntry, assign_keys
from jev_engine.markers import find_reference
from jev_engine.rebuild import apply, plan_changes, rebuild, validate
from jev_engine.store import Original, OriginalStore, PassRecord
from jev_engine.testing.transcripts import call, history, result, transcript_of, user
from jev_engine.transcript import ToolCall, Transcript

__all__ = ["Check", "Report", "check_adapter", "check_judge", "check_store"]

SHORT = "[left out]"
OTHER = "[something else]"
# Rows no host writes: they may be counted, they may not stop the rest.
ODD_ROWS: tuple[Any, ...] = (None, 42, "text", [], {}, {"role": "no such role", "type": "no such type"})
# Texts that stores and transports stumble over: half characters, halves in a row, NUL, line ends, a large one.
HARD_TEXTS = ("plain", "", "half \ud83d sign", "\ud83d\ude42", "NUL \0 in it", "a\r\nb\rc\n", "你好 🙂", "x" * 3_000_000)
ODD_REFERENCES = ("jx-0000000000000000", "", "jx-", "x" * 10_000, "\ud800", "' OR 1=1 --", "\0")


class Check(NamedTuple):
    """One line of a report."""

    name: str
    status: Literal["passed", "failed", "skipped"]
    reason: str = ""


class Report:
    """What a suite found."""

    def __init__(self, subject: str) -> None:
        self.subject = subject
        self.checks: list[Check] = []

    @property
    def ok(self) -> bool:
        """No check failed; skipped ones are named with their reason."""
        return not self.names("failed")

    def names(self, status: str) -> list[str]:
        """Names of the checks with this status."""
        return [check.name for check in self.checks if check.status == status]

    def __str__(self) -> str:
        counts = ", ".join(f"{len(self.names(status))} {status}" for status in ("passed", "failed", "skipped"))
        lines = [f"{c.status:7} {c.name}{': ' * bool(c.reason)}{c.reason}" for c in self.checks]
        return "\n".join([f"{self.subject}: {counts}", *lines])

    def add(self, name: str, work: Callable[[], str | None]) -> None:
        """Run one check; `work` returns what is wrong, or None."""
        try:
            problem = work()
        except _Skipped as skip:
            self.checks.append(Check(name, "skipped", str(skip)))
        except Exception as error:  # noqa: BLE001  # whatever the subject raises is the finding
            self.checks.append(Check(name, "failed", f"{type(error).__name__}: {error}"[:300]))
        else:
            self.checks.append(Check(name, "failed" if problem else "passed", problem or ""))

    async def wait(self, name: str, work: Callable[[], Awaitable[str | None]]) -> None:
        """Run one check that waits."""
        try:
            problem = await work()
        except Exception as error:  # noqa: BLE001  # whatever the subject raises is the finding
            self.checks.append(Check(name, "failed", f"{type(error).__name__}: {error}"[:300]))
        else:
            self.checks.append(Check(name, "failed" if problem else "passed", problem or ""))


class _Skipped(Exception):  # noqa: N818  # not an error
    pass


# --- adapters -------------------------------------------------------------------------------------------------------


def check_adapter(make_adapter: Callable[[], Adapter], make_messages: Callable[[], Sequence[Any]]) -> Report:
    """Check an adapter on a sample history with at least two finished calls, made afresh for every check.

    An adapter that reads only says so by raising AdapterError from `edit`: its write checks are skipped with that
    reason.
    """
    report = Report(f"adapter {make_adapter().name}")
    suite = _AdapterSuite(make_adapter, make_messages)
    for name, work in (
        ("sniff knows its own messages", suite.sniffs_own),
        ("sniff takes anything", suite.sniffs_anything),
        ("read finds finished calls", suite.finds_calls),
        ("read changes nothing", suite.reads_without_change),
        ("read says the same twice", suite.reads_the_same_twice),
        ("rows are in range and in order", suite.keeps_order),
        ("odd rows stop nothing", suite.survives_odd_rows),
        ("dump is plain JSON and load gives the row back", suite.dumps_and_loads),
        ("edit shortens one result and nothing else", suite.shortens_one),
        ("edit shortens all results and nothing else", suite.shortens_all),
        ("edit changes no input", suite.edits_a_copy),
        ("edit removes one unit and nothing else", suite.removes_one),
        ("edit removes all units and leaves nothing empty", suite.removes_all),
        ("apply twice equals once", suite.applies_twice),
        ("check passes what edit made", suite.check_passes_edits),
        ("check sees another text", suite.check_sees_other_text),
        ("check sees any other difference", suite.check_sees_differences),
    ):
        report.add(name, work)
    return report


class _AdapterSuite:
    def __init__(self, make_adapter: Callable[[], Adapter], make_messages: Callable[[], Sequence[Any]]) -> None:
        self.adapter = make_adapter()
        self.fresh = make_messages

    def read(self, messages: Sequence[Any] | None = None) -> Transcript:
        return self.adapter.read(self.fresh() if messages is None else messages)

    def sniffs_own(self) -> str | None:
        return None if self.adapter.sniff(self.fresh()) else "its own messages are not recognised"

    def sniffs_anything(self) -> str | None:
        for rows in ([], list(ODD_ROWS), [[[]]], [{"role": {"a": 1}}]):
            self.adapter.sniff(rows)
        return "odd rows are taken for its own" if self.adapter.sniff(list(ODD_ROWS)) else None

    def finds_calls(self) -> str | None:
        found = _finished(self.read())
        return None if len(found) >= 2 else f"{len(found)} finished calls in the sample, two are needed"

    def reads_without_change(self) -> str | None:
        messages = self.fresh()
        before, rows = copy.deepcopy(messages), list(messages)
        transcript = self.adapter.read(messages)
        if messages != before or any(a is not b for a, b in zip(rows, messages, strict=True)):
            return "reading changed the input"
        return None if transcript.messages is messages else "transcript.messages is not the list it was given"

    def reads_the_same_twice(self) -> str | None:
        messages = self.fresh()
        return _difference(self.read(messages), self.read(messages), {}, set())

    def keeps_order(self) -> str | None:
        transcript = self.read()
        rows = len(transcript.messages)
        if [call.number for call in transcript.calls] != list(range(1, len(transcript.calls) + 1)):
            return "calls are not numbered in order"
        for call in transcript.calls:
            if not 0 <= call.row < rows or (call.result is not None and not 0 <= call.result_row < rows):
                return f"{call.label} lies outside of the history"
            if call.result is not None and call.result_row < call.row:
                return f"{call.label} has its result before the call"
        places = [entry.row for entry in transcript.entries]
        return None if places == sorted(places) else "entries are out of order"

    def survives_odd_rows(self) -> str | None:
        plain = [call.result for call in self.read().calls]
        found = self.read([*self.fresh(), *ODD_ROWS])
        if [call.result for call in found.calls] != plain:
            return "odd rows at the end change the calls before them"
        try:
            self.read(list(ODD_ROWS))
        except TranscriptError:
            return None
        return None

    def dumps_and_loads(self) -> str | None:
        for row, message in enumerate(self.fresh()):
            data = self.adapter.dump(message)
            if self.adapter.load(json.loads(json.dumps(data))) != message:
                return f"message {row} does not come back"
        return None

    def decided(self, *actions: tuple[ToolCall, str], transcript: Transcript) -> dict[int, RowChange]:
        """Changes for units of a transcript, by a ledger as the engine makes them."""
        assign_keys(transcript, Ledger())
        entries = [
            LedgerEntry(call.key, "remove" if text is REMOVE else "truncate", "jx-" + "0" * 16, text, 1)
            for call, text in actions
        ]
        return plan_changes(transcript, Ledger.of(entries), self.adapter)

    def changed(self, numbers: Callable[[list[ToolCall]], list[ToolCall]], text: str) -> str | None:
        messages = self.fresh()
        transcript = self.read(messages)
        chosen = numbers(_finished(transcript))
        self.must_allow(transcript, text)
        changes = self.decided(*((call, text) for call in chosen), transcript=transcript)
        rebuilt = rebuild(transcript, changes, self.adapter)
        validate(transcript, rebuilt, self.adapter)
        removed = {call.number for call in chosen} if text is REMOVE else set()
        texts = {} if text is REMOVE else {call.number: text for call in chosen}
        if _empties(rebuilt.messages) > _empties(messages):
            return "something empty is left behind"
        return _difference(transcript, self.read(rebuilt.messages), texts, removed)

    def must_allow(self, transcript: Transcript, text: str) -> None:
        if text is REMOVE and not self.adapter.can_delete:
            raise _Skipped("can_delete is False")
        call = _finished(transcript)[0]
        try:
            self.adapter.edit(transcript.messages[call.result_row], RowChange(call.result_row, ((call, SHORT),)))
        except AdapterError as error:
            raise _Skipped(str(error)) from None

    def shortens_one(self) -> str | None:
        return self.changed(lambda calls: calls[:1], SHORT)

    def shortens_all(self) -> str | None:
        return self.changed(lambda calls: calls, SHORT)

    def removes_one(self) -> str | None:
        return self.changed(lambda calls: calls[:1], REMOVE)

    def removes_all(self) -> str | None:
        return self.changed(lambda calls: calls, REMOVE)

    def edits_a_copy(self) -> str | None:
        messages = self.fresh()
        before = copy.deepcopy(messages)
        transcript = self.read(messages)
        self.must_allow(transcript, SHORT)
        changes = self.decided(*((call, SHORT) for call in _finished(transcript)), transcript=transcript)
        rebuild(transcript, changes, self.adapter)
        return None if messages == before else "editing changed the input"

    def applies_twice(self) -> str | None:
        messages = self.fresh()
        transcript = self.read(messages)
        self.must_allow(transcript, SHORT)
        assign_keys(transcript, Ledger())
        ledger = Ledger.of([LedgerEntry(c.key, "truncate", "jx-1", f"{SHORT} {c.label}", 1) for c in _finished(transcript)])
        once = apply(messages, ledger, self.adapter)
        twice = apply(once, ledger, self.adapter)
        return None if twice is once else "a second application changes the history again"

    def edits(self) -> list[tuple[Any, Any, RowChange]]:
        """Before, after and change of every row that shortening all results touches."""
        transcript = self.read()
        self.must_allow(transcript, SHORT)
        changes = self.decided(*((call, SHORT) for call in _finished(transcript)), transcript=transcript)
        rows = transcript.messages
        return [(rows[row], self.adapter.edit(rows[row], change), change) for row, change in changes.items()]

    def check_passes_edits(self) -> str | None:
        problems = [problem for before, after, change in self.edits() if (problem := self.adapter.check(before, after, change))]
        return problems[0] if problems else None

    def check_sees_other_text(self) -> str | None:
        for before, _, change in self.edits():
            other = self.adapter.edit(before, RowChange(change.row, [(call, OTHER) for call, _ in change.results]))
            if self.adapter.check(before, other, change) is None:
                return f"another text in message {change.row} goes unnoticed"
        return None

    def check_sees_differences(self) -> str | None:
        for before, after, change in self.edits():
            for where, corrupted in _corruptions(after):
                if self.adapter.check(before, corrupted, change) is None:
                    return f"a change at {where} of message {change.row} goes unnoticed"
        return None


REMOVE = ""


def _finished(transcript: Transcript) -> list[ToolCall]:
    return [call for call in transcript.calls if call.result is not None and not call.anomaly]


def _difference(before: Transcript, after: Transcript, texts: dict[int, str], removed: set[int]) -> str | None:
    expected = [call for call in before.calls if call.number not in removed]
    if len(expected) != len(after.calls):
        return f"{len(after.calls)} calls where {len(expected)} belong"
    for old, new in zip(expected, after.calls, strict=True):
        if (old.call_id, old.tool, old.arguments, old.is_error) != (new.call_id, new.tool, new.arguments, new.is_error):
            return f"{old.label} is another call"
        if new.result != texts.get(old.number, old.result):
            return f"{old.label} has another result"
    spoken = [(e.role, e.text) for e in before.entries if e.text]
    return None if spoken == [(e.role, e.text) for e in after.entries if e.text] else "texts changed"


def _empties(value: Any) -> int:
    """How many empty texts, lists and objects a value holds."""
    if isinstance(value, dict):
        return (not value) + sum(_empties(item) for item in value.values())
    if isinstance(value, list):
        return (not value) + sum(_empties(item) for item in value)
    return int(value == "")


def _corruptions(value: Any, where: str = "the top") -> list[tuple[str, Any]]:
    """Copies of a plain value with one place changed each; none for what is no plain value."""
    if isinstance(value, dict):
        made = [(f"{where}, field lost", {n: v for n, v in value.items() if n != name}) for name in value]
        made.append((f"{where}, field added", {**value, "no such field": 1}))
        for name, item in value.items():
            made.extend((path, {**value, name: changed}) for path, changed in _corruptions(item, f"field {name!r}"))
        return made
    if isinstance(value, list):
        made = [(f"{where}, item lost", value[:slot] + value[slot + 1 :]) for slot in range(len(value))]
        for slot, item in enumerate(value):
            changed = _corruptions(item, f"{where}, item {slot}")
            made.extend((path, [*value[:slot], new, *value[slot + 1 :]]) for path, new in changed)
        return made
    if isinstance(value, str):
        return [(where, value + "!"), (where, value[1:])] if value else [(where, "!")]
    return []


# --- stores ---------------------------------------------------------------------------------------------------------


async def check_store(make_store: Callable[[], OriginalStore]) -> Report:
    """Check a store; every check gets a new and empty one."""
    report = Report(f"store {type(make_store()).__name__}")
    for name, work in (
        ("an empty store knows nothing", _store_is_empty),
        ("one reference for one session and key", _store_references),
        ("saved texts come back byte for byte", _store_saves),
        ("saving again changes nothing", _store_saves_again),
        ("an unknown reference is not found", _store_unknown),
        ("a reference of another session is not found", _store_foreign),
        ("known tells key and length", _store_known),
        ("saving nothing is allowed", _store_saves_nothing),
        ("pass records come back, newest first", _store_passes),
        ("pass records hold hard texts", _store_hard_passes),
        ("pass records do not follow the host's later changes", _store_copies),
        ("saves at once do not disturb each other", _store_together),
    ):
        await report.wait(name, lambda work=work: work(make_store()))  # type: ignore[misc]  # bound per turn
    return report


def _original(store: OriginalStore, key: str, text: str, session: str = "s") -> Original:
    return Original(store.reference(session, key), session, key, "read", text)


def _record(anchor: str, originals: dict[int, Any], sketch: str = "k") -> PassRecord:
    return PassRecord("s", anchor, sketch, 9, 8, [3], originals)


async def _is_unknown(store: OriginalStore, reference: str, session: str | None = None) -> bool:
    try:
        await store.read(reference, session=session)
    except OriginalNotFound:
        return True
    return False


async def _store_is_empty(store: OriginalStore) -> str | None:
    if await store.known(["jx-0000000000000000"]) or await store.find_passes("a"):
        return "it holds something"
    return None if await _is_unknown(store, "jx-0000000000000000") else "it reads something"


async def _store_references(store: OriginalStore) -> str | None:
    one = store.reference("s", "k")
    if one != store.reference("s", "k"):
        return "it changes"
    if len({one, store.reference("other", "k"), store.reference("s", "other")}) != 3:
        return "other sessions or keys have the same"
    return None if find_reference(f"[jev-engine: {one}]") == one else f"markers do not recognise {one!r}"


async def _store_saves(store: OriginalStore) -> str | None:
    originals = [_original(store, f"k{number}", text) for number, text in enumerate(HARD_TEXTS)]
    if await store.save(originals) != {original.reference for original in originals}:
        return "save does not name what is safe"
    for original in originals:
        if await store.read(original.reference, session="s") != original:
            return f"{original.text[:20]!r} came back changed"
    return None


async def _store_saves_again(store: OriginalStore) -> str | None:
    first = _original(store, "k", "first")
    await store.save([first])
    await store.save([first._replace(text="second")])
    return None if (await store.read(first.reference)).text == "first" else "an original was overwritten"


async def _store_unknown(store: OriginalStore) -> str | None:
    await store.save([_original(store, "k", "text")])
    for reference in ODD_REFERENCES:
        if not await _is_unknown(store, reference):
            return f"{reference[:20]!r} reads as something"
    return None


async def _store_foreign(store: OriginalStore) -> str | None:
    mine = _original(store, "k", "text")
    await store.save([mine])
    return None if await _is_unknown(store, mine.reference, "another session") else "it can be read"


async def _store_known(store: OriginalStore) -> str | None:
    originals = [_original(store, f"k{number}", "x" * number) for number in range(1_200)]
    await store.save(originals)
    wanted = {original.reference: (original.key, len(original.text)) for original in originals}
    found = await store.known([*wanted, "jx-0000000000000000"])
    return None if found == wanted else f"{len(found)} of {len(wanted)} are known as they should be"


async def _store_saves_nothing(store: OriginalStore) -> str | None:
    return "it named references" if await store.save([]) else None


async def _store_passes(store: OriginalStore) -> str | None:
    first, second = _record("a", {1: {"text": "x"}}, "first"), _record("a", {2: [1, None, True, 0.5]}, "second")
    await store.save_pass(first)
    await store.save_pass(second)
    await store.save_pass(_record("b", {}))
    found = await store.find_passes("a")
    if [record.sketch for record in found] != ["second", "first"]:
        return "order or number is wrong"
    return None if [dict(r.originals) for r in found] == [second.originals, first.originals] else "originals changed"


async def _store_hard_passes(store: OriginalStore) -> str | None:
    originals = {row: {"content": text, text[:50]: [text[:50]]} for row, text in enumerate(HARD_TEXTS)}
    await store.save_pass(_record("a", originals))
    (found,) = await store.find_passes("a")
    return None if dict(found.originals) == originals else "a text came back changed"


async def _store_copies(store: OriginalStore) -> str | None:
    message = {"content": [{"text": "before"}]}
    await store.save_pass(_record("a", {0: message}))
    message["content"][0]["text"] = "after"
    (found,) = await store.find_passes("a")
    return None if found.originals[0] == {"content": [{"text": "before"}]} else "the record changed with the message"


async def _store_together(store: OriginalStore) -> str | None:
    originals = [_original(store, f"k{number}", f"text {number}") for number in range(20)]
    async with anyio.create_task_group() as group:
        for original in originals:
            group.start_soon(store.save, [original])
    known = await store.known([original.reference for original in originals])
    return None if len(known) == len(originals) else f"{len(known)} of {len(originals)} are there"


# --- judges ---------------------------------------------------------------------------------------------------------


async def check_judge(make_judge: Callable[[], Judge]) -> Report:
    """Check a judge on small and odd histories. JudgeError is an honest answer, any other error is not."""
    judge = make_judge()
    report = Report(f"judge {getattr(judge, 'name', type(judge).__name__)}")
    odd = [call("read", path="\ud83d half"), result("\ud83d\0\x1b[31m" * 400), call("", x=[[]]), result("<a <a " * 900)]
    long = [row for n in range(300) for row in (call("read", path=f"f{n}.py"), result(f"line {n}\n" * 90))]
    report.add("it has a name and says whether it is calibrated", lambda: _judge_members(judge))
    for name, rows, asked in (
        ("no candidates, no answers", [], 0),
        ("answers belong to candidates and lie within 0 and 1", long[:40], 10),
        ("half characters, control characters and empty names are taken", odd, 2),
        ("three hundred candidates are taken", long, 300),
    ):
        await report.wait(name, lambda rows=rows, asked=asked: _judge_answers(make_judge(), rows, asked))  # type: ignore[misc]  # bound per turn
    return report


def _judge_members(judge: Judge) -> str | None:
    if not isinstance(judge.name, str) or not judge.name:
        return "no name"
    return None if isinstance(judge.is_calibrated, bool) else "is_calibrated is not a bool"


async def _judge_answers(judge: Judge, rows: list[Any], asked: int) -> str | None:
    transcript = transcript_of(user("Fix the parser."), *copy.deepcopy(rows))
    assign_keys(transcript, Ledger())
    candidates = transcript.calls[:asked]
    before = copy.deepcopy(transcript.messages)
    try:
        verdict = await judge.judge(JudgeRequest(transcript, candidates, None, None, frozenset([0]), EngineConfig()))
    except JudgeError:
        return None
    if transcript.messages != before:
        return "judging changed the history"
    if foreign := set(verdict.answers) - {each.key for each in candidates}:
        return f"{len(foreign)} answers for units nobody asked about"
    for answer in verdict.answers.values():
        for p in (answer.p_call, answer.p_result):
            if p is not None and (p.__class__ not in (float, int) or not 0.0 <= p <= 1.0):
                return f"{p!r} is no number from 0 to 1"
    return None
