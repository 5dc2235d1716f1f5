"""Answers recorded once and given again: tests and evaluations then need no network, no key and no money.

A cassette is a file of JSON lines. Each holds a digest of what was asked and the answers to it, not what was asked:
a history is not written down, and neither is a key.
"""

from __future__ import annotations

import csv
import json
import math
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from hashlib import blake2b
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple

import anyio.to_thread

from jev_engine.answers import Belief, RawAnswer
from jev_engine.errors import ConfigError, JudgeUnavailable
from jev_engine.judges import JudgeRequest, Verdict
from jev_engine.judges.endpoints import Budget
from jev_engine.judges.wire import Answers, Questions
from jev_engine.questions import WORDING

__all__ = ["RecordingAsker", "ReplayAsker", "Row", "TableJudge", "digest_of", "read_table"]


def digest_of(endpoint: str, model: str, question_version: str, state: str, questions: Questions) -> str:
    """What a recorded request goes by: the same for the same content, however its JSON is written."""
    content = [endpoint, model, question_version, json.loads(state), questions]
    text = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


class RecordingAsker:
    """Asks another asker and writes every answer to a cassette (mode 0600); errors are passed on and not written."""

    def __init__(self, asker: Any, path: str | Path, *, question_version: str = WORDING.version) -> None:
        self.asker = asker
        self.path = Path(path)
        self.question_version = question_version
        self.endpoint, self.model = _names(asker)
        self.url: str | None = getattr(asker, "url", None)
        self.budget: Budget | None = getattr(asker, "budget", None)
        self.price: float | None = getattr(asker, "price", None)
        self._lock = Lock()

    async def ask(self, state: str, questions: Questions) -> Mapping[str, Any]:
        """Ask, and write down what came back."""
        return await self._recorded(self.asker, state, questions)

    @asynccontextmanager
    async def connect(self) -> AsyncIterator[_Recorded]:
        """The asker of one pass, over its connection where it has one."""
        if hasattr(self.asker, "connect"):
            async with self.asker.connect() as line:
                yield _Recorded(self, line)
        else:
            yield _Recorded(self, self.asker)

    async def _recorded(self, asker: Any, state: str, questions: Questions) -> Mapping[str, Any]:
        answers: Mapping[str, Any] = await asker.ask(state, questions)
        line = {
            "digest": digest_of(self.endpoint, self.model, self.question_version, state, questions),
            "endpoint": self.endpoint,
            "model": getattr(answers, "model", None) or self.model,
            "question_version": self.question_version,
            "answers": dict(answers),
            "input_tokens": getattr(answers, "input_tokens", None),
        }
        await anyio.to_thread.run_sync(self._append, json.dumps(line, ensure_ascii=False, separators=(",", ":")))
        return answers

    def _append(self, line: str) -> None:
        with self._lock:
            handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            try:
                # A line that a crash cut short must not spoil the next one.
                start = b"" if _ends_with_a_line(self.path) else b"\n"
                os.write(handle, start + line.encode("utf-8", "surrogatepass") + b"\n")
            finally:
                os.close(handle)


class _Recorded:
    """One pass of a `RecordingAsker`."""

    def __init__(self, recorder: RecordingAsker, asker: Any) -> None:
        self._recorder = recorder
        self._asker = asker

    @property
    def sent(self) -> int:
        """As the asker counts; AttributeError, as of the asker itself, where it does not."""
        return int(self._asker.sent)

    @property
    def sent_bytes(self) -> int:
        """Likewise."""
        return int(self._asker.sent_bytes)

    async def ask(self, state: str, questions: Questions) -> Mapping[str, Any]:
        return await self._recorder._recorded(self._asker, state, questions)  # noqa: SLF001  # same file


def _names(asker: Any) -> tuple[str, str]:
    endpoint = getattr(asker, "endpoint", None)
    return str(getattr(endpoint, "name", endpoint or "")), str(getattr(asker, "model", None) or "")


def _ends_with_a_line(path: Path) -> bool:
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        if not size:
            return True
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


class ReplayAsker:
    """Gives the answers of a cassette. A request that is not in it raises JudgeUnavailable; nothing is ever sent.

    `budget` must be that of the recording, because it decides how a history is cut into requests.
    `sent` and `sent_bytes` stay 0.
    Raises ConfigError for a cassette that cannot be read. A line that is no JSON is left out and counted in `broken`.
    """

    def __init__(
        self,
        path: str | Path,
        *,
        endpoint: str,
        model: str,
        question_version: str = WORDING.version,
        budget: Budget | None = None,
    ) -> None:
        self.endpoint, self.model, self.question_version = endpoint, model, question_version
        self.budget = budget
        self.sent = self.sent_bytes = 0
        self.broken = 0
        self._lines: dict[str, dict[str, Any]] = {}
        try:
            text = Path(path).read_text(encoding="utf-8", errors="surrogatepass")
        except OSError as error:
            raise ConfigError(f"no cassette to replay: {type(error).__name__}", setting="replay") from None
        for line in text.split("\n"):
            if not line.strip():
                continue
            try:
                recorded = json.loads(line)
                self._lines[recorded["digest"]] = recorded
            except (ValueError, KeyError, TypeError):
                self.broken += 1

    async def ask(self, state: str, questions: Questions) -> Mapping[str, Any]:
        """The recorded answers."""
        known = self._lines.get(digest_of(self.endpoint, self.model, self.question_version, state, questions))
        if known is None:
            raise JudgeUnavailable("this request is not on the cassette")
        answers = Answers(known["answers"])
        answers.input_tokens = known.get("input_tokens")
        answers.model = known.get("model")
        return answers


class Row(NamedTuple):
    """One published answer: for a result of so many characters, so many calls old."""

    chars: int
    age: int
    p_result: float
    p_call: float | None = None


class TableJudge:
    """Answers from a published table: for each unit the row nearest to it in size and age, both on a log scale."""

    is_calibrated = False

    def __init__(self, rows: Iterable[Row], *, name: str = "table", belief: Belief | None = None) -> None:
        self.name = name
        self.belief = belief or Belief()
        self._rows = [(math.log1p(row.chars), math.log1p(row.age), row) for row in rows]
        if not self._rows:
            raise ConfigError("the table has no rows", setting="replay")

    async def judge(self, request: JudgeRequest) -> Verdict:
        """Answer for every candidate."""
        verdict = Verdict()
        newest = len(request.transcript.calls)
        for call in request.candidates:
            size, age = math.log1p(len(call.result or "")), math.log1p(newest - call.number)
            # Of rows equally near the first counts, so that the answer depends on the table alone.
            nearest = min(self._rows, key=lambda row: (row[0] - size) ** 2 + (row[1] - age) ** 2)[2]
            verdict.answers[call.key] = RawAnswer(nearest.p_call, nearest.p_result)
        return verdict


def read_table(path: str | Path) -> list[Row]:
    """Rows of a CSV file with the columns `chars`, `age`, `p_result` and, if known, `p_call`.

    Raises ConfigError for a file that is no such table, or a probability that is none.
    """
    try:
        with Path(path).open(encoding="utf-8", newline="") as file:
            rows = [
                Row(
                    int(r["chars"]),
                    int(r["age"]),
                    float(r["p_result"]),
                    float(r["p_call"]) if r.get("p_call") else None,
                )
                for r in csv.DictReader(file)
            ]
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise ConfigError(f"no table of answers: {type(error).__name__}: {error}", setting="replay") from None
    for number, row in enumerate(rows, 2):
        if not all(0.0 <= p <= 1.0 for p in (row.p_result, row.p_call) if p is not None):
            raise ConfigError(f"line {number} of the table holds no probability", setting="replay")
    return rows
