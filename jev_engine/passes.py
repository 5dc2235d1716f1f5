"""One pass: its numbers, its events, and the steps that need the outside world.

The order of the steps is in `engine.ContextEngine.compress`; what they compute is in the rooms they call.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from hashlib import blake2b
from typing import Any

from jev_engine import events
from jev_engine.answers import Belief, Evidence, Probability, RawAnswer
from jev_engine.config import EngineConfig
from jev_engine.decisions import Decision, weigh
from jev_engine.errors import StoreError
from jev_engine.host import Adapter
from jev_engine.judges import Judge, JudgeRequest, Verdict
from jev_engine.ledger import KeyCache, Ledger, LedgerEntry, assign_keys
from jev_engine.markers import NOTE_REACH_CHARS, find_reference, shorten
from jev_engine.pinning import Pins
from jev_engine.rebuild import Rebuilt
from jev_engine.result import CompressionResult, CompressionStats, Outcome
from jev_engine.sizes import Sizes
from jev_engine.store import Original, OriginalStore
from jev_engine.store.restore import record_pass
from jev_engine.transcript import ToolCall, Transcript
from jev_engine.triggers import free_target, is_forced

__all__ = ["Pass", "session_of"]

logger = logging.getLogger("jev_engine")

# Stands in for references where nothing is stored.
NO_REFERENCE = "jx-" + "0" * 16


def session_of(transcript: Transcript) -> str:
    """A name for a session nobody named: a digest of how it began, so that all its passes get the same one."""
    digest = blake2b(digest_size=8)
    for entry in transcript.entries[:3]:
        digest.update(f"{entry.role}\0{entry.text}\0".encode("utf-8", "surrogatepass"))
    return f"session-{digest.hexdigest()}"


def _kind_of(failure: str) -> str:
    name = failure.partition(":")[0]
    return name if name.isidentifier() and len(name) < 60 else "failure"


class Pass:
    """What one call of `compress` knows so far."""

    def __init__(
        self,
        config: EngineConfig,
        messages: Sequence[Any],
        sinks: Iterable[Any],
        *,
        host: str,
        force: bool,
        is_dry: bool,
    ) -> None:
        self.config = config
        self.messages = messages
        self.host = host
        self.is_forced = force
        self.is_dry = is_dry
        self.session = ""
        self.transcript = Transcript((), [], [], Counter())
        self.ledger = self._ledger_before = Ledger()
        self.repeated: set[str] = set()
        self.pins = Pins()
        self.decisions: list[Decision] = []
        self.stats = CompressionStats()
        self.target_free_tokens: int | None = None
        self.outcome: Outcome = "failed"
        self.reason = ""
        self._has_judge = self._has_news = False
        self._sinks = list(sinks)
        self._id = uuid.uuid4().hex
        self._started = time.perf_counter()

    async def recognise(
        self, transcript: Transcript, ledger: Ledger | None, session: str | None, store: OriginalStore, keys: KeyCache
    ) -> None:
        """Name the session, give units their keys, and tell our own markers from text that looks like them.

        A marker counts as ours if the ledger or the store knows its reference. Where the store cannot be asked, it
        counts as ours too: doubt keeps.
        """
        self.transcript = transcript
        self.session = session or session_of(transcript)
        self.ledger = self._ledger_before = Ledger() if ledger is None else ledger
        # A longer result only quotes a marker: what we leave in place of an original is never so long.
        longest = self.config.head_chars + self.config.outcome_chars + 2 * NOTE_REACH_CHARS
        # A quote stands behind the marker it quotes, so the first of several counts.
        seen = {
            reference: call
            for call in reversed(transcript.calls)
            if call.result and len(call.result) <= longest and (reference := find_reference(call.result)) is not None
        }
        if seen:
            try:
                known = await store.known(seen)
            except StoreError as error:
                self.stats.warnings.append(str(error))
                known = {reference: (call.key or reference, 0) for reference, call in seen.items()}
            self.ledger = self.ledger.with_entries(
                LedgerEntry(key, "truncate", reference, seen[reference].result or "", chars)
                for reference, (key, chars) in known.items()
                if key not in self.ledger
            )
        self.repeated = assign_keys(transcript, self.ledger, keys)

    def measured(self, sizes: Sizes, current_tokens: int | None, adapter: Adapter) -> None:
        """Take in sizes; from here on it is known whether the pass is forced, and to which target."""
        self.sizes = sizes
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
        self._emit(
            events.PassStarted,
            host=adapter.name,
            messages=len(self.messages),
            calls=stats.calls,
            tokens=prompt_tokens,
        )

    def pinned(self, pins: Pins) -> None:
        """Take in which units may be judged."""
        self.pins = pins
        self.stats.pinned = pins.counts()
        self.stats.best_gain_tokens = sum([call.tokens for call in pins.candidates])
        self._emit(events.Pinned, candidates=len(pins.candidates), reasons=self.stats.pinned)

    async def judged(self, judge: Judge | None, goal: str | None, focus: str | None) -> Verdict:
        """Ask the judge; a judge that fails leaves every unit undecided."""
        verdict = Verdict()
        self._has_judge = judge is not None
        if judge is None or not self.pins.candidates:
            return verdict
        request = JudgeRequest(self.transcript, self.pins.candidates, goal, focus, self.pins.rows, self.config)
        self.stats.is_calibrated = judge.is_calibrated
        try:
            verdict = await judge.judge(request)
        except Exception as error:  # noqa: BLE001  # a judge is somebody else's: its fault leaves units undecided
            self.stats.is_calibrated = True
            verdict.failures.append(f"{type(error).__name__}: {error}")
        stats = self.stats
        stats.requests, stats.windows = verdict.requests, verdict.windows
        stats.state_stage, stats.state_tokens = verdict.state_stage, verdict.state_tokens
        stats.hidden, stats.failures = verdict.hidden, verdict.failures
        stats.judge_tokens, stats.judge_price = verdict.input_tokens, verdict.price
        stats.judge_model, stats.privacy = verdict.model, verdict.privacy
        stats.settled, stats.saved_tokens, stats.saved_price = (
            verdict.settled,
            verdict.saved_tokens,
            verdict.saved_price,
        )
        stats.warnings.extend(verdict.warnings)
        self._judged_event(judge.name, verdict)
        return verdict

    def _judged_event(self, name: str, verdict: Verdict) -> None:
        self._emit(
            events.Judged,
            judge=name,
            answers=len(verdict.answers),
            requests=verdict.requests,
            state_stage=verdict.state_stage,
            state_tokens=verdict.state_tokens,
            # The name of each error only: its words may quote what was sent or came back.
            failures=tuple([_kind_of(failure) for failure in verdict.failures]),
            input_tokens=verdict.input_tokens,
            price=verdict.price,
            model=verdict.model,
            privacy=verdict.privacy,
            settled=verdict.settled,
        )

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
        if not self.adapter.can_delete:
            return {call.number for call in self.pins.candidates}
        transcript = self.transcript
        spoken = transcript.spoken_turns() if self.config.guards else transcript.bound_turns()
        return {
            call.number
            for call in self.pins.candidates
            if call.turn in spoken or call.images or call.key.partition(".")[0] in self.repeated
        }

    def proposed(self, decisions: list[Decision], store: OriginalStore) -> list[LedgerEntry]:
        """The ledger entries the decisions amount to; units a marker would hardly shorten are kept."""
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
        self._count()
        return self._entries(store) if self._settle() else []

    def _entries(self, store: OriginalStore) -> list[LedgerEntry]:
        """Ledger entries of what goes. Only now is the store asked for references: it may create its file for that."""
        entries = []
        for decision in self.decisions:
            if decision.action == "keep":
                continue
            call = decision.call
            call.reference = NO_REFERENCE if self.is_dry else store.reference(self.session, call.key)
            decision.text = decision.text.replace(NO_REFERENCE, call.reference)
            entries.append(
                LedgerEntry(call.key, decision.action, call.reference, decision.text, len(call.result or ""))
            )
        return entries

    def _settle(self) -> bool:
        """Fix outcome and reason; whether anything goes. A pass that is not worth it takes everything back."""
        stats, config = self.stats, self.config
        share = stats.freed_tokens / max(1, stats.tokens_before)
        # Under `worth` the horizon says how many calls are still expected: what does not pay within it stays.
        pays_late = config.policy == "worth" and (stats.break_even_calls or 0.0) > config.horizon_calls
        if all(decision.action == "keep" for decision in self.decisions):
            best = f"; at most {stats.best_gain_tokens:,} tokens could go" if stats.best_gain_tokens else ""
            self.outcome, self.reason = "nothing_to_prune", f"nothing to take out{best}"
        elif not self.is_forced and share < config.min_freed_share:
            self.outcome = "not_worth_it"
            self.reason = f"frees {share:.0%} of the tokens, the bar is {config.min_freed_share:.0%} (min_freed_share)"
        elif not self.is_forced and pays_late:
            self.outcome = "not_worth_it"
            self.reason = f"pays off after {stats.break_even_calls:.0f} calls, expected are {config.horizon_calls:.0f}"
        else:
            self.outcome, self.reason = self._by_target()
            return True
        for decision in self.decisions:
            if decision.action != "keep":
                decision.keep(f"pass not worth it: {decision.reason}")
        self._count()
        return False

    def _by_target(self) -> tuple[Outcome, str]:
        stats = self.stats
        missing = (self.target_free_tokens or 0) - stats.freed_tokens
        if missing > 0:
            return "over_capacity", f"everything that may go is out, {missing:,} tokens above the target remain"
        return "committed", f"{stats.freed_tokens:,} of {stats.tokens_before:,} tokens freed"

    def _count(self) -> None:
        stats = self.stats
        out = [d for d in self.decisions if d.action != "keep"]
        stats.freed_tokens = sum([d.freed_tokens for d in out])
        stats.expected_misses = sum([d.probability.p_result for d in out if d.probability is not None])
        stats.tokens_after = stats.tokens_before - stats.freed_tokens
        stats.chars_after = stats.chars_before - sum(
            [
                len(d.call.result or "") - d.chars_after + (len(d.call.arguments) if d.action == "remove" else 0)
                for d in out
            ]
        )
        if not out:
            return
        first = min(min(d.call.row, d.call.result_row) if d.action == "remove" else d.call.result_row for d in out)
        behind = sum(
            [c.tokens + self.sizes.of_chars(len(c.arguments)) for c in self.transcript.calls if c.row >= first]
        )
        behind += self.sizes.of_chars(sum([len(e.text) for e in self.transcript.entries if e.row >= first]))
        stats.cache_suffix_tokens = max(0, behind - stats.freed_tokens)
        price = self.config.read_price * stats.freed_tokens
        rewrite = (self.config.write_price - self.config.read_price) * stats.cache_suffix_tokens
        stats.break_even_calls = rewrite / price if price > 0 else None

    async def stored(self, proposed: list[LedgerEntry], store: OriginalStore) -> Ledger:
        """Save originals; the ledger then in force has only units whose original is safe."""
        if not proposed:
            return self.ledger
        if self.is_dry:
            # Nothing is stored and nothing will be in force: this only shows what the history would become.
            return self.ledger.with_entries(proposed)
        by_key = {d.call.key: d for d in self.decisions}
        originals = [
            Original(
                entry.reference,
                self.session,
                entry.key,
                by_key[entry.key].call.tool,
                by_key[entry.key].call.result or "",
            )
            for entry in proposed
        ]
        saved = await store.save(originals)
        kept = [entry for entry in proposed if entry.reference in saved]
        for entry in proposed:
            if entry.reference not in saved:
                by_key[entry.key].keep("original could not be saved")
        self._emit(events.OriginalsStored, saved=len(kept), not_saved=len(proposed) - len(kept))
        if len(kept) < len(proposed):
            self._count()
        if not kept:
            raise StoreError("no original could be saved, so nothing was taken out")
        self._has_news = True
        self.ledger = self.ledger.with_entries(kept)
        return self.ledger

    async def remembered(self, rebuilt: Rebuilt, store: OriginalStore) -> None:
        """Save what the pass did. Markers alone lead back to what was shortened; what was removed needs the record."""
        if not self._has_news:
            return
        try:
            await store.save_pass(record_pass(self.session, self.messages, rebuilt, self.adapter))
        except StoreError as error:
            if None in rebuilt.index_map or any(change.removed for change in rebuilt.changes.values()):
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
        self, messages: Any, outcome: Outcome, reason: str, index_map: list[int | None] | None = None
    ) -> CompressionResult:
        stats = self.stats
        stats.ms = (time.perf_counter() - self._started) * 1_000
        if self._sinks:
            for decision in self.decisions:
                self._emit_decision(decision)
        self._emit(
            events.PassEnded,
            outcome=outcome,
            reason=reason,
            freed_tokens=stats.freed_tokens,
            expected_misses=stats.expected_misses,
        )
        mapped: list[int | None] = [*range(stats.messages_before)] if index_map is None else index_map
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
        )

    def _emit_decision(self, decision: Decision) -> None:
        p = decision.probability
        raw = p.raw if p is not None else None
        self._emit(
            events.Decided,
            reference=decision.call.reference,
            label=decision.label,
            action=decision.action,
            reason=decision.reason,
            p_call=p.p_call if p is not None else None,
            p_result=p.p_result if p is not None else None,
            raw_call=raw.p_call if raw is not None else None,
            raw_result=raw.p_result if raw is not None else None,
            chars=len(decision.call.result or ""),
            chars_after=decision.chars_after,
        )

    def _emit(self, kind: type[events.Event], **facts: Any) -> None:
        if not self._sinks:
            return
        event = kind(session=self.session, pass_id=self._id, **facts)
        for sink in self._sinks:
            try:
                sink.emit(event)
            except Exception:  # a sink is somebody else's: its fault is logged and changes nothing
                logger.exception("event sink %r failed", type(sink).__name__)
