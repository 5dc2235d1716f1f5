"""A pass from its start to its one end: committed, discarded or abandoned."""

from __future__ import annotations

from functools import cache, cached_property
from itertools import chain
from typing import Any, Literal, NamedTuple, get_type_hints

from pydantic import BaseModel, ConfigDict, TypeAdapter, model_validator

from jev_engine.events.event import Event

__all__ = [
    "Abandoned", "Committed", "Content", "Decided", "Discarded", "PassStarted", "Pinned", "Proposed", "Rule",
    "Unit",
]  # fmt: skip

Action = Literal["keep", "truncate", "remove"]


class PassStarted(Event):
    """A pass has begun. A start without an end is a pass that its process did not survive."""

    kind: Literal["pass_started"] = "pass_started"
    messages: int
    calls: int
    tokens: int
    """Prompt tokens as the host says, or as estimated."""
    window_tokens: int
    is_forced: bool
    target_free_tokens: int | None = None
    """A forced pass goes on until so many tokens are freed; None where no target was set."""
    already_out: int = 0
    """Units that were out when it began. Where there are none, no pass looks for calls that are made again."""
    is_dry: bool
    cache_is_cold: bool
    key_digest: str
    """Of the key of all digests here, so that another key is not taken for another history."""
    input_digest: str
    """Keyed digest of all texts, arguments and results of the input."""
    settings: dict[str, Any]
    """What differs from the profile; patterns and the goal, which are the user's words, by number or length only."""


class Pinned(Event):
    """Units that are not judged: numbers of calls by reason and by tool. Large passes send several."""

    kind: Literal["pinned"] = "pinned"
    candidates: int
    reasons: dict[str, list[int]]
    tools: dict[str, list[int]]
    chars: list[int]
    """Lengths of their results, in the order of the numbers."""
    references: dict[int, str] | None = None
    """By number: the keyed id of the original, of units that are already out."""

    @model_validator(mode="after")
    def _fits(self) -> Pinned:
        numbers = sorted(chain.from_iterable(self.reasons.values()))
        by_tool = sorted(chain.from_iterable(self.tools.values()))
        if numbers != by_tool or not len(numbers) == len(set(numbers)) == len(self.chars):
            raise ValueError("reasons, tools and lengths are not those of the same units")
        return self


class Rule(BaseModel):
    """What a decision was measured by."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    policy: str
    price_limit: float | None = None
    """Policy `worth`: units up to this price (loss over gain) go, unless the target asks for more."""
    keep_result: float | None = None
    keep_call: float | None = None
    state_stage: str | None = None
    """How far the state was shrunk that the judge was shown."""
    judge: str | None = None
    question_version: str | None = None
    local_version: str | None = None
    """Of the weights of the judge on this machine."""
    uses_memory: bool = False
    """It knew this project from earlier sessions."""


class Content(BaseModel):
    """Words of the session; only where the user asked for them with `audit_content`."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    arguments: str
    result: str
    text: str
    """What replaced the result."""


class Unit(NamedTuple):
    """What became of one unit, and why."""

    number: int
    """The call's number; `t12` is number 12."""
    tool: str
    action: Action
    reason: str
    guard: str | None
    """What held a unit back, or held it to less: `frozen`, `removal limit`, `no answer`, …"""
    by: str | None
    """`judge`, `local` or `judge+local`; None where nobody answered."""
    p_call: float | None
    p_result: float | None
    """P(needed) as believed, after calibration."""
    raw_call: float | None
    raw_result: float | None
    """As the judge said it."""
    price: float | None
    """Policy `worth`: loss over gain; None where nothing would be gained."""
    chars: int
    chars_after: int
    freed_tokens: int
    window: int | None
    """Which part of the history the judge was shown, from 1; None where it was not asked."""
    reference: str | None
    """The keyed id of the original, for units that went out."""
    text_digest: str | None
    """Keyed digest of what replaced the result."""

    @property
    def label(self) -> str:
        """The unit's short name."""
        return f"t{self.number}"


# Columns that no decision is without.
ALWAYS_KNOWN = frozenset({"number", "tool", "action", "reason", "chars", "chars_after", "freed_tokens"})


@cache
def _readers() -> dict[str, TypeAdapter[list[Any]]]:
    """What may stand in each column."""
    return {name: TypeAdapter(list[hint]) for name, hint in get_type_hints(Unit).items()}  # type: ignore[valid-type]


class Decided(Event):
    """Units were decided, kept ones too. Large passes send several.

    Written by columns, which costs a third of what rows cost; a column in which nothing is known is left out.
    """

    kind: Literal["decided"] = "decided"
    rule: Rule
    columns: dict[str, list[Any]]
    """Values by the names of `Unit`'s fields, each in the order of the units."""
    contents: dict[int, Content] | None = None
    """By call number."""

    @model_validator(mode="after")
    def _fits(self) -> Decided:
        readers = _readers()
        if not ALWAYS_KNOWN <= self.columns.keys() <= readers.keys():
            raise ValueError("columns are not those of a decision")
        if len({len(column) for column in self.columns.values()}) != 1:
            raise ValueError("columns differ in length")
        for name, column in self.columns.items():
            readers[name].validate_python(column, strict=True)
        return self

    @cached_property
    def units(self) -> list[Unit]:
        """The units, a row each."""
        empty = [None] * len(self.columns["number"])
        columns = [self.columns.get(name, empty) for name in Unit._fields]
        return [Unit(*row) for row in zip(*columns, strict=True)]


class Proposed(Event):
    """What the pass wants, before anything leaves: written ahead of the deed."""

    kind: Literal["proposed"] = "proposed"
    outcome: str
    truncated: int
    removed: int
    kept: int
    freed_tokens: int
    expected_misses: float
    is_calibrated: bool
    break_even_calls: float | None = None


class Committed(Event):
    """The shorter history was given back."""

    kind: Literal["committed"] = "committed"
    outcome: str
    reason: str
    freed_tokens: int
    tokens_before: int
    tokens_after: int
    messages_after: int
    expected_misses: float
    output_digest: str
    """Keyed digest over the input's digest and every replacement in force."""
    ms: float
    warnings: int = 0


class Discarded(Event):
    """Nothing changed: too little to gain, a dry run, or nothing to take out."""

    kind: Literal["discarded"] = "discarded"
    outcome: str
    reason: str
    freed_tokens: int = 0
    expected_misses: float = 0.0
    ms: float = 0.0


class Abandoned(Event):
    """A pass failed or was cancelled; the history is as it was."""

    kind: Literal["abandoned"] = "abandoned"
    reason: str
    """The name of the error; its words may quote a history."""
    ms: float = 0.0
