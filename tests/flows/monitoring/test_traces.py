"""Traces of OpenTelemetry, as ``infra/README.md`` switches them on: a run is one trace, with a span for each stage."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode
from prefect.settings import PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY, temporary_settings

from flows.cli.runner import run_recipe
from flows.home import Home
from tests.flows.run.test_bad_input import SHORT
from tests.flows.test_compress import recipe_for


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    """What a collector receives; ``opentelemetry-instrument`` gives Prefect a provider in this way."""
    received, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(received))
    monkeypatch.setattr("prefect.telemetry.run_telemetry.get_tracer", provider.get_tracer)
    return received


def test_a_run_is_one_trace_with_a_span_for_each_stage(
    prefect_server: None, engines_here: None, home: Home, tiny_bert: Path, tiny_rows: Path, spans: InMemorySpanExporter
) -> None:
    recipe = recipe_for(tiny_bert, tiny_rows, **SHORT)
    with temporary_settings({PREFECT_CLOUD_ENABLE_ORCHESTRATION_TELEMETRY: True}):
        result = run_recipe(recipe, home=home)
    received = spans.get_finished_spans()
    (root,) = [span for span in received if span.parent is None]
    stages = ["/".join(filter(None, (stage["name"], stage["label"]))) for stage in result["stages"]]
    assert root.name == recipe.name
    assert Counter(span.name for span in received) == Counter([root.name, *stages, "register-models", "promote-models"])
    assert {span.context.trace_id for span in received} == {root.context.trace_id}
    assert {span.parent.span_id for span in received if span.parent} == {root.context.span_id}
    assert {span.status.status_code for span in received} == {StatusCode.OK}
