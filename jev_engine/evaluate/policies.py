"""One table of policies: what each takes out at a cut, put to the real engine as the answers of a judge.

A policy is a line of settings and a function from a `View` to answers. Selections such as keep-last-10 answer 0 for
what
goes and 1 for what stays, under a threshold between them; so pins, markers, heads and sizes are the engine's own.
To add a policy, add one entry to `POLICIES`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

from jev_engine.answers import Belief, RawAnswer
from jev_engine.config import EngineConfig
from jev_engine.judges.features import FEATURES, FeatureTable
from jev_engine.transcript import ToolCall

__all__ = ["BASE_RATE", "POLICIES", "Policy", "View", "age_and_size", "choose", "luck", "published_medians"]

Answers = dict[int, RawAnswer]

PINNED = 3
"""The newest results stay in every selection."""
STUB_CHARS = 120
"""Results that are not longer than what a marker saves at least cannot be shortened [config `marker_saves_chars`]."""
BASE_RATE = 0.049
"""Share of results older than three calls that are needed, over 2,262 cuts of 291 public sessions: the constant p."""
RESULT_MEDIAN, CALL_MEDIAN = 0.145, 0.30
"""Published medians of jev-1.13.0 with the shipped wording."""
SCATTER = 0.03
"""Half width of the scatter around them: answers between 0.05 and 0.21 were reported."""
CONTAINED_SHARE = 0.8
"""Share of a result's lines that one later result shows again (one that does supersedes it)."""
CHEAP_KINDS = frozenset(("edit", "meta", "build", "test", "shell"))
"""Kinds of which less than 1 % are needed (docs/evidence-tables.txt, by kind of tool)."""

SELECT: dict[str, Any] = {
    "policy": "threshold",
    "keep_result": 0.5,
    "keep_call": 0.0,
    "pin_newest_calls": PINNED,
    "pin_newest_tokens": 1_000_000_000,
    "pin_short_chars": 0,
    "outcome_chars": 0,
    "guards": False,
    "extra_pins": False,
    "min_freed_share": 0.0,
    "undecided": "keep",
}
"""Settings under which exactly the units answered with 0 are shortened, and no call is removed."""

_SUPERSEDED = FEATURES.index("superseded")


def luck(*names: object) -> float:
    """A number in 0..1 drawn by name: the same in every process and order."""
    digest = blake2b("/".join(map(str, names)).encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest, "big") / 2**64


class View:
    """What a policy may look at: one history as it stood at a cut, and what each judge says about it."""

    __slots__ = ("ages", "asked", "calls", "local", "needed", "place", "rules", "table")

    def __init__(self, table: FeatureTable, place: tuple[object, ...], needed: frozenset[int]) -> None:
        self.table = table
        self.calls: list[ToolCall] = list(table.calls)
        """Calls with a result, in the order of the results."""
        self.ages = {call.number: len(self.calls) - i for i, call in enumerate(self.calls)}
        """Results from this one on: 1 for the newest."""
        self.place = place
        """Seed, session, segment and row: what chance is drawn from."""
        self.needed = needed
        """Call numbers that hindsight calls needed: for the oracle alone."""
        self.local: Answers = {}
        self.rules: Answers = {}
        self.asked: Answers = {}
        """Answers of a judge outside: recorded ones, or published medians with a little scatter."""

    def chars(self, call: ToolCall) -> int:
        """Characters of a result."""
        return len(call.result or "")

    def kind(self, call: ToolCall) -> str:
        """What kind of tool made it."""
        return self.table.timeline.units[self._at(call)].info.kind

    def repeated_later(self, call: ToolCall) -> float:
        """Share of its lines that one later result shows again."""
        return float(self.table.rows[self._at(call)][_SUPERSEDED])

    def touched_later(self, call: ToolCall) -> bool:
        """Whether its file is read or edited again."""
        at = self._at(call)
        timeline = self.table.timeline
        touches = timeline.touches.get(timeline.units[at].info.path, [])
        return any(i > at and timeline.units[i].info.kind in ("read", "edit") for i in touches)

    def _at(self, call: ToolCall) -> int:
        return len(self.calls) - self.ages[call.number]

    def p_local(self, call: ToolCall) -> float:
        """The local judge's P(result needed)."""
        return self.local[call.number].p_result or 0.0

    def luck(self, call: ToolCall) -> float:
        """A number in 0..1 for this unit at this cut."""
        return luck(*self.place, call.number)


_CONFIGS: dict[str, EngineConfig] = {}
"""Checked settings by policy: checking costs more than deciding."""


class Policy(NamedTuple):
    """One way to choose what goes."""

    name: str
    group: str
    """`recency`, `rule`, `head`, `others`, `threshold`, `worth`, `baseline worth`, `budget`, `order` or `bound`."""
    settings: Mapping[str, Any]
    """For `EngineConfig`."""
    answers: Callable[[View], Answers]
    is_gated: bool = False
    """The pass may decline, as shipped; all others free whatever they choose to, so that they can be compared."""
    is_calibrated: bool = True

    def config(self) -> EngineConfig:
        """Its settings, checked."""
        if self.name not in _CONFIGS:
            _CONFIGS[self.name] = EngineConfig(**self.settings)
        return _CONFIGS[self.name]


def published_medians(view: View) -> Answers:
    """What others measured of Jev: every answer near the medians."""

    def near(median: float, *name: object) -> float:
        return median + SCATTER * (2 * luck(*view.place, *name) - 1)

    return {
        call.number: RawAnswer(near(CALL_MEDIAN, "call", call.number), near(RESULT_MEDIAN, "result", call.number))
        for call in view.calls
    }


# Share of results needed by age in calls, and relative to the mean by size in characters,
# measured over 2,262 cuts of 291 public sessions.
_AGES, _BY_AGE = (1, 2, 3, 5, 10, 20, 40, 80, 160), (15.4, 11.4, 10.0, 9.5, 9.4, 7.8, 3.7, 2.1, 1.2, 0.7)
_SIZES, _BY_SIZE = (300, 1_500, 4_000, 10_000, 30_000), (0.1, 0.5, 1.4, 2.6, 4.5, 6.5)
_MOST = 0.6


def age_and_size(view: View) -> Answers:
    """A judge of two tables: how often results of this age are needed, times how often those of this size."""
    answers = {}
    for call in view.calls:
        by_age = _BY_AGE[bisect_left(_AGES, view.ages[call.number])] / 100
        by_size = _BY_SIZE[bisect_left(_SIZES, view.chars(call))]
        answers[call.number] = RawAnswer(1.0, min(_MOST, by_age * by_size))
    return answers


def _out(view: View, is_out: Callable[[ToolCall], bool]) -> Answers:
    return {call.number: RawAnswer(1.0, 0.0 if is_out(call) else 1.0) for call in view.calls}


def _every(view: View) -> Answers:
    return _out(view, lambda _: True)


def _superseded(view: View) -> Answers:
    return _out(view, lambda call: view.kind(call) == "read" and view.touched_later(call))


def _contained(view: View) -> Answers:
    return _out(view, lambda call: view.repeated_later(call) >= CONTAINED_SHARE)


def _cheap_kinds(view: View) -> Answers:
    return _out(view, lambda call: view.kind(call) in CHEAP_KINDS)


def _oracle(view: View) -> Answers:
    return _out(view, lambda call: call.number not in view.needed)


def _local(view: View) -> Answers:
    return view.local


def _rules(view: View) -> Answers:
    return view.rules


def _asked(view: View) -> Answers:
    return view.asked


def _asked_on_local(view: View) -> Answers:
    """The asked judge as evidence on top of the local one, by the prior of `Belief`."""
    prior = Belief().result
    silent = RawAnswer(None, None)
    return {
        number: RawAnswer(mine.p_call, prior.step(mine.p_result, view.asked.get(number, silent).p_result))
        for number, mine in view.local.items()
    }


def _constant(view: View) -> Answers:
    return {call.number: RawAnswer(1.0, BASE_RATE) for call in view.calls}


Order = Callable[[View, ToolCall], float]
ORDERS: dict[str, Order] = {
    "oldest first": lambda view, call: -view.ages[call.number],
    "random": lambda view, call: view.luck(call),
    "largest first": lambda view, call: -view.chars(call),
    "judge, lowest p first": lambda view, call: view.p_local(call),
    "judge, lowest p per character first": lambda view, call: view.p_local(call) / view.chars(call),
    "age and size, lowest p per character first": lambda view, call: (
        (view.rules[call.number].p_result or 0.0) / view.chars(call)
    ),
    "oracle": lambda view, call: (call.number in view.needed) / view.chars(call),
}
"""What goes first when every policy must free the same bytes at every cut; the smallest value goes first."""
SHARES = (0.3, 0.5, 0.7)
"""Shares of the bytes that may go at all."""


def _first(order: Order, share: float) -> Callable[[View], Answers]:
    """Take in this order until so much of the bytes older than the newest results is out."""

    def answers(view: View) -> Answers:
        old = [call for call in view.calls if view.ages[call.number] > PINNED and view.chars(call) > STUB_CHARS]
        total = sum(view.chars(call) for call in old)
        out: set[int] = set()
        taken = 0
        for call in sorted(old, key=lambda call: (order(view, call), call.number)):
            if taken >= share * total:
                break
            out.add(call.number)
            taken += view.chars(call)
        return _out(view, lambda call: call.number in out)

    return answers


def _budget(misses: float) -> Callable[[View], Answers]:
    """Take by lowest p per character while the sum of p stays within a budget of expected misses."""

    def answers(view: View) -> Answers:
        old = [call for call in view.calls if view.ages[call.number] > PINNED and view.chars(call) > STUB_CHARS]
        out: set[int] = set()
        spent = 0.0
        for call in sorted(old, key=lambda call: (view.p_local(call) / view.chars(call), call.number)):
            spent += view.p_local(call)
            if spent > misses:
                break
            out.add(call.number)
        return _out(view, lambda call: call.number in out)

    return answers


def _select(name: str, group: str, answers: Callable[[View], Answers], **settings: Any) -> Policy:
    return Policy(name, group, {**SELECT, **settings}, answers)


THRESHOLDS = (0.05, 0.10, 0.15, 0.20, 0.30, 0.40, 0.50, 0.60, 0.70)
MISS_COSTS = (0.1, 0.3, 0.5, 1, 2, 3, 4, 5, 7, 10, 15, 20, 30)
"""Settings `keep_result` and `miss_cost` (in model calls) at which the local judge is replayed."""
BASELINE_COSTS = (0.1, 0.3, 1, 3, 5, 10, 20, 40)
"""Prices at which the same rule is run without the judge, to meet keep-last-N at its freed share."""
BUDGETS = (0.1, 0.25, 0.5, 0.75, 1.0, 1.5, 2.5, 4.0)
"""Expected misses a pass may spend: the rule the judge was first measured with."""
PIN_LONG = {"pin_short_chars": 1_500}
"""The pins under which peers run Jev: newest three calls and results of at most 1,500 characters."""

POLICIES: tuple[Policy, ...] = (
    Policy("balanced, as shipped", "worth", {}, _local, is_gated=True),
    *[Policy(f"worth {cost:g}", "worth", {"miss_cost": cost}, _local) for cost in MISS_COSTS],
    *[
        Policy(f"worth {cost:g}, constant p", "baseline worth", {"miss_cost": cost}, _constant)
        for cost in BASELINE_COSTS
    ],
    *[
        Policy(f"worth {cost:g}, age and size", "baseline worth", {"miss_cost": cost}, _rules)
        for cost in BASELINE_COSTS
    ],
    *[_select(f"budget {misses:g}", "budget", _budget(misses)) for misses in BUDGETS],
    *[_select(f"keep last {count}", "recency", _every, pin_newest_calls=count) for count in (3, 5, 10, 15, 20)],
    _select("all but the last 3 and short results", "head", _every, **PIN_LONG),
    _select("the same, 300-character head stays", "head", _every, head_chars=300, **PIN_LONG),
    _select("the same, 2,000-character head stays", "head", _every, head_chars=2_000, **PIN_LONG),
    _select("superseded reads by path", "rule", _superseded),
    _select("contained in a later result", "rule", _contained),
    _select("cheap kinds only", "rule", _cheap_kinds),
    Policy("reference, asked judge", "others", {"profile": "reference"}, _asked, is_calibrated=False),
    Policy("hermes-classic, asked judge", "others", {"profile": "hermes-classic"}, _asked, is_calibrated=False),
    Policy("worth 5, asked judge on the local one", "others", {}, _asked_on_local),
    *[_select(f"threshold {at:.2f}", "threshold", _local, keep_result=at) for at in THRESHOLDS],
    *[
        _select(f"{name}, {share:.0%} of bytes", "order", _first(order, share))
        for name, order in ORDERS.items()
        for share in SHARES
    ],
    _select("oracle (hindsight)", "bound", _oracle),
)
"""Every policy there is, in the order of the tables."""


def choose(names: Iterable[str] = ()) -> list[Policy]:
    """The policies whose name or group is among `names`, or all; raises ValueError for a name that matches none."""
    wanted = list(names)
    if not wanted:
        return list(POLICIES)
    for name in wanted:
        if not any(name in (policy.name, policy.group) for policy in POLICIES):
            known = ", ".join(dict.fromkeys(policy.group for policy in POLICIES))
            raise ValueError(f"no policy and no group of policies goes by {name!r}; groups are {known}")
    return [policy for policy in POLICIES if policy.name in wanted or policy.group in wanted]
