"""Facts about texts, kept between passes: the work on a text is done once.

Bounded, and keyed by the host's own strings, so nothing is copied.
"""

from __future__ import annotations

import re
from typing import Generic, TypeVar

from jev_engine.atoms import facts_of, kept_atoms_of
from jev_engine.judges.timeline import KeptFacts, UnitFacts
from jev_engine.tools import argument_text, describe_call
from jev_engine.transcript import Entry, ToolCall

__all__ = ["FeatureCache"]

Facts = TypeVar("Facts")

CACHE_CHARS = 30_000_000
"""Characters of text whose facts one generation of the cache may stand for; two generations are kept."""
ERROR_CHARS = 3_000
"""Characters of a result in which an error line is looked for: programs that fail say so early."""
_ERROR_LINE = re.compile(r"\n(?:error|fatal|traceback|panic|exit code [1-9]|fail(?:ed|ure)?\b)")
_COMMAND_KINDS = frozenset(("git", "test", "build", "shell"))
_PLAN_TOOLS = frozenset("todowrite update_plan taskcreate exitplanmode todo".split())
_CODE = frozenset("py go ts tsx js jsx rs java kt c cc cpp h cs rb php sh css scss vue svelte sql proto".split())
_DOCS = frozenset("md mdx txt rst".split())


class FeatureCache:
    """Facts about texts already seen, within a bound: two generations, the older one dropped when the younger is full.

    One per session; keys are the host's own strings, so nothing is copied.
    """

    __slots__ = ("_kept", "_units")

    def __init__(self, limit_chars: int = CACHE_CHARS) -> None:
        self._units: _Generations[UnitFacts] = _Generations(limit_chars)
        self._kept: _Generations[KeptFacts] = _Generations(limit_chars)

    def __len__(self) -> int:
        return len(self._units) + len(self._kept)

    def unit(self, call: ToolCall) -> UnitFacts:
        """Facts about a call and its result."""
        key = (call.tool, call.arguments, call.result, call.is_error)
        found = self._units.get(key)
        if found is None:
            found = _unit_facts(call)
            self._units.add(key, found, found.facts.chars + found.argument_chars)
        return found

    def kept(self, entry: Entry) -> KeptFacts:
        """Facts about a message and the arguments of its calls."""
        key = (entry.text, entry.reasoning, *[call.arguments for call in entry.calls])
        found = self._kept.get(key)
        if found is None:
            found = _kept_facts(entry)
            self._kept.add(key, found, found.chars)
        return found


class _Generations(Generic[Facts]):
    """A cache of two generations."""

    __slots__ = ("_chars", "_limit_chars", "_old", "_young")

    def __init__(self, limit_chars: int) -> None:
        self._limit_chars = limit_chars
        self._young: dict[object, Facts] = {}
        self._old: dict[object, Facts] = {}
        self._chars = 0

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def get(self, key: object) -> Facts | None:
        found = self._young.get(key)
        if found is None and self._old:
            found = self._old.pop(key, None)
            if found is not None:
                self._young[key] = found
        return found

    def add(self, key: object, facts: Facts, chars: int) -> None:
        if self._chars > self._limit_chars:
            self._old, self._young, self._chars = self._young, {}, 0
        self._young[key] = facts
        self._chars += chars


def _unit_facts(call: ToolCall) -> UnitFacts:
    result = call.result or ""
    info = describe_call(call.tool, call.arguments)
    failed = call.is_error
    if not failed and info.kind in _COMMAND_KINDS:
        failed = _ERROR_LINE.search("\n" + result[:ERROR_CHARS].lower()) is not None
    name = info.path.rsplit("/", 1)[-1]
    extension = name.rsplit(".", 1)[-1].lower() if "." in name else ""
    static = (
        info.partial,
        extension in _CODE,
        "test" in info.path.lower() or "spec" in name.lower(),
        extension in _DOCS,
    )
    plan = None
    if info.kind == "meta" and call.tool.lower() in _PLAN_TOOLS:
        plan = kept_atoms_of(argument_text(call.arguments))
    return UnitFacts(facts_of(result), info, failed, static, plan, len(call.arguments))


def _kept_facts(entry: Entry) -> KeptFacts:
    text = entry.text + "\n" + entry.reasoning if entry.reasoning else entry.text
    atoms = kept_atoms_of(text)
    argument_chars = 0
    for call in entry.calls:
        arguments = argument_text(call.arguments)
        argument_chars += len(arguments)
        atoms |= kept_atoms_of(arguments)
    return KeptFacts(atoms, len(text), argument_chars)
