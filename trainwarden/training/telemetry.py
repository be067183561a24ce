"""A run as metrics and a span of OpenTelemetry, through the providers that the program has set up: `run(otel=True)`.

The metrics are observable: the program's own reader asks for them, in its own thread, and `step()` costs nothing more.
The span is that of the attempt, and has the lines of `events.jsonl` as its events, without secrets. Of several ranks
rank 0 reports.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trainwarden.training.context import RunContext
    from trainwarden.training.events import RunEvent
    from trainwarden.training.loop import LoopSnapshot
    from trainwarden.training.outcome import AttemptOutcome

_NAME = "trainwarden"
# The names of docs/metrics.md, with the unit of each and the value in a snapshot of the loop.
_GAUGES: tuple[tuple[str, str, Callable[[LoopSnapshot], float | None]], ...] = (
    ("training_step", "{step}", lambda view: view.step),
    ("training_epoch", "{epoch}", lambda view: view.epoch),
    ("training_loss", "1", lambda view: view.loss),
    ("training_learning_rate", "1", lambda view: view.learning_rate),
    ("training_grad_norm", "1", lambda view: view.grad_norm),
)
_COUNTERS: tuple[tuple[str, str, Callable[[LoopSnapshot], float | None]], ...] = (
    ("training_steps_completed", "{step}", lambda view: view.steps_completed),
    ("training_nonfinite", "{step}", lambda view: view.nonfinite),
    ("training_tokens", "{token}", lambda view: view.tokens),
    ("training_samples", "{sample}", lambda view: view.samples),
)
# What the metrics show already.
_NO_EVENTS = frozenset(("progress_noted", "gpu_stats"))

logger = logging.getLogger("trainwarden")


class Telemetry:
    """The metrics and the span of one attempt. No method raises.

    Args:
        context: of the run.
        snapshot: returns the state of the loop.
    """

    def __init__(self, context: RunContext, snapshot: Callable[[], LoopSnapshot]) -> None:
        self.snapshot = snapshot
        self.attributes = {"run_id": context.run_id, "attempt_key": str(context.key)}
        self._span: Any = None
        try:
            from opentelemetry import trace  # noqa: PLC0415  # it is the program's, and need not be there

            known = {"framework": context.framework, "model": context.model, "method": context.method}
            beginning = context.beginning
            known["attempt"] = str(beginning.this.attempt) if beginning else None
            self._span = trace.get_tracer(_NAME).start_span(
                "training_run",
                start_time=_nanoseconds(context.start),
                attributes={**self.attributes, **{name: value for name, value in known.items() if value is not None}},
            )
            _instruments.add(self)
        except ImportError:
            logger.warning("run(otel=True): opentelemetry-api is not installed; nothing is reported to OpenTelemetry")
        except Exception as error:  # noqa: BLE001  # whatever the program's own SDK raises
            logger.warning("run(otel=True): nothing is reported to OpenTelemetry: %s", error)

    def add_event(self, event: RunEvent) -> None:
        """Add a line of `events.jsonl` to the span."""
        if self._span is None or event.event in _NO_EVENTS:
            return
        try:
            name, data = event.event, dict(event.data)
            if name == "error":
                name = "exception"
                data["exception.type"], data["exception.message"] = (
                    data.get("exception_type"),
                    data.get("error_message"),
                )
            from trainwarden.redaction import redact  # noqa: PLC0415  # its patterns take long to compile

            plain = {
                key: redact(value) if isinstance(value, str) else value
                for key, value in data.items()
                if isinstance(value, (str, bool, int, float))
            }
            self._span.add_event(name, plain, _nanoseconds(event.time))
        except Exception:  # the program's own SDK
            logger.debug("an event could not be added to the span", exc_info=True)

    def end(self, outcome: AttemptOutcome) -> None:
        """End the span with the outcome of the attempt, and report no more metrics."""
        _instruments.remove(self)
        if self._span is None:
            return
        try:
            from opentelemetry.trace import Status, StatusCode  # noqa: PLC0415  # as above

            from trainwarden.redaction import redact  # noqa: PLC0415  # as above

            self._span.set_attribute("status", outcome.status)
            if outcome.failure is not None:
                self._span.set_attribute("failure", outcome.failure.slug)
            if outcome.status == "failed":
                self._span.set_status(Status(StatusCode.ERROR, outcome.reason and redact(outcome.reason)))
            elif outcome.status == "succeeded":
                self._span.set_status(Status(StatusCode.OK))
            self._span.end()
        except Exception:  # the program's own SDK
            logger.debug("the span of the run could not be ended", exc_info=True)


class _Instruments:
    """The metrics, which exist once in a process and show all attempts in progress there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._attempts: set[Telemetry] = set()
        self._provider: Any = None

    def add(self, attempt: Telemetry) -> None:
        """Show an attempt; make the metrics where the program's provider has none yet."""
        from opentelemetry import metrics  # noqa: PLC0415  # it is the program's, and need not be there

        with self._lock:
            provider = metrics.get_meter_provider()
            if provider is not self._provider:
                self._provider = provider
                meter = provider.get_meter(_NAME)
                for name, unit, value in _GAUGES:
                    meter.create_observable_gauge(name, [self._callback(metrics.Observation, value)], unit=unit)
                for name, unit, value in _COUNTERS:
                    meter.create_observable_counter(name, [self._callback(metrics.Observation, value)], unit=unit)
            self._attempts.add(attempt)

    def remove(self, attempt: Telemetry) -> None:
        """Show an attempt no more."""
        self._attempts.discard(attempt)

    def _callback(
        self, observation: Callable[[float, dict[str, str]], Any], value: Callable[[LoopSnapshot], float | None]
    ) -> Callable[[Any], Iterable[Any]]:
        def observe(_: Any) -> list[Any]:
            found = [(each, value(each.snapshot())) for each in tuple(self._attempts)]
            return [observation(number, each.attributes) for each, number in found if number is not None]

        return observe


_instruments = _Instruments()


def _nanoseconds(seconds: float) -> int:
    return int(seconds * 1e9)
