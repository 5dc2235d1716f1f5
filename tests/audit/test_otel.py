"""OpenTelemetry: spans and metrics as the SDK's in-memory exporters see them; absent, it costs nothing."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import anyio
import pytest
from audit_trails import messages_of

from jev_engine import ContextEngine, make_config
from jev_engine.audit.otel import OtelSink
from jev_engine.judges.asked import AskedJudge
from jev_engine.testing import ScriptedAsker, ScriptedJudge

metrics = pytest.importorskip("opentelemetry.sdk.metrics", reason="SPANS NOT CHECKED: no opentelemetry-sdk")
from opentelemetry.sdk.metrics.export import InMemoryMetricReader  # noqa: E402
from opentelemetry.sdk.trace import TracerProvider  # noqa: E402
from opentelemetry.sdk.trace.export import SimpleSpanProcessor  # noqa: E402
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter  # noqa: E402


def told(judge: Any, **settings: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Spans and metrics by name, after one pass."""
    exporter, reader = InMemorySpanExporter(), InMemoryMetricReader()
    tracers, meters = TracerProvider(), metrics.MeterProvider([reader])
    tracers.add_span_processor(SimpleSpanProcessor(exporter))
    config = make_config(**{"min_freed_share": 0.0, "pin_newest_calls": 1, **settings})
    engine = ContextEngine(config=config, judge=judge, sinks=[OtelSink(tracers, meters)])
    anyio.run(lambda: engine.compress(messages_of(), host="openai", force=True))
    engine.sinks.close(10)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    data = reader.get_metrics_data()
    points = {
        metric.name: list(metric.data.data_points)
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    tracers.shutdown()
    meters.shutdown()
    return spans, points


def test_a_pass_is_a_span_and_the_judge_a_decision_inside_it() -> None:
    """With the names OpenInference has for decisions."""
    spans, points = told(AskedJudge(ScriptedAsker(lambda *_: 0.1), name="asked"), policy="threshold")
    whole, judge = spans["jev_engine.compress"], spans["jev_engine.judge"]

    assert whole.attributes["openinference.span.kind"] == "CHAIN"
    assert whole.attributes["jev_engine.outcome"] in ("committed", "over_capacity")
    assert whole.attributes["jev_engine.freed_tokens"] > 0
    assert judge.attributes["openinference.span.kind"] == "DECISION"
    assert judge.attributes["decision.token_count.input"] > 0
    assert judge.attributes["jev_engine.sent_bytes"] > 0
    assert judge.parent.span_id == whole.context.span_id
    assert whole.start_time <= judge.start_time <= judge.end_time <= whole.end_time
    assert points["jev_engine.passes"][0].value == 1
    assert sum(point.value for point in points["jev_engine.units"]) == 11
    assert points["jev_engine.freed_tokens"][0].value == whole.attributes["jev_engine.freed_tokens"]
    assert points["jev_engine.pass_duration"][0].count == 1


def test_failures_are_errors_by_name() -> None:
    """A judge that fails is counted; a pass that fails is a span with an error."""
    spans, points = told(ScriptedJudge({}, fails=True), required_sinks=("gone",))

    assert spans["jev_engine.compress"].status.status_code.name == "ERROR"
    assert spans["jev_engine.compress"].status.description == "AuditError"
    assert points["jev_engine.judge_failures"][0].attributes["error.type"] == "JudgeUnavailable"


def test_nothing_of_it_is_imported_before_a_sink_is_made() -> None:
    """And without the package, making one says what to install."""
    code = (
        "import sys; sys.modules['opentelemetry'] = None\n"
        "import jev_engine.engine, jev_engine.audit.otel as otel\n"
        "try:\n    otel.OtelSink()\nexcept Exception as error:\n    print(type(error).__name__, error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout == "AuditError OpenTelemetry is not installed: pip install opentelemetry-api\n"
