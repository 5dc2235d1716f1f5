"""The events of one pass on their way to the sinks. A sink that fails is named and changes nothing."""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic_core import to_json

from jev_engine import __version__, events
from jev_engine.audit.delivery import Delivery
from jev_engine.audit.digests import Keyed
from jev_engine.audit.lifecycle import Told
from jev_engine.audit.telling import columns_of, content_of, kind_of, pins_of, place_of, plain_name, settings_of
from jev_engine.config import EngineConfig
from jev_engine.decisions import Decision
from jev_engine.errors import AuditError
from jev_engine.events.batch import Batch
from jev_engine.host import Adapter
from jev_engine.judges import Judge, Verdict
from jev_engine.ledger import Ledger
from jev_engine.recognition import session_of
from jev_engine.result import CompressionStats, Outcome
from jev_engine.store.expand import expanded_reference
from jev_engine.store.restore import Restored
from jev_engine.transcript import ToolCall, Transcript

__all__ = ["Trail", "tell_restored"]

# Where no sink brings a key, digests are comparable within this process only.
_process_key = os.urandom(32)
# What one event holds: a line of a trail stays below some 40 kB.
MOST_PINNED = 2_000
UNITS_AN_EVENT = 200
# So many events wait for the next step of a pass before they are queued.
MOST_GATHERED = 256


class Trail:
    """Where a pass tells what happens. Without sinks nothing is made."""

    __slots__ = (
        "_asked_at", "_delivery", "_gone", "_has_ended", "_input", "_keyed", "_lines", "_losses", "_pass", "_proposal",
        "_sequence", "_session", "_verdict", "_version", "host", "is_pass",
    )  # fmt: skip

    def __init__(self, sinks: Iterable[Any], *, host: str = "", is_pass: bool = True) -> None:
        self._delivery = sinks if isinstance(sinks, Delivery) else Delivery(sinks)
        self._keyed = Keyed(self._delivery.key or _process_key)
        self._pass = uuid.uuid4().int
        self._sequence = 0
        self._input = ""
        self._session = self.digest("")
        self._lines: list[bytes] = []
        self._gone: list[str | None] = []
        self._losses = self._delivery.losses()
        self._verdict = Verdict()
        self._version: str | None = None
        self._asked_at = 0.0
        self._has_ended = False
        self._proposal: dict[str, Any] | None = None
        self.host = host
        self.is_pass = is_pass

    @property
    def session(self) -> str:
        """The session's name; what is written down is its keyed digest."""
        return self._session

    @session.setter
    def session(self, name: str) -> None:
        if self._delivery:
            self._session = self.digest(name)

    def digest(self, text: str) -> str:
        """A keyed digest: 16 bytes, in hex. The same text gives another one on another machine."""
        return self._keyed.digest(text)

    def _shared(self, actor: str) -> dict[str, Any]:
        origin = {"actor": actor, "host": self.host, "engine_version": __version__}
        pass_id = f"{self._pass:032x}" if self.is_pass else ""
        return {"at": time.time(), "origin": origin, "session": self._session, "pass_id": pass_id}

    def _next(self) -> tuple[str, int]:
        self._sequence += 1
        # Unique because the pass's own number is random; and cheaper than a new random number an event.
        return f"{(self._pass + self._sequence) % 2**128:032x}", self._sequence

    def emit(self, kind: type[events.Event], *, actor: str = "engine", **facts: Any) -> None:
        """Make one event and queue it for every sink, in order."""
        if not self._delivery:
            return
        id_, sequence = self._next()
        event = kind(id=id_, sequence=sequence, **self._shared(actor), **facts)
        self._lines.append(event.model_dump_json(exclude_none=True).encode())
        if not self.is_pass or len(self._lines) >= MOST_GATHERED:
            self.hand_over()

    def tell(self, told: Told, *, actor: str = "host") -> None:
        """What a host told: content as digests, names without secrets."""
        self.session = told.session
        facts = {name: plain_name(fact) if isinstance(fact, str) else fact for name, fact in told.facts.items()}
        digests = {name: self.digest(text) for name, text in told.digests.items()}
        self.emit(told.kind, actor=actor, **facts, **digests)

    def hand_over(self) -> None:
        """Give what has gathered to the sinks; they work on it in their own threads."""
        lines, self._lines = self._lines, []
        if lines:
            self._delivery.put(Batch(self._session, lines))

    def started(self, transcript: Transcript, config: EngineConfig, **facts: Any) -> None:
        """A pass begins; what it is made from is told by one digest, and its settings by what differs from defaults."""
        if not self._delivery:
            return
        self._input = self._keyed.of_input(transcript)
        self.emit(
            events.PassStarted,
            key_digest=self._keyed.key_digest,
            input_digest=self._input,
            settings=settings_of(config),
            window_tokens=config.window_tokens,
            messages=len(transcript.messages),
            calls=len(transcript.calls),
            **facts,
        )

    def pinned(self, candidates: int, reasons: Mapping[int, str], calls: Sequence[ToolCall]) -> None:
        """Which of the calls are not judged, and why."""
        if not self._delivery:
            return
        numbers = sorted(reasons)
        for start in range(0, max(1, len(numbers)), MOST_PINNED):
            some = numbers[start : start + MOST_PINNED]
            self.emit(events.Pinned, candidates=candidates, **pins_of(some, reasons, calls))

    def asking(self, judge: Judge, units: int, remembered: int, config: EngineConfig) -> None:
        """A judge is about to be asked; where that may take long, what is known so far is told before."""
        if not self._delivery:
            return
        self._version = str(getattr(judge, "version", judge.name))
        self._asked_at = time.perf_counter()
        self.emit(
            events.JudgeAsked,
            judge=judge.name,
            units=units,
            remembered=remembered,
            question_version=self._version,
            endpoint=place_of(judge),
            privacy=config.privacy if getattr(judge, "applies_privacy", False) else None,
        )
        if not judge.is_calibrated:
            self.hand_over()

    def judged(self, name: str, verdict: Verdict, remembered: int = 0) -> None:
        """What a judge answered, in numbers; so many of the answers had been paid for before."""
        if not self._delivery:
            return
        self._verdict = verdict
        if verdict.state_stage is not None:
            self.emit(
                events.StateFitted,
                stage=verdict.state_stage,
                tokens=verdict.state_tokens,
                windows=verdict.windows,
                hidden=verdict.hidden,
            )
        self.emit(
            events.JudgeAnswered,
            judge=name,
            answers=len(verdict.answers) - remembered,
            requests=verdict.requests,
            sent_bytes=verdict.sent_bytes,
            input_tokens=verdict.input_tokens,
            price=verdict.price,
            model=None if verdict.model is None else plain_name(verdict.model),
            settled=verdict.settled,
            ms=(time.perf_counter() - self._asked_at) * 1_000,
        )
        if verdict.failures:
            # The name of each error only: its words may quote what was sent or came back.
            self.emit(events.JudgeFailed, judge=name, failures=tuple([kind_of(each) for each in verdict.failures]))

    def decided(self, decisions: Sequence[Decision], config: EngineConfig, **judges: Any) -> None:
        """Every decision, kept units too; `judges` are the facts of `Rule` about who answered."""
        if not self._delivery:
            return
        rule = {**self._rule(config), **judges}
        for start in range(0, len(decisions), UNITS_AN_EVENT):
            some = decisions[start : start + UNITS_AN_EVENT]
            id_, sequence = self._next()
            facts = {"kind": "decided", "id": id_, "sequence": sequence, **self._shared("engine"), "rule": rule}
            if config.audit_content:
                facts["contents"] = {decision.call.number: content_of(decision) for decision in some}
            # As `Decided` would write it, which a test holds it to: making the model costs three times as much.
            columns = columns_of(some, self._verdict.windows_of, self._keyed)
            self._gone.extend(columns.get("text_digest", ()))
            self._lines.append(to_json({**facts, "columns": columns}))

    def _rule(self, config: EngineConfig) -> dict[str, Any]:
        worth = config.policy == "worth"
        return {
            "policy": config.policy,
            **({"price_limit": 1.0} if worth else {"keep_result": config.keep_result, "keep_call": config.keep_call}),
            "state_stage": self._verdict.state_stage,
            "question_version": self._version,
        }

    def proposed(self, decisions: Sequence[Decision], outcome: str, stats: CompressionStats) -> None:
        """What the pass is about to do, told before it is done."""
        if not self._delivery:
            return
        actions = [decision.action for decision in decisions]
        self.emit(
            events.Proposed,
            outcome=outcome,
            truncated=actions.count("truncate"),
            removed=actions.count("remove"),
            kept=actions.count("keep"),
            freed_tokens=stats.freed_tokens,
            expected_misses=stats.expected_misses,
            is_calibrated=stats.is_calibrated,
            break_even_calls=stats.break_even_calls,
        )

    def looked_back(self, transcript: Transcript) -> None:
        """Which calls were made again, and which originals were read again, since something went out."""
        if not self._delivery:
            return
        seen: dict[tuple[str, str], str | None] = {}
        for call in transcript.calls:
            reference = expanded_reference(call.result) if call.result else None
            if reference is not None:
                self.emit(events.Expanded, reference=reference, chars=len(call.result or ""), label=call.label)
                continue
            same = (call.tool, call.arguments)
            if same in seen and call.marked is None and call.result is not None:
                self.emit(
                    events.Refetched,
                    label=call.label,
                    tool=plain_name(call.tool),
                    reference=seen[same],
                    chars=len(call.result),
                )
            seen[same] = call.reference if call.marked is not None else None
        self.hand_over()

    def pass_ended(
        self,
        outcome: Outcome,
        reason: str,
        stats: CompressionStats,
        ledger: Ledger,
        transcript: Transcript,
        *,
        is_dry: bool,
        is_proposal: bool = False,
    ) -> None:
        """Committed, discarded or abandoned; what is only proposed waits for `committed` or `discarded`."""
        if not self._delivery:
            return
        if outcome == "failed":
            # What an error says may quote a history; its name does not.
            self._end(events.Abandoned, reason=kind_of(reason), ms=stats.ms)
        elif is_dry or outcome not in ("committed", "over_capacity"):
            told = f"dry run: {reason}" if is_dry else reason
            misses = stats.expected_misses
            little = {"freed_tokens": stats.freed_tokens, "expected_misses": misses, "ms": stats.ms}
            self._end(events.Discarded, outcome=outcome, reason=told, **little)
        else:
            facts: dict[str, Any] = {
                "outcome": outcome,
                "reason": reason,
                "freed_tokens": stats.freed_tokens,
                "tokens_before": stats.tokens_before,
                "tokens_after": stats.tokens_after,
                "messages_after": stats.messages_after,
                "expected_misses": stats.expected_misses,
                "output_digest": self._keyed.of_output(self._input, transcript, ledger, self._gone),
                "ms": stats.ms,
                "warnings": len(stats.warnings),
            }
            if is_proposal:
                self._proposal = facts
            else:
                self._end(events.Committed, **facts)

    def committed(self) -> None:
        """The host took up what the pass proposed; without a proposal, nothing is told."""
        facts, self._proposal = self._proposal, None
        if facts is not None:
            self._end(events.Committed, **facts)

    def discarded(self, reason: str) -> None:
        """The host did not take up what the pass proposed; without a proposal, nothing is told."""
        facts, self._proposal = self._proposal, None
        if facts is not None:
            told = {name: facts[name] for name in ("outcome", "freed_tokens", "expected_misses", "ms")}
            self._end(events.Discarded, reason=reason, **told)

    def handed_over(
        self, summariser: str, *, messages: int, stored: int, tokens_before: int, tokens_after: int | None = None
    ) -> None:
        """The host's summariser replaced so many messages of the pruned history, of which so many were stored first."""
        self.emit(
            events.HandedOver,
            actor="host",
            summariser=plain_name(summariser),
            messages=messages,
            stored=stored,
            tokens_before=tokens_before,
            tokens_after=tokens_after,
        )
        self.hand_over()

    def abandoned(self, reason: str) -> None:
        """A pass was cancelled. Its sinks are not waited for."""
        if self._delivery:
            self._end(events.Abandoned, reason=reason)

    def _end(self, kind: type[events.Event], **facts: Any) -> None:
        """The one end of a pass; a second one is not told."""
        if not self._has_ended:
            self._has_ended = True
            self.emit(kind, **facts)
            self.hand_over()

    async def must_have_taken(self, names: Sequence[str]) -> None:
        """No audit, no deletion: raises AuditError where one of these sinks has not taken all events so far."""
        if names:
            self.hand_over()
            fault = await self._delivery.unfit(names, self._losses)
            if fault is not None:
                raise AuditError(fault)

    async def flush(self) -> list[str]:
        """Wait for the sinks, within their limit; returns what went wrong with them, in words."""
        if not self._delivery:
            return []
        self.hand_over()
        await self._delivery.flush()
        return self._delivery.troubles()


def tell_restored(sinks: Delivery, done: Restored, adapter: Adapter) -> None:
    """A history was brought back, as a user asked."""
    if sinks:
        trail = Trail(sinks, host=adapter.name, is_pass=False)
        trail.session = session_of(adapter.read(done.messages))
        facts = {"messages": len(done.messages), "passes": done.passes, "left": len(done.left)}
        trail.emit(events.Restored, actor="user", **facts)
