"""Events as OpenTelemetry spans and metrics. Needs `opentelemetry-api`, and nothing of it until a sink is made.

A pass is a span of kind CHAIN; a judge that was asked is a span of kind DECISION inside it, with the `decision.*`
names of OpenInference where there are any (Arize-ai/openinference, spec/decision_spans.md).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from jev_engine import __version__, events
from jev_engine.errors import AuditError
from jev_engine.events.event import Event

if TYPE_CHECKING:
    from opentelemetry.metrics import MeterProvider
    from opentelemetry.trace import Span, TracerProvider

__all__ = ["OtelSink"]

SCOPE = "jev_engine"
KIND = "openinference.span.kind"
"""The attribute by which OpenInference tells kinds of spans apart."""
MOST_OPEN = 1_000
"""Passes whose end has not come: those of processes that died, or of another sink's making."""


class OtelSink:
    """Makes spans and metrics with the providers given, or the global ones. Raises AuditError without the package."""

    name = "otel"

    def __init__(self, tracers: TracerProvider | None = None, meters: MeterProvider | None = None) -> None:
        try:
            from opentelemetry import metrics, trace  # noqa: PLC0415  # only where a sink is made
        except ImportError:
            raise AuditError("OpenTelemetry is not installed: pip install opentelemetry-api") from None
        self._trace = trace
        self._tracer = trace.get_tracer(SCOPE, __version__, tracers)
        meter = metrics.get_meter(SCOPE, __version__, meters)
        self._passes = meter.create_counter("jev_engine.passes", "{pass}", "Passes by outcome")
        self._units = meter.create_counter("jev_engine.units", "{unit}", "Units by action and tool")
        self._freed = meter.create_counter("jev_engine.freed_tokens", "{token}", "Tokens freed by committed passes")
        self._backs = meter.create_counter("jev_engine.look_backs", "{look_back}", "Originals needed again, by kind")
        self._failures = meter.create_counter("jev_engine.judge_failures", "{failure}", "Failed requests by error")
        self._duration = meter.create_histogram("jev_engine.pass_duration", "ms", "Time of a pass")
        self._open: dict[str, Span] = {}
        self._asked: dict[str, Span] = {}

    def emit(self, event: Event) -> None:
        """Take in one event."""
        if isinstance(event, events.PassStarted):
            self._start(event)
        elif isinstance(event, events.JudgeAsked):
            self._ask(event)
        elif isinstance(event, events.JudgeAnswered):
            self._answer(event)
        elif isinstance(event, events.JudgeFailed):
            for failure in event.failures:
                self._failures.add(1, {"error.type": failure})
        elif isinstance(event, events.Decided):
            self._decide(event)
        elif isinstance(event, events.Expanded | events.Refetched):
            self._backs.add(1, {"kind": event.kind, "is_control": event.reference is None})
        elif isinstance(event, events.Committed | events.Discarded | events.Abandoned):
            self._end(event)

    def _start(self, event: events.PassStarted) -> None:
        if len(self._open) >= MOST_OPEN:
            self._open.pop(next(iter(self._open))).end()
        self._open[event.pass_id] = self._tracer.start_span(
            "jev_engine.compress",
            start_time=_ns(event.at),
            attributes={
                KIND: "CHAIN",
                "session.id": event.session,
                "jev_engine.pass_id": event.pass_id,
                "jev_engine.host": event.origin.host,
                "jev_engine.messages": event.messages,
                "jev_engine.calls": event.calls,
                "jev_engine.tokens": event.tokens,
                "jev_engine.is_forced": event.is_forced,
            },
        )

    def _ask(self, event: events.JudgeAsked) -> None:
        parent = self._open.get(event.pass_id)
        context = self._trace.set_span_in_context(parent) if parent is not None else None
        span = self._tracer.start_span("jev_engine.judge", context=context, start_time=_ns(event.at))
        span.set_attributes({KIND: "DECISION", "decision.system": event.judge, "jev_engine.units": event.units})
        if event.question_version:
            span.set_attribute("jev_engine.question_version", event.question_version)
        if event.endpoint:
            span.set_attribute("jev_engine.endpoint", event.endpoint)
        self._asked[event.pass_id] = span

    def _answer(self, event: events.JudgeAnswered) -> None:
        span = self._asked.pop(event.pass_id, None)
        if span is None:
            return
        if event.model:
            span.set_attribute("decision.model_name", event.model)
        span.set_attribute("decision.token_count.input", event.input_tokens)
        span.set_attribute("jev_engine.answers", event.answers)
        span.set_attribute("jev_engine.requests", event.requests)
        span.set_attribute("jev_engine.sent_bytes", event.sent_bytes)
        span.end(_ns(event.at))

    def _decide(self, event: events.Decided) -> None:
        for (action, tool), count in Counter([(unit.action, unit.tool) for unit in event.units]).items():
            self._units.add(count, {"action": action, "tool": tool})

    def _end(self, event: Any) -> None:
        outcome = "abandoned" if isinstance(event, events.Abandoned) else event.outcome
        self._passes.add(1, {"outcome": outcome, "is_committed": isinstance(event, events.Committed)})
        self._duration.record(event.ms)
        if isinstance(event, events.Committed):
            self._freed.add(event.freed_tokens)
        asked = self._asked.pop(event.pass_id, None)
        if asked is not None:
            asked.end(_ns(event.at))
        span = self._open.pop(event.pass_id, None)
        if span is None:
            return
        span.set_attribute("jev_engine.outcome", outcome)
        for name in ("freed_tokens", "expected_misses"):
            if hasattr(event, name):
                span.set_attribute(f"jev_engine.{name}", getattr(event, name))
        if isinstance(event, events.Abandoned):
            span.set_status(self._trace.Status(self._trace.StatusCode.ERROR, event.reason))
        span.end(_ns(event.at))


def _ns(at: float) -> int:
    return int(at * 1e9)
