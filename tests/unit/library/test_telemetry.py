"""`run(otel=True)` reports through the program's own OpenTelemetry, and never harms a training that lacks it."""

from __future__ import annotations

from typing import Any

import pytest
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader, NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

from tests.unit.library.processes import Script, Starter


class Collected:
    """What the program's readers get."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._reader = InMemoryMetricReader()
        self._spans = InMemorySpanExporter()
        meters, tracers = MeterProvider([self._reader]), TracerProvider()
        tracers.add_span_processor(SimpleSpanProcessor(self._spans))
        # The global providers can be set once in a process.
        monkeypatch.setattr(metrics, "get_meter_provider", lambda: meters)
        monkeypatch.setattr(trace, "get_tracer", tracers.get_tracer)

    @property
    def points(self) -> dict[str, list[Any]]:
        """By the name of each metric, its values with their run."""
        data = self._reader.get_metrics_data()
        found = [
            metric
            for resource in (data.resource_metrics if data else ())
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        values = {
            metric.name: [
                (dict(point.attributes or {})["run_id"], point.value)
                for point in metric.data.data_points
                if isinstance(point, NumberDataPoint)
            ]
            for metric in found
        }
        return {name: points for name, points in values.items() if points}

    @property
    def spans(self) -> tuple[ReadableSpan, ...]:
        return tuple(self._spans.get_finished_spans())


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> Collected:
    return Collected(monkeypatch)


def test_a_reader_gets_what_the_loop_reported_last_and_nothing_after_the_end(
    attempt: Starter, collected: Collected
) -> None:
    with attempt(otel=True) as run:
        run.step(1, loss=3.0, tokens=100)
        run.step(2, loss=2.5, tokens=100)
        points = collected.points
        assert points["training_step"] == [("r", 2)]
        assert points["training_loss"] == [("r", 2.5)]
        assert points["training_tokens"] == [("r", 200)]
        assert points["training_steps_completed"] == [("r", 2)]
        # What was not reported is absent, not zero.
        assert "training_grad_norm" not in points
        run.step(3, loss=2.0)
        assert collected.points["training_step"] == [("r", 3)]
    assert collected.points == {}
    with attempt(1, otel=True) as run:
        run.step(4)
        assert collected.points["training_step"] == [("r", 4)]


def test_an_attempt_is_a_span_with_its_events(attempt: Starter, collected: Collected) -> None:
    with attempt(otel=True, model="gpt") as run:
        run.step(5)
        run.checkpoint_saved("/ckpt/5")
        run.note("evaluated", accuracy=0.5, parts=[1, 2])
        try:
            raise ValueError("shard 7 is unreadable")
        except ValueError as error:
            run.error(error)
    [span] = collected.spans
    assert span.name == "training_run"
    attributes = dict(span.attributes or {})
    assert (attributes["run_id"], attributes["model"], attributes["status"]) == ("r", "gpt", "succeeded")
    events = {event.name: dict(event.attributes or {}) for event in span.events}
    assert events["checkpoint_saved"]["step"] == 5
    assert events["evaluated"] == {"accuracy": 0.5}
    assert events["exception"]["exception.type"] == "ValueError"
    assert events["exception"]["exception.message"] == "shard 7 is unreadable"
    assert {"training_started", "training_completed"} <= events.keys()
    assert "progress_noted" not in events
    assert span.status.status_code is StatusCode.OK
    assert span.end_time is not None
    assert span.start_time is not None
    assert span.end_time >= span.start_time


def test_a_failure_is_the_status_of_the_span(attempt: Starter, collected: Collected) -> None:
    with pytest.raises(RuntimeError), attempt(otel=True) as run:
        run.step(1)
        raise RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
    [span] = collected.spans
    assert span.status.status_code is StatusCode.ERROR
    assert "CUDA out of memory" in (span.status.description or "")
    assert dict(span.attributes or {})["failure"] == "cuda_oom"


def test_secrets_are_in_neither_the_status_nor_the_events_of_the_span(attempt: Starter, collected: Collected) -> None:
    secret = "hf_abcdefghijklmnopqrstuvwx12"
    with pytest.raises(RuntimeError), attempt(otel=True) as run:
        run.note("fetched", source=f"token={secret}")
        raise RuntimeError(f"boom token={secret}")
    [span] = collected.spans
    assert "boom token=[redacted]" in (span.status.description or "")
    events = {event.name: dict(event.attributes or {}) for event in span.events}
    assert events["fetched"]["source"] == "token=[redacted]"
    assert secret not in span.to_json()


def test_nothing_is_reported_unless_it_is_asked_for_or_by_another_rank(
    attempt: Starter, collected: Collected, monkeypatch: pytest.MonkeyPatch
) -> None:
    with attempt() as run:
        run.step(1)
        assert collected.points == {}
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with attempt(1, otel=True) as run:
        run.step(1)
        assert collected.points == {}
    assert collected.spans == ()


def test_an_sdk_that_raises_harms_no_training(
    attempt: Starter, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_: object, **__: object) -> Any:
        raise ZeroDivisionError

    class Span:
        add_event = set_attribute = set_status = end = staticmethod(broken)

    class Tracer:
        start_span = staticmethod(lambda *_, **__: Span())

    monkeypatch.setattr(trace, "get_tracer", lambda _: Tracer())
    monkeypatch.setattr(metrics, "get_meter_provider", broken)
    with attempt(otel=True) as run:
        run.step(1)
        run.note("evaluated")
    assert "nothing is reported to OpenTelemetry" in caplog.text


@pytest.mark.process
def test_without_opentelemetry_it_is_one_warning_and_it_is_never_imported_unasked(script: Script) -> None:
    done = script.run("""
        import sys, trainwarden
        with trainwarden.run("r") as run:
            run.step(1)
        assert not any(name.startswith("opentelemetry") for name in sys.modules)
        sys.modules["opentelemetry"] = None
        with trainwarden.run("s", otel=True) as run:
            run.step(1)
    """)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("opentelemetry-api is not installed") == 1
    assert script.read("metadata.json")["status"] == "succeeded"
