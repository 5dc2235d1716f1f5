"""Sessions replayed turn by turn through the real rooms: trigger, engine, zones, ledger, store.

Before every model call the trigger is told the size of the prompt; when it says so, the engine makes a pass, and the
history goes on as the engine left it. What hindsight calls needed and is out is fetched again: it comes back behind
the history, stays, and costs calls. Every call is billed by what the provider has in its cache.

One unit throughout: four characters are a token, in the prompt, for the engine (by its public `counter`) and on the
bill. The engine's own estimate counts code about a sixth higher; then windows are full sooner and nothing else differs.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from jev_engine.decisions import ANSWER_TOKENS
from jev_engine.engine import ContextEngine
from jev_engine.evaluate.corpus import Segment, Session
from jev_engine.evaluate.hindsight import THETA, Evidence, look_back, tokens_of
from jev_engine.evaluate.turn_arms import Arm, ArmJudge, FrozenZone
from jev_engine.evaluate.vocabulary import Vocabulary
from jev_engine.judges.features import FeatureCache
from jev_engine.ledger import Ledger
from jev_engine.plugins import load_plugins
from jev_engine.result import CompressionResult
from jev_engine.store.memory import MemoryStore
from jev_engine.triggers import Due, Trigger, free_target, is_due

if TYPE_CHECKING:
    from jev_engine.evaluate.fold_models import Forest

__all__ = ["CHARS_PER_TOKEN", "SYSTEM_TOKENS", "Context", "Turns", "Walk", "contexts_of", "replay_turns"]

Message = dict[str, Any]

HOST = "openai"
CHARS_PER_TOKEN = 4
"""How the replay counts: the same for every arm, and what it takes for the tokens of a prompt."""
SYSTEM_TOKENS = 20_000
"""System prompt and tool definitions: first calls of the recorded hosts used 2,000 (pi) to 42,000 (Claude Code)."""
SECONDS_PER_CALL = 20.0
"""For the trigger's clock, which backs off from passes within five minutes of each other: fifteen calls here."""
REFETCH_CHARS = 12_000
"""A result that is fetched again comes back up to this size: readers page through larger ones."""
SUMMARY_TOKENS = 2_500
"""Length of a host's summary."""
SUMMARY_KEEPS = 3
"""So many newest results follow a summary unchanged."""


class Turns(NamedTuple):
    """How sessions are replayed."""

    windows: tuple[int, ...] = (100_000, 200_000)
    """Context windows, in tokens."""
    arms: tuple[str, ...] = ()
    """Names, see `choose_arms`."""
    system_tokens: int = SYSTEM_TOKENS
    is_joined: bool = False
    """Whole sessions across their real compactions; their labels understate misses."""


class Context:
    """One recorded context and what hindsight knows about it."""

    def __init__(self, segment: Segment, vocabulary: Vocabulary) -> None:
        self.name = f"{segment.session.session_id}/{segment.number}"
        self.number = segment.number
        self.messages = segment.messages
        self.units = segment.units
        self.unit_at = {unit.result_row: i for i, unit in enumerate(segment.units)}
        """Index of the unit whose result stands in a row."""
        self.chars = [0] * len(segment.messages)
        """What each row takes of the prompt: text and arguments, or a result."""
        for entry in segment.transcript.entries:
            self.chars[entry.row] += len(entry.text) + sum(len(call.arguments) for call in entry.calls)
        for unit in segment.units:
            self.chars[unit.result_row] += len(unit.result or "")
        self.needs: dict[int, list[Evidence]] = defaultdict(list)
        """Evidence by the row that uses it."""
        for each in look_back(segment.transcript, vocabulary.of_project(segment.session.project)).evidence:
            self.needs[each.used_at].append(each)

    @property
    def total_tokens(self) -> float:
        """Its size at the end, without the system prompt."""
        return sum(self.chars) / CHARS_PER_TOKEN


def count_tokens(text: str) -> int:
    """Four characters a token, rounded up."""
    return -(-len(text) // CHARS_PER_TOKEN)


class Walk:
    """One context under one arm: the history as its host holds it, and what it has cost so far."""

    def __init__(self, context: Context, arm: Arm, engine: ContextEngine, zone: FrozenZone, system_tokens: int) -> None:
        self.context = context
        self.arm = arm
        self.engine = engine
        self.config = engine.config
        self.trigger = Trigger(engine.config)
        self.ledger = Ledger()
        self.rows: list[Message] = []
        """The history as it stands."""
        self.originals: list[Message] = []
        """The same rows as they would stand without any pass."""
        self.passes: list[dict[str, Any]] = []
        self.tally = dict.fromkeys(
            ("calls", "bill", "extra", "misses", "refetched", "breaks", "declined", "handovers", "failed", "over",
             "most"), 0.0)  # fmt: skip
        self._zone = zone
        self._system_tokens = system_tokens
        self._chars: list[int] = []
        self._carries: list[int] = []
        """For each row the unit whose whole result it shows, -1 for none."""
        self._shown = [0] * len(context.units)
        """In how many rows each unit's result stands whole."""
        self._left = [""] * len(context.units)
        """What a pass left of it."""
        self._out_since = [-1] * len(context.units)
        self._asked: set[str] = set()
        self._total_chars = 0
        self._cached_tokens = 0.0
        self._copies = 0
        self._last_pass_call = 0.0

    @property
    def prompt_tokens(self) -> float:
        """Size of the prompt of a call made now."""
        return self._system_tokens + self._total_chars / CHARS_PER_TOKEN

    async def run(self) -> dict[str, Any]:
        """All calls of the context; the record of them, in numbers."""
        for row, message in enumerate(self.context.messages):
            if message["role"] == "assistant":
                await self._call(row)
            self._append(message, self.context.chars[row], self.context.unit_at.get(row, -1))
        return {"passes": self.passes, **self.tally}

    def _append(self, message: Message, chars: int, unit: int = -1) -> None:
        self.rows.append(message)
        self.originals.append(message)
        self._chars.append(chars)
        self._carries.append(unit)
        self._total_chars += chars
        if unit >= 0:
            self._shown[unit] += 1

    async def _call(self, row: int) -> None:
        """The model is called: perhaps a pass, then the bill, then what turns out to be missing."""
        tally = self.tally
        tally["calls"] += 1
        first_changed = None
        if self.arm.way != "none":
            self.trigger.report(round(self.prompt_tokens))
            if due := self.trigger.due():
                first_changed = await self._pass(due)
        prompt = self.prompt_tokens
        cached = min(self._cached_tokens, prompt)
        if first_changed is not None:
            tally["breaks"] += 1
            cached = min(cached, self._system_tokens + sum(self._chars[:first_changed]) / CHARS_PER_TOKEN)
        tally["bill"] += self.config.read_price * cached + self.config.write_price * (prompt - cached)
        self._cached_tokens = prompt
        tally["over"] += prompt > self.config.window_tokens
        tally["most"] = max(tally["most"], prompt)
        for unit, number in self._missing(row):
            self._fetch_again(unit, number)

    async def _pass(self, due: Due) -> int | None:
        """A pass, or a summary in its place; the first row that changed."""
        before = self.prompt_tokens
        if self.arm.way == "summary":
            if not self._hand_over():
                return None
            self._noted(_record(before, self.prompt_tokens, None, is_handover=True))
            self._ended("committed")
            return 0
        self._zone.first_row = self._frozen_rows() if self.arm.thaw == "never" else 0
        done = await self.engine.compress(
            self.rows,
            round(before),
            force=due.is_forced,
            host=HOST,
            session=self.context.name,
            ledger=self.ledger,
            cache_is_cold=self.arm.thaw == "always",
        )
        self.ledger = done.ledger
        first_changed = self._take(done)
        fresh = {decision.call.key for decision in done.decisions} - self._asked
        self._asked |= fresh
        if done.outcome == "failed":
            self.tally["failed"] += 1
        after = self.prompt_tokens
        # A host summarises when pruning is at its end and there is still no room to work in.
        is_spent = done.outcome == "over_capacity" or (due.is_forced and done.outcome == "nothing_to_prune")
        wants_room = is_spent and self.config.handover == "host" and is_due(round(after), self.config)
        is_handover = wants_room and self._hand_over()
        if first_changed is None and not is_handover:
            self.tally["declined"] += 1
        else:
            record = _record(before, after, done, is_handover=is_handover)
            record["forced"] = int(due.is_forced)
            record["judged"], record["fresh"] = len(done.decisions), len(fresh)
            record["reached"] = int(free_target(round(after), self.config) == 0)
            self._noted(record)
        self._ended(done.outcome)
        return 0 if is_handover else first_changed

    def _noted(self, record: dict[str, Any]) -> None:
        calls = self.tally["calls"]
        self.passes.append({**record, "since": calls - self._last_pass_call})
        self._last_pass_call = calls

    def _ended(self, outcome: str) -> None:
        now = self.tally["calls"] * SECONDS_PER_CALL
        self.trigger.ended(outcome, tokens_after=round(self.prompt_tokens), now=now)

    def _frozen_rows(self) -> int:
        changed = [row for row, message in enumerate(self.rows) if message is not self.originals[row]]
        return changed[-1] + 1 if changed else 0

    def _take(self, done: CompressionResult) -> int | None:
        """The history as the pass left it; the first row that changed."""
        if done.messages is self.rows:
            return None
        if list(done.index_map) != list(range(len(self.rows))):
            raise ValueError("these arms shorten results; none of them removes rows")
        changed = [row for row, new in enumerate(done.messages) if new is not self.rows[row]]
        self.rows = list(done.messages)
        for row in changed:
            text = self.rows[row]["content"]
            self._total_chars += len(text) - self._chars[row]
            self._chars[row] = len(text)
            self._lose(row, text)
        return min(changed, default=None)

    def _lose(self, row: int, left: str) -> None:
        unit, self._carries[row] = self._carries[row], -1
        if unit >= 0:
            self._shown[unit] -= 1
            self._left[unit] = left
            self._out_since[unit] = len(self.passes)

    def _hand_over(self) -> bool:
        """The host's own summary of everything but the newest results; False where there is nothing before them."""
        results = [row for row, message in enumerate(self.rows) if message["role"] == "tool"]
        if len(results) <= SUMMARY_KEEPS:
            return False
        start = results[-SUMMARY_KEEPS]
        while self.rows[start]["role"] == "tool":
            start -= 1
        tally = self.tally
        tally["handovers"] += 1
        tally["bill"] += self.config.read_price * self.prompt_tokens + self.config.output_price * SUMMARY_TOKENS
        for row in range(start):
            self._lose(row, "")
        chars = SUMMARY_TOKENS * CHARS_PER_TOKEN
        summary = {"role": "user", "content": "." * chars, "meta": True}
        self.rows, self.originals = [summary, *self.rows[start:]], [summary, *self.originals[start:]]
        self._chars, self._carries = [chars, *self._chars[start:]], [-1, *self._carries[start:]]
        self._total_chars = sum(self._chars)
        return True

    def _missing(self, row: int) -> list[tuple[int, int]]:
        """Units the agent needs in this row and cannot see, each with the pass that took the last of it."""
        points: dict[int, int] = defaultdict(int)
        since: dict[int, int] = {}
        for each in self.context.needs.get(row, ()):
            if not any(self._shows(holder, each.token) for holder in each.holders):
                points[each.unit] += each.points
                latest = max(self._out_since[holder] for holder in each.holders)
                since[each.unit] = max(latest, since.get(each.unit, -1))
        return [(unit, since[unit]) for unit, total in sorted(points.items()) if total >= THETA]

    def _shows(self, unit: int, token: bytes) -> bool:
        return self._shown[unit] > 0 or (bool(self._left[unit]) and token in tokens_of(self._left[unit]))

    def _fetch_again(self, unit: int, number: int) -> None:
        """The agent makes the call once more: the result comes back behind the history."""
        tally = self.tally
        tally["misses"] += 1
        tally["extra"] += self.config.read_price * self.prompt_tokens + self.config.output_price * ANSWER_TOKENS
        if 0 <= number < len(self.passes):
            self.passes[number]["missed"] += 1
        call = self.context.units[unit]
        self._copies += 1
        text = (call.result or "")[:REFETCH_CHARS]
        made = {"name": call.tool, "arguments": call.arguments}
        name = f"again-{self._copies}"
        ask = {"id": name, "type": "function", "function": made}
        self._append({"role": "assistant", "content": "", "tool_calls": [ask]}, len(call.arguments))
        self._append({"role": "tool", "tool_call_id": name, "content": text}, len(text), unit)
        tally["refetched"] += len(text) / CHARS_PER_TOKEN


def _record(before: float, after: float, done: CompressionResult | None, *, is_handover: bool) -> dict[str, Any]:
    stats = None if done is None else done.stats
    return {
        "before": round(before),
        "after": round(after),
        "expected": 0.0 if stats is None else round(stats.expected_misses, 5),
        "missed": 0,
        "judged": 0,
        "fresh": 0,
        "thawed": 0 if stats is None else int(stats.is_thawed),
        "even": None if stats is None else stats.break_even_calls,
        "reached": 1,
        "forced": 0,
        "handover": int(is_handover),
    }


def contexts_of(session: Session, *, is_joined: bool) -> list[Segment]:
    """The uninterrupted contexts of a session, or the whole of it as if its real compactions had not been."""
    if not is_joined:
        return session.segments()
    kept = [m for m in session.messages if not m.get("compact_boundary") and not m.get("compact_summary")]
    return Session(session.session_id, session.project, session.harness, kept).segments()


def replay_turns(
    session: Session,
    arms: Sequence[Arm],
    turns: Turns,
    vocabulary: Vocabulary,
    forest: Forest | None = None,
) -> dict[str, Any]:
    """All contexts of a session that reach the default trigger, under all arms, as plain JSON values; no texts."""
    found = []
    for segment in contexts_of(session, is_joined=turns.is_joined):
        chars = sum(len(m.get("content") or "") for m in segment.messages)
        chars += sum(len(unit.arguments) for unit in segment.units)
        known: Context | None = None
        judge = ArmJudge(FeatureCache(), forest)
        for window in turns.windows:
            tokens = turns.system_tokens + chars / CHARS_PER_TOKEN
            if not is_due(round(tokens), arms[0].config(window)):
                continue
            known = known or Context(segment, vocabulary)
            found.append(asyncio.run(_replay_context(known, arms, window, turns.system_tokens, judge)))
    return {
        "session": session.session_id,
        "project": session.project,
        "harness": session.harness,
        "unseen": forest is not None,
        "contexts": found,
    }


async def _replay_context(
    context: Context, arms: Sequence[Arm], window: int, system_tokens: int, judge: ArmJudge
) -> dict[str, Any]:
    """One engine for all arms: texts are worked on once; each arm has a store and a ledger of its own."""
    zone = FrozenZone()
    engine = ContextEngine(judge=judge, plugins=load_plugins([zone], entry_points=False), counter=count_tokens)
    record: dict[str, Any] = {"segment": context.number, "window": window, "arms": {}}
    for arm in arms:
        engine.config, engine.store, judge.way = arm.config(window), MemoryStore(), arm.way
        record["arms"][arm.name] = await Walk(context, arm, engine, zone, system_tokens).run()
    return record
