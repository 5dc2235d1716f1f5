"""One pass: its numbers, its events, and the steps that need the outside world.

The order of the steps is in `engine.ContextEngine.compress`; what they compute is in the rooms they call.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from anyio import to_thread

from jev_engine import events
from jev_engine.answers import Belief, Evidence, Probability, RawAnswer
from jev_engine.collector import held_back
from jev_engine.config import EngineConfig
from jev_engine.decisions import Decision, weigh
from jev_engine.economics import count, settle
from jev_engine.errors import RebuildError, StoreError
from jev_engine.host import Adapter, RowChange
from jev_engine.judges import Judge, JudgeRequest, Verdict
from jev_engine.judges.asking import answered
from jev_engine.judges.local import LocalJudge
from jev_engine.judges.paid import PaidAnswers
from jev_engine.ledger import KeyCache, Ledger, LedgerEntry, assign_keys
from jev_engine.markers import shorten
from jev_engine.pinning import Pins, shorten_only
from jev_engine.rebuild import Rebuilt
from jev_engine.recognition import find_markers, find_pages, session_of
from jev_engine.result import CompressionResult, CompressionStats, Outcome
from jev_engine.sizes import Sizes
from jev_engine.store import Original, OriginalStore
from jev_engine.store.restore import record_pass
from jev_engine.trail import Trail
from jev_engine.transcript import ToolCall, Transcript
from jev_engine.triggers import free_target, is_forced
from jev_engine.zones import Ruler, Zone, choose_zone, first_row_of, frozen_rows, worth_of

__all__ = ["Pass"]

# Calls for which a result that was asked back stays.
EXPANDED_CALLS = 10
# Stands in for references where nothing is stored.
NO_REFERENCE = "jx-" + "0" * 16


def _take(verdict: Verdict, stats: CompressionStats) -> None:
    stats.requests, stats.windows = verdict.requests, verdict.windows
    stats.state_stage, stats.state_tokens = verdict.state_stage, verdict.state_tokens
    stats.hidden, stats.failures = verdict.hidden, verdict.failures
    stats.judge_tokens, stats.judge_price = verdict.input_tokens, verdict.price
    stats.judge_model, stats.privacy = verdict.model, verdict.privacy
    stats.settled, stats.saved_tokens = verdict.settled, verdict.saved_tokens
    stats.saved_price = verdict.saved_price
    stats.warnings.extend(verdict.warnings)


class Pass:
    """What one call of `compress` knows so far."""

    def __init__(
        self,
        config: EngineConfig,
        messages: Sequence[Any],
        sinks: Iterable[Any],
        *,
        force: bool,
        is_dry: bool,
        cache_is_cold: bool = False,
        paid: PaidAnswers | None = None,
        waits_for_host: bool = False,
    ) -> None:
        self.waits_for_host = waits_for_host
        self.config = config
        self.messages = messages
        self.is_forced = force
        self.is_dry = is_dry
        self.cache_is_cold = cache_is_cold
        self.paid = paid
        self.zone = Zone(0, is_thawed=False, reason="nothing is frozen yet")
        self.session = ""
        self.transcript = Transcript((), [], [], Counter())
        self.ledger = self._ledger_before = Ledger()
        self.repeated: set[str] = set()
        self.pages: dict[int, str] = {}
        self.pins = Pins()
        self.decisions: list[Decision] = []
        self.stats = CompressionStats()
        self.target_free_tokens: int | None = None
        self.outcome: Outcome = "failed"
        self.reason = ""
        self._has_judge = self._has_news = False
        self._judge_name: str | None = None
        self.trail = Trail(sinks)
        self._started = time.perf_counter()

    async def recognise(
        self, transcript: Transcript, ledger: Ledger | None, session: str | None, store: OriginalStore, keys: KeyCache
    ) -> None:
        """Name the session, find what is our own work in the history, and give units their keys."""
        self.transcript = transcript
        self.session = self.trail.session = session or session_of(transcript)
        self._ledger_before = Ledger() if ledger is None else ledger
        self.ledger = await find_markers(
            transcript,
            self._ledger_before,
            store,
            kept_chars=self.config.head_chars + self.config.outcome_chars,
            warnings=self.stats.warnings,
        )
        self.repeated = assign_keys(transcript, self.ledger, keys)
        self.pages = await find_pages(transcript.calls, store)
        self.stats.look_backs = len(self.pages)

    def stays_for_now(self, call: ToolCall) -> str | None:
        """A pin rule: what the agent has asked back stays for the next calls."""
        is_fresh = call.number > len(self.transcript.calls) - EXPANDED_CALLS
        return "expanded" if is_fresh and call.number in self.pages else None

    def measured(self, sizes: Sizes, current_tokens: int | None, adapter: Adapter) -> None:
        """Take in sizes; from here on it is known whether the pass is forced, and to which target."""
        self.sizes = sizes
        self.ruler = Ruler(self.transcript, sizes)
        self.adapter = adapter
        stats = self.stats
        stats.messages_before = stats.messages_after = len(self.messages)
        stats.chars_before = stats.chars_after = sizes.chars
        stats.tokens_before = stats.tokens_after = sizes.total_tokens
        stats.calls = len(self.transcript.calls)
        stats.odd = dict(self.transcript.odd)
        prompt_tokens = sizes.total_tokens if current_tokens is None else current_tokens
        self.is_forced = self.is_forced or is_forced(prompt_tokens, self.config)
        if self.is_forced:
            self.target_free_tokens = free_target(prompt_tokens, self.config)
        self.trail.host = adapter.name
        flags = {"is_forced": self.is_forced, "is_dry": self.is_dry, "cache_is_cold": self.cache_is_cold}
        sizes_told = {"tokens": prompt_tokens, "target_free_tokens": self.target_free_tokens}
        self.trail.started(self.transcript, self.config, already_out=len(self.ledger), **sizes_told, **flags)
        if self.ledger:
            self.trail.looked_back(self.transcript)

    def pinned(self, pins: Pins) -> None:
        """Take in which units may be judged."""
        self.pins = pins
        self.stats.pinned = pins.counts()
        self.stats.best_gain_tokens = sum([call.tokens for call in pins.candidates])
        self.trail.pinned(len(pins.candidates), pins.reasons, self.transcript.calls)

    async def judged(self, judge: Judge | None, goal: str | None, focus: str | None) -> Verdict:
        """Ask the judge about what it has not been paid for yet; a judge that fails leaves units undecided."""
        self._has_judge = judge is not None
        candidates = self.pins.candidates
        by_threshold = self.config.policy == "threshold" and self.config.keep_result < 1
        if judge is None and by_threshold and candidates:
            self.stats.warnings.append(
                "thresholds are meant for raw answers of Jev; the local judge is calibrated and seldom reaches them, "
                "so nearly everything goes: prefer policy 'worth'"
            )
        if judge is None or not candidates:
            return Verdict()
        version = getattr(judge, "version", judge.name)
        under = f"{goal or self._first_words()}\0{focus or ''}"
        # Answers of a calibrated judge change with age, as the local judge's do: only others are kept.
        paid = None if judge.is_calibrated else self.paid
        known = {} if paid is None else paid.known(version, under, [call.key for call in candidates])
        asked = [call for call in candidates if call.key not in known] if known else candidates
        self.stats.is_calibrated = judge.is_calibrated
        self._judge_name = judge.name
        self.trail.asking(judge, len(asked), len(known), self.config)
        verdict = await self._ask(judge, asked, goal, focus) if asked else Verdict()
        if paid is not None:
            paid.add(version, under, verdict.answers)
            verdict.answers = {**known, **paid.known(version, under, verdict.answers)}
        _take(verdict, self.stats)
        self.stats.remembered = len(known)
        self.trail.judged(judge.name, verdict, len(known))
        return verdict

    def _first_words(self) -> str:
        # The goal as it is read from a history changes with every message; what the session began with does not.
        return next((e.text for e in self.transcript.entries if e.is_human and e.text.strip()), "")

    async def _ask(self, judge: Judge, asked: list[ToolCall], goal: str | None, focus: str | None) -> Verdict:
        try:
            return await answered(judge, JudgeRequest(self.transcript, asked, goal, focus, self.pins.rows, self.config))
        except Exception as error:  # noqa: BLE001  # a judge is somebody else's: its fault leaves units undecided
            self.stats.is_calibrated = True
            # What was sent although nobody answered counts all the same.
            sent = getattr(error, "verdict", None)
            verdict = sent if isinstance(sent, Verdict) else Verdict()
            verdict.answers, verdict.failures = {}, [f"{type(error).__name__}: {error}"]
            return verdict
        except BaseException as error:
            # Cancelled: nobody waits for answers any more, but what was sent is told.
            if isinstance(sent := getattr(error, "verdict", None), Verdict):
                self.trail.judged(judge.name, sent)
            raise

    def left_to_local(self, verdict: Verdict) -> list[ToolCall]:
        """Candidates the local judge has to answer for: those without an answer, or all where answers are evidence."""
        candidates = self.pins.candidates
        if self._has_judge and self.config.undecided == "keep" and self.config.policy == "threshold":
            return []
        if self.stats.is_calibrated or (self._has_judge and self.config.policy == "threshold"):
            answers = verdict.answers
            return [call for call in candidates if call.key not in answers]
        return candidates

    def weighed(
        self, verdict: Verdict, local: Mapping[str, RawAnswer], evidence: Evidence | Belief
    ) -> dict[str, Probability]:
        """Probabilities by unit key, from the judge's answers and the local judge's."""
        probabilities, warning = weigh(
            self.pins.candidates,
            verdict.answers,
            local,
            is_calibrated=self.stats.is_calibrated,
            evidence=evidence,
            local_decides=not self._has_judge or self.config.undecided == "local",
            config=self.config,
        )
        if warning is not None:
            self.stats.warnings.append(warning)
        return probabilities

    def shorten_only(self) -> set[int]:
        """Numbers of candidates that may not be removed with their call."""
        known = {"can_delete": self.adapter.can_delete, "guards": self.config.guards}
        return shorten_only(self.pins.candidates, self.transcript, repeated=self.repeated, **known)

    def proposed(self, decisions: list[Decision]) -> None:
        """Settle what the decisions amount to; units a marker would hardly shorten are kept."""
        self.decisions = decisions
        for decision in decisions:
            if decision.action == "keep":
                continue
            call = decision.call
            text = shorten(call, NO_REFERENCE, self.config) if decision.action == "truncate" else ""
            if text is None:
                decision.keep("too short to shorten")
                continue
            decision.text, decision.chars_after = text, len(text)
            gone = call.tokens - self.sizes.of_chars(len(text))
            if decision.action == "remove":
                gone += self.sizes.of_chars(len(call.arguments))
            decision.freed_tokens = max(0, gone)
        self._stay_in_zone()
        self._settle()
        self.trail.proposed(decisions, self.outcome, self.stats)
        if self.outcome == "not_worth_it":
            self._count()

    async def audited(self) -> None:
        """Every decision is told, and nothing leaves before those sinks have it that the settings name.

        Raises AuditError.
        """
        local = {"local_version": LocalJudge.version, "uses_memory": self.stats.uses_memory}
        self.trail.decided(self.decisions, self.config, judge=self._judge_name, **local)
        if not self.is_dry:
            await self.trail.must_have_taken(self.config.required_sinks)

    def _settle(self) -> None:
        """Outcome and reason of what goes; where that is not worth a pass, everything is kept."""
        self._count()
        self.outcome, self.reason = settle(
            self.decisions,
            self.stats,
            self.config,
            worth=worth_of(self._going(), self.ruler, self.config, cache_is_cold=self.cache_is_cold),
            is_forced=self.is_forced,
            target_free_tokens=self.target_free_tokens,
        )

    def _going(self) -> list[Decision]:
        return [decision for decision in self.decisions if decision.action != "keep"]

    def _count(self) -> None:
        count(self.decisions, self.ruler, self.stats, self.config, cache_is_cold=self.cache_is_cold)

    def _stay_in_zone(self) -> None:
        """Keep what lies in the frozen zone, unless thawing it pays."""
        going = self._going()
        self.zone = choose_zone(
            going,
            self.ruler,
            self.config,
            frozen=frozen_rows(self.transcript),
            is_forced=self.is_forced,
            cache_is_cold=self.cache_is_cold,
        )
        self.stats.frozen_rows, self.stats.is_thawed = self.zone.first_row, self.zone.is_thawed
        for decision in going:
            if first_row_of(decision) < self.zone.first_row:
                decision.keep(f"frozen: {self.zone.reason}")

    def check_zone(self, changes: Mapping[int, RowChange]) -> None:
        """The frozen zone leaves as it came, byte for byte; raises RebuildError where it would not."""
        for row, change in changes.items():
            if row < self.zone.first_row and any(
                call.marked is None for call in (*(call for call, _ in change.results), *change.removed)
            ):
                raise RebuildError(f"message {row} lies in the frozen zone")

    async def stored(self, store: OriginalStore) -> Ledger:
        """Save the originals of what goes; the ledger then in force has only units whose original is safe.

        A dry run stores nothing, and nothing will be in force: its ledger only shows what the history would become.
        """
        if not self.is_dry and (going := self._going()):
            await self._save(going, store)
            self._has_news = any(decision.action != "keep" for decision in going)
        with held_back():
            entries = [self._entry(decision) for decision in self.decisions if decision.action != "keep"]
        shown = self.ledger.with_entries(entries) if entries else self.ledger
        if not self.is_dry:
            self.ledger = shown
        return shown

    def _entry(self, decision: Decision) -> LedgerEntry:
        call = decision.call
        call.reference = self.pages.get(call.number) or call.reference or NO_REFERENCE
        decision.text = decision.text.replace(NO_REFERENCE, call.reference)
        action: Literal["remove", "truncate"] = "remove" if decision.action == "remove" else "truncate"
        return LedgerEntry(call.key, action, call.reference, decision.text, len(call.result or ""))

    async def _save(self, going: Sequence[Decision], store: OriginalStore) -> None:
        new = [d.call for d in going if d.call.number not in self.pages]
        if new and getattr(store, "reference_waits", True):
            # It may look at a file for it, or create one, and so not before one is needed; the rest is arithmetic.
            await to_thread.run_sync(store.reference, self.session, new[0].key)
        with held_back():
            for call in new:
                call.reference = store.reference(self.session, call.key)
            originals = [Original(c.reference, self.session, c.key, c.tool, c.result or "") for c in new]
        saved = await store.save(originals) if originals else set()
        lost = {call.number for call in new if call.reference not in saved}
        self.trail.emit(events.OriginalsStored, saved=len(going) - len(lost), not_saved=len(lost))
        for decision in going if lost else ():
            if decision.call.number in lost:
                decision.keep("original could not be saved")
        if len(lost) == len(going):
            raise StoreError("no original could be saved, so nothing was taken out")
        if lost:
            self._settle()  # what is left may not be worth a pass any more
            self._count()

    async def remembered(self, rebuilt: Rebuilt, store: OriginalStore) -> None:
        """Save what the pass did. Markers alone lead back to what was shortened; what was removed needs the record."""
        if not self._has_news or getattr(self.adapter, "host_keeps_rows", False):
            return  # a host that never overwrites a row is the record itself
        try:
            await store.save_pass(record_pass(self.session, self.messages, rebuilt, self.adapter))
        except StoreError as error:
            if rebuilt.is_shorter or any(change.removed for change in rebuilt.changes.values()):
                raise
            self.stats.warnings.append(str(error))

    def ended(self, rebuilt: Rebuilt) -> CompressionResult:
        """The pass went through: the history with every decision in force, or the input where there is none."""
        self.stats.messages_after = len(rebuilt.messages)
        if self.is_dry:
            return self._end(self.messages, self.outcome, self.reason)
        return self._end(rebuilt.messages, self.outcome, self.reason, rebuilt.index_map)

    def failed(self, reason: str) -> CompressionResult:
        """Something went wrong; the input is returned as it came, and so is the ledger."""
        self.ledger = self._ledger_before
        given: Any = self.messages
        self.stats.messages_before = len(given) if isinstance(given, Sequence) else 0
        for decision in self.decisions:
            decision.keep(f"pass failed: {decision.reason}")
        self.stats.freed_tokens, self.stats.expected_misses = 0, 0.0
        self.stats.tokens_after, self.stats.chars_after = self.stats.tokens_before, self.stats.chars_before
        self.stats.messages_after = self.stats.messages_before
        return self._end(self.messages, "failed", reason)

    def _end(
        self, messages: Any, outcome: Outcome, reason: str, index_map: Sequence[int | None] | None = None
    ) -> CompressionResult:
        stats = self.stats
        stats.ms = (time.perf_counter() - self._started) * 1_000
        flags = {"is_dry": self.is_dry, "is_proposal": self.waits_for_host}
        self.trail.pass_ended(outcome, reason, stats, self.ledger, self.transcript, **flags)
        mapped = range(stats.messages_before) if index_map is None else index_map
        return CompressionResult(
            messages,
            outcome,
            reason,
            self.ledger,
            self.decisions,
            stats,
            mapped,
            self.session,
            self.pins.reasons,
            self.transcript,
            self.trail,
        )
