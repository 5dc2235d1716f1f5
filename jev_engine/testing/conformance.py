"""Suites that tell whether an adapter, a store or a judge keeps its contract: a factory in, a report out.

>>> from jev_engine.store.memory import MemoryStore
>>> import anyio
>>> report = anyio.run(check_store, MemoryStore)
>>> report.ok, str(report).splitlines()[0]
(True, 'store MemoryStore: 18 passed, 0 failed, 0 skipped')
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any, Literal

import anyio

from jev_engine.config import EngineConfig
from jev_engine.errors import JudgeError, OriginalNotFound
from jev_engine.judges import Judge, JudgeRequest
from jev_engine.ledger import Ledger, LedgerEntry, assign_keys
from jev_engine.markers import find_reference
from jev_engine.store import Original, OriginalStore, PassRecord
from jev_engine.testing.adapters import check_adapter
from jev_engine.testing.reports import Check, Report
from jev_engine.testing.transcripts import call, result, transcript_of, user

__all__ = ["Check", "Report", "check_adapter", "check_judge", "check_store"]

# Texts that stores and transports stumble over: half characters, halves in a row, NUL, line ends, a large one.
HARD_TEXTS = (
    "plain",
    "",
    "half \ud83d sign",
    "\ud83d\ude42",
    "NUL \0 in it",
    "a\r\nb\rc\n",
    "你好 🙂",
    "x" * 3_000_000,
)
ODD_REFERENCES = ("jx-0000000000000000", "", "jx-", "x" * 10_000, "\ud800", "' OR 1=1 --", "\0")


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
        ("whole messages come back as they were", _store_messages),
        ("ledgers of a session are joined", _store_ledgers),
        ("names with half characters are names", _store_half_names),
        ("a fork reads what its origin has, and nobody else does", _store_forks),
        ("search finds the text that fits best, of its own session only", _store_ranks),
        ("search takes any query", _store_odd_queries),
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
    second = second._replace(written=[(2, ",\n", '[1, null, true, 0.50, "\\u00e9é"]')])
    await store.save_pass(first)
    await store.save_pass(second)
    await store.save_pass(_record("b", {}))
    heads = await store.find_passes("a")
    if [head.sketch for head in heads] != ["second", "first"]:
        return "order or number is wrong"
    if await store.find_passes("a", 7) or len(await store.find_passes("a", 8)) != 2:
        return "passes with more rows than asked for are named, or others are not"
    found = [await store.load_pass(head.number) for head in heads]
    if [[tuple(row) for row in record.written] for record in found] != [second.written, []]:
        return "how rows were written changed"
    return None if [dict(r.originals) for r in found] == [second.originals, first.originals] else "originals changed"


async def _store_hard_passes(store: OriginalStore) -> str | None:
    originals = {row: {"content": text, text[:50]: [text[:50]]} for row, text in enumerate(HARD_TEXTS)}
    await store.save_pass(_record("a", originals))
    (head,) = await store.find_passes("a")
    found = await store.load_pass(head.number)
    return None if dict(found.originals) == originals else "a text came back changed"


async def _store_copies(store: OriginalStore) -> str | None:
    message = {"content": [{"text": "before"}]}
    await store.save_pass(_record("a", {0: message}))
    message["content"][0]["text"] = "after"
    (head,) = await store.find_passes("a")
    found = await store.load_pass(head.number)
    return None if found.originals[0] == {"content": [{"text": "before"}]} else "the record changed with the message"


async def _store_together(store: OriginalStore) -> str | None:
    originals = [_original(store, f"k{number}", f"text {number}") for number in range(20)]
    async with anyio.create_task_group() as group:
        for original in originals:
            group.start_soon(store.save, [original])
    known = await store.known([original.reference for original in originals])
    return None if len(known) == len(originals) else f"{len(known)} of {len(originals)} are there"


async def _store_messages(store: OriginalStore) -> str | None:
    rows = [{"role": "user", "content": text} for text in HARD_TEXTS[:-1]]
    references = await store.save_messages("s", rows)
    if len(references) != len(rows) or len(set(references)) != len(rows):
        return "not one reference a message"
    if await store.save_messages("s", rows) != references:
        return "saved again, the references are others"
    found = [json.loads((await store.read(reference, session="s")).text) for reference in references]
    if found != rows:
        return "a message came back changed"
    return None if await store.save_messages("s", []) == [] else "it named references for nothing"


def _entry(key: str, action: Literal["truncate", "remove"], text: str = "[out]") -> LedgerEntry:
    return LedgerEntry(key, action, f"jx-{key}", text, 9)


async def _store_ledgers(store: OriginalStore) -> str | None:
    if await store.load_ledger("s") is not None:
        return "an empty store has a ledger"
    first = Ledger.of([_entry("a", "truncate"), _entry("b", "remove", "")])
    second = Ledger.of([_entry("a", "remove", ""), _entry("c", "truncate", "half \ud83d, 你好")])
    await store.save_ledger("s", first.to_json())
    await store.save_ledger("s", second.to_json())
    found = await store.load_ledger("s")
    if found is None or Ledger.from_json(found) != first.merge(second):
        return "it is not the join of what was saved"
    return None if await store.load_ledger("another session") is None else "another session sees it"


async def _store_half_names(store: OriginalStore) -> str | None:
    for session in ("half \ud83d", "half \ud83c"):
        mine = _original(store, "\ud83d", session, session)
        await store.save([mine])
        await store.save_ledger(session, Ledger.of([_entry("a", "truncate")]).to_json())
        if (await store.read(mine.reference, session=session)).text != session:
            return "another text came back"
        if not await _is_unknown(store, mine.reference, "half ?") or await store.load_ledger("half ?") is not None:
            return "another session reads it"
    return None


async def _store_forks(store: OriginalStore) -> str | None:
    mine = _original(store, "k", "text of the origin")
    await store.save([mine])
    await store.save_ledger("s", Ledger.of([_entry("a", "truncate")]).to_json())
    await store.link_session("fork", "s")
    await store.link_session("fork of the fork", "fork")
    await store.link_session("s", "fork of the fork")  # a loop, which has to end
    for session in ("fork", "fork of the fork"):
        if (await store.read(mine.reference, session=session)).text != mine.text:
            return f"{session!r} reads something else"
        if await store.load_ledger(session) is None:
            return f"{session!r} begins without the ledger"
        if [match.reference for match in (await store.rank(session, "origin", 3)).matches] != [mine.reference]:
            return f"{session!r} does not find the original"
    later = _original(store, "k", "text of the fork", "fork")
    await store.save([later])
    if not await _is_unknown(store, later.reference, "s"):
        return "the origin reads what belongs to the fork"
    return None if await _is_unknown(store, mine.reference, "a new session") else "a new session reads it"


async def _store_ranks(store: OriginalStore) -> str | None:
    texts = ["def parseRow(header): pass", "connection refused by db_host", "你好世界 hello", "x" * 500, ""]
    originals = [_original(store, f"k{number}", text) for number, text in enumerate(texts)]
    await store.save([*originals, _original(store, "k0", texts[0], "another session")])
    for query, wanted in (("parse the row", 0), ("db_host refused", 1), ("host connection", 1), ("世界", 2)):
        found = [match.reference for match in (await store.rank("s", query, 3)).matches]
        if found[:1] != [originals[wanted].reference]:
            return f"{query!r} does not find {texts[wanted]!r}"
    if (await store.rank("s", "nothing_like_it", 3)).matches:
        return "it finds what is not there"
    return None if len((await store.rank("s", "parse host hello", 1)).matches) == 1 else "it names more than it should"


async def _store_odd_queries(store: OriginalStore) -> str | None:
    await store.save([_original(store, "k", "some text")])
    for query in (
        "",
        " ",
        '"',
        "' OR 1=1 --",
        "NEAR(a b)",
        "a AND",
        "\ud83d",
        "\0",
        "text*",
        "line:text",
        "x " * 9_000,
    ):
        for session in ("s", "another session", "\ud83d"):
            await store.rank(session, query, 3)
    return None


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


def _judge_members(judge: Any) -> str | None:
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
