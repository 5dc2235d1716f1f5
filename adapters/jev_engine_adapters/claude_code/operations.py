"""From a shortened conversation to what the plugin has to build, so that `claude --resume` finds it again.

Claude Code writes what a plugin returns below a compaction boundary. A row that is returned by its handle keeps its
parent link and its response's id: on resume the walk leaves the boundary through it, and everything that was taken out
comes back. So only plain user rows keep their handle; every other row is built anew:

    {"keep": 0}                          the row itself
    {"merge": [1, 2, 3]}                 one assistant entry from rows of one response; `without` names calls that go
    {"results": [[4, 0], [5, 0, "…"]]}   one user entry with the results of that response, those with a text shortened
    {"results": [], "texts": [4]}        a user entry with the text those rows hold beside their results

Rows are named by `i`. Rows that hold thinking only exist behind their handle and go; they are counted. A result that
is no text, an image most often, is replaced by a line that says where to find it. What came with a result in a row of
its own that no plugin is shown, the text of a skill, is put into the result.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from jev_engine.errors import RebuildError

__all__ = ["Operations", "edited_rows", "resume_safe"]


class Operations(NamedTuple):
    """An ordered list of steps, and what is not in it."""

    steps: list[dict[str, Any]]
    gone: list[int]
    """Rows that nothing is built from."""
    thinking: int
    """How many of them hold thinking only, or other blocks that no plugin is shown."""
    replaced: int
    """Results that are no text, or came with what is none: a line says so in its place."""
    brought: int = 0
    """Results that took in the text that came with them."""


Beside = Mapping[str, tuple[str, int]]
"""By call id: the text that came with a result, and how many blocks came that are no text."""


class _Segment:
    """A response, its results, and the rows of the user behind it."""

    __slots__ = ("assistants", "others", "results")

    def __init__(self) -> None:
        self.assistants: list[dict[str, Any]] = []
        self.results: list[tuple[dict[str, Any], int]] = []
        self.others: list[dict[str, Any]] = []
        """Plain rows of the user, and rows of results that hold text as well."""


def resume_safe(before: Sequence[Any], after: Sequence[Any], beside: Beside | None = None) -> Operations:
    """The steps for a conversation that replaces the host's; `beside` is what came with results.

    Raises RebuildError where a call or a result would not have its partner beside it.
    """
    originals = {entry["i"]: entry for entry in before}
    left = {entry["i"] for entry in after}
    gone = [i for i in originals if i not in left]
    steps: list[dict[str, Any]] = []
    thinking = 0
    building = _Results(originals, _files_by_call(after), beside or {})
    for segment in _segments(after):
        rows = [e["i"] for e in segment.assistants if e["text"] or e["calls"]]
        silent = [e["i"] for e in segment.assistants if not (e["text"] or e["calls"])]
        gone += silent
        thinking += len(silent)
        if rows:
            steps.append(_merge(rows, segment.assistants, originals))
        if segment.results:
            steps.append({"results": [building.result(entry, place) for entry, place in segment.results]})
        steps += [{"results": [], "texts": [e["i"]]} if e["results"] else {"keep": e["i"]} for e in segment.others]
    done = Operations(steps, sorted(gone), thinking, building.replaced, building.brought)
    _check_pairs(done, originals)
    return done


def edited_rows(before: Sequence[Any], after: Sequence[Any]) -> Operations:
    """The steps for a conversation that is only read, by the host's own summariser: untouched rows by their handle."""
    originals = {entry["i"]: entry for entry in before}
    left = {entry["i"] for entry in after}
    building = _Results(originals, {}, {})
    steps: list[dict[str, Any]] = []
    for entry in after:
        i = entry["i"]
        if entry is originals[i]:
            steps.append({"keep": i})
        elif entry["role"] == "assistant":
            steps.append(_merge([i], [entry], originals))
        else:
            results = [building.result(entry, place) for place in range(len(entry["results"]))]
            steps.append({"results": results, **({"texts": [i]} if entry["text"] else {})})
    return Operations(steps, [i for i in originals if i not in left], 0, 0)


def _segments(after: Sequence[Any]) -> list[_Segment]:
    """Rows of one response follow each other up to the next row of the user; no id of the response is known here.

    A result goes to the response that made its call, also where tools that ran while the response was still being
    written left the rows in another order.
    """
    current = _Segment()
    segments = [current]
    owners: dict[Any, _Segment] = {}
    for entry in after:
        if entry["role"] == "assistant":
            if current.results or current.others:
                current = _Segment()
                segments.append(current)
            current.assistants.append(entry)
            owners.update({call["id"]: current for call in entry["calls"]})
            continue
        for place, result in enumerate(entry["results"]):
            owners.get(result["id"], current).results.append((entry, place))
        if entry["text"] or not entry["results"]:
            current.others.append(entry)
        elif not current.results:
            # Its results went to an earlier response; the next assistant row begins another one all the same.
            current = _Segment()
            segments.append(current)
    return segments


def _merge(rows: list[int], entries: Sequence[Any], originals: dict[int, Any]) -> dict[str, Any]:
    kept = {id(call) for entry in entries for call in entry["calls"]}
    without = [call["id"] for i in rows for call in originals[i]["calls"] if id(call) not in kept]
    return {"merge": rows, **({"without": without} if without else {})}


class _Results:
    """Builds results, and counts what they could not keep or had to take in."""

    def __init__(self, originals: dict[int, Any], files: dict[Any, str], beside: Beside) -> None:
        self._originals = originals
        self._files = files
        self._beside = beside
        self.replaced = self.brought = 0

    def result(self, entry: dict[str, Any], place: int) -> list[Any]:
        """One result as the plugin is told to build it."""
        result = entry["results"][place]
        original = self._originals[entry["i"]]["results"]
        at = next((n for n, each in enumerate(original) if each is result or each["id"] == result["id"]), place)
        text: str = result["text"]
        extra, others = self._beside.get(result["id"], ("", 0))
        parts = [text] if text else []
        if extra and extra not in text:
            self.brought += 1
            parts.append(extra)
        if result.get("nontext") or others:
            self.replaced += 1
            where = self._files.get(result["id"], "")
            parts.append(f"[jev-engine: an image or other content of this result could not be carried over{where}]")
        shown = "\n".join(parts)
        return [entry["i"], at] if shown == original[at]["text"] else [entry["i"], at, shown]


def _files_by_call(after: Sequence[Any]) -> dict[Any, str]:
    made = {}
    for entry in after:
        for call in entry["calls"]:
            given = call.get("input")
            path = given.get("file_path") if isinstance(given, dict) else None
            made[call["id"]] = f"; it is in {path}" if isinstance(path, str) else "; call the tool again to have it"
    return made


def _check_pairs(made: Operations, originals: dict[int, Any]) -> None:
    """Every result stands directly behind the response that holds its call, and no row is lost or built twice.

    Raises RebuildError. A result whose call is nowhere in the conversation is the host's to mend, as it was before.
    """
    calls = {call["id"] for entry in originals.values() for call in entry["calls"]}
    waiting: set[Any] = set()
    seen: list[int] = list(made.gone)
    for step in made.steps:
        if "merge" in step:
            out = set(step.get("without", ()))
            waiting = {call["id"] for i in step["merge"] for call in originals[i]["calls"]} - out
            seen += step["merge"]
        elif step.get("results"):
            for i, place, *_ in step["results"]:
                found = originals[i]["results"][place]["id"]
                if found in calls and found not in waiting:
                    raise RebuildError(f"the result of {found!r} would not stand behind its call")
                waiting.discard(found)
            seen += dict.fromkeys(i for i, *_ in step["results"])
        else:
            waiting = set()
            seen += [step["keep"]] if "keep" in step else []
    if set(seen) != set(originals):
        raise RebuildError("a row would be lost")
    kept = [i for step in made.steps for i in (step.get("merge") or ([step["keep"]] if "keep" in step else []))]
    if len(kept) != len(set(kept)):
        raise RebuildError("a row would be built twice")
