"""The state that the training loop reports by `step()`, kept in memory only, so that a report takes microseconds."""

from __future__ import annotations

import operator
import threading
import time
from collections import deque
from dataclasses import dataclass
from typing import Any

from trainwarden.record.step_durations import StepTimer
from trainwarden.record.steps import StepCounter, is_nonfinite
from trainwarden.training.brief_lock import BriefLock
from trainwarden.training.sections import SectionTimer

_LARGEST = 2**63
_MAX_METRICS = 100
_MAX_TEXT = 200
# Of the rates per second.
_WINDOW_SECONDS = 30.0
_INFINITY = float("inf")


@dataclass(frozen=True)
class LoopSnapshot:
    """The state at one moment. Times are Unix seconds; `tokens` and `samples` are sums over the attempt.

    It holds plain numbers only: reading the value of a tensor again may wait for a device.
    """

    reports: int
    step: int | None
    first_step: int | None
    loss: float | None
    learning_rate: float | None
    grad_norm: float | None
    metrics: dict[str, Any]
    epoch: float | None
    last_updated: float | None
    step_time: float | None
    moved_time: float | None
    high_water: int | None
    steps_completed: int
    nonfinite: int
    tokens: float | None
    samples: float | None
    step_seconds: tuple[float, ...] = ()

    @property
    def final_metric(self) -> float | None:
        """The metric named `metric` where the loop reports one, else the loss; for the summary."""
        return finite(self.metrics.get("metric", self.loss))

    @property
    def missing(self) -> list[str]:
        """The arguments of `step()` that the last report, or for sums every one so far, was not given."""
        names = ("loss", "learning_rate", "grad_norm", "tokens", "samples", "epoch")
        return [name for name in names if getattr(self, name) is None]


class LoopState:
    """The last report of the loop, and its counters.

    The lock is held only while numbers change, never during input or output. It is reentrant because a signal handler
    may interrupt a report and report itself.
    """

    def __init__(self, steps: StepCounter) -> None:
        self._lock = threading.RLock()
        # The handler may also wait for the thread that takes snapshots: one of half a report is better than none.
        self._brief_lock = BriefLock(self._lock)
        self._reports = 0
        # The thread that reported last.
        self.thread: int | None = None
        self._steps = steps
        self._epoch: float | None = None
        self._last: tuple[float | None, float | None, float | None, dict[str, Any]] = (None, None, None, {})
        self._last_updated: float | None = None
        self._tokens: float | None = None
        self._samples: float | None = None
        self._timer = StepTimer()
        self.sections = SectionTimer()

    def interrupt(self) -> None:
        """Leave the step that is being made out of the durations: the training does something else in it."""
        self._timer.interrupt()
        self.sections.interrupt()

    def report(
        self,
        step: Any,
        *,
        loss: Any = None,
        learning_rate: Any = None,
        grad_norm: Any = None,
        tokens: Any = None,
        samples: Any = None,
        metrics: dict[str, Any],
    ) -> tuple[str, ...]:
        """Store one report of the loop.

        Args:
            step: whole number, 0 or more.
            loss: scalar, any number or 0-d tensor; as `learning_rate`, `grad_norm`, `tokens` and `samples`.
            learning_rate: scalar.
            grad_norm: scalar.
            tokens: scalar, the number since the last report.
            samples: scalar, the number since the last report.
            metrics: further values by name.

        Returns:
            The names of the arguments that are not numbers and were ignored, except those in `metrics`.
        """
        now = time.time()
        number = step if type(step) is int and 0 <= step < _LARGEST else whole(step)
        # Before the lock is taken: reading a tensor may wait for a hanging device, and only the loop may wait then.
        value, rate, norm = _number(loss), _number(learning_rate), _number(grad_norm)
        bad = is_nonfinite(value, norm)
        more_tokens, more_samples = finite(tokens), finite(samples)
        plain = plain_metrics(metrics) if metrics else {}
        moment = time.monotonic()
        with self._lock:
            self._reports += 1
            self.thread = threading.get_ident()
            self._last_updated = now
            self._last = (value, rate, norm, plain)
            if plain and "epoch" in plain:
                epoch = finite(plain.pop("epoch"))
                self._epoch = self._epoch if epoch is None else epoch
            if bad:
                self._steps.nonfinite += 1
            if tokens is not None:
                self._tokens = (self._tokens or 0.0) + (more_tokens or 0.0)
            if samples is not None:
                self._samples = (self._samples or 0.0) + (more_samples or 0.0)
            if number is not None:
                if self.sections.in_use and number != self._steps.step:
                    self.sections.end_step(max(1, number - (self._steps.step or 0)), moment)
                self._steps.advance(number, now)
                self._timer.report(number, moment)
        if (
            number is None
            or (value is None and loss is not None)
            or (rate is None and learning_rate is not None)
            or (norm is None and grad_norm is not None)
            or (more_tokens is None and tokens is not None)
            or (more_samples is None and samples is not None)
        ):
            given = (step, loss, learning_rate, grad_norm, tokens, samples)
            return _ignored(given, (number, value, rate, norm, more_tokens, more_samples))
        return ()

    def enter_epoch(self, epoch: Any) -> int | float | None:
        """Store the epoch that begins, a whole number or a fraction, and return it; None if it is no number."""
        number = whole(epoch)
        known = finite(epoch) if number is None else number
        if known is not None:
            with self._lock:
                self._reports += 1
                self._epoch = known
        return known

    @property
    def reports(self) -> int:
        """The number of reports."""
        return self._reports

    @property
    def step(self) -> int | None:
        """The last reported step."""
        return self._steps.step

    @property
    def first_step(self) -> int | None:
        """The first step that this attempt reported."""
        return self._steps.first_step

    def section_totals(self) -> tuple[int, dict[str, float]]:
        """Return the number of steps with sections, and the seconds of each section in all of them."""
        with self._brief_lock:
            return self.sections.totals()

    def snapshot(self) -> LoopSnapshot:
        """Return a copy, consistent unless a signal handler that interrupted a report waits for it."""
        with self._brief_lock:
            loss, learning_rate, grad_norm, metrics = self._last
            steps = self._steps
            return LoopSnapshot(
                reports=self._reports,
                step=steps.step,
                first_step=steps.first_step,
                loss=loss,
                learning_rate=learning_rate,
                grad_norm=grad_norm,
                metrics=metrics,
                epoch=self._epoch,
                last_updated=self._last_updated,
                step_time=steps.step_time,
                moved_time=steps.moved_time,
                high_water=steps.high_water,
                steps_completed=steps.steps_completed,
                nonfinite=steps.nonfinite,
                tokens=self._tokens,
                samples=self._samples,
                step_seconds=self._timer.seconds,
            )


def finite(value: Any) -> float | None:
    """Return `value` as a float if it is a finite number of any library, 0-d tensors included; None for text."""
    number = _number(value)
    return number if number is not None and -_INFINITY < number < _INFINITY else None


def whole(value: Any) -> int | None:
    """Return `value` as an int if it is a whole number from 0 to 2**63 - 1, else None."""
    try:
        number = operator.index(value)
    except Exception:  # noqa: BLE001  # a conversion written by the user may raise anything
        as_float = finite(value)
        if as_float is None or as_float != int(as_float):
            return None
        number = int(as_float)
    return number if 0 <= number < _LARGEST else None


def plain_metrics(metrics: dict[str, Any]) -> dict[str, Any]:
    """Return those metrics that have a JSON form: numbers, texts of up to 200 characters, None for NaN and infinity."""
    plain: dict[str, Any] = {}
    for name, value in list(metrics.items())[:_MAX_METRICS]:
        if type(value) is float:
            plain[name] = value if -_INFINITY < value < _INFINITY else None
        elif value is None or isinstance(value, bool):
            plain[name] = value
        elif isinstance(value, str):
            plain[name] = value[:_MAX_TEXT]
        elif type(value) is int and abs(value) < _LARGEST:
            plain[name] = value
        elif hasattr(value, "__float__") or hasattr(value, "__index__"):
            plain[name] = finite(value)
    return plain


def _ignored(given: tuple[Any, ...], taken: tuple[Any, ...]) -> tuple[str, ...]:
    names = ("step", "loss", "learning_rate", "grad_norm", "tokens", "samples")
    arguments = zip(names, given, taken, strict=True)
    return tuple(name for name, value, number in arguments if number is None and (value is not None or name == "step"))


def _number(value: Any) -> float | None:
    kind = type(value)
    if kind is float or value is None:
        return value  # type: ignore[no-any-return]
    if kind is int and -_LARGEST < value < _LARGEST:
        return float(
            value
        )  # nearly every other value: the search for the `item` of a tensor takes longer than `step()`
    if isinstance(value, (str, bytes)):
        return None
    try:
        plain = _plain(value)
        return None if isinstance(plain, (str, bytes)) else float(plain)
    except OverflowError:
        return _INFINITY
    except Exception:  # noqa: BLE001  # a conversion written by the user may raise anything
        return None


def _plain(value: Any) -> Any:
    """Return the Python number of a tensor: PyTorch and NumPy warn where `float()` is called on some of theirs."""
    item = getattr(value, "item", None)
    if not callable(item):
        return value
    try:
        return item()
    except TypeError:
        # Another class that has a method of this name.
        return value


@dataclass(frozen=True)
class Rates:
    """Per second, over the last 30 s; None where nothing was counted."""

    tokens: float | None
    samples: float | None


class Throughput:
    """Computes rates from growing sums."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float | None, float | None]] = deque()

    def add(self, time: float, tokens: float | None, samples: float | None) -> Rates:
        """Add the sums as they were at `time`, seconds, and return the rates up to then."""
        if self._points and time <= self._points[-1][0]:
            # The clock was set back: differences to the older points mean nothing.
            self._points.clear()
        self._points.append((time, tokens, samples))
        while len(self._points) > 2 and time - self._points[0][0] > _WINDOW_SECONDS:
            self._points.popleft()
        since, tokens_then, samples_then = self._points[0]
        return Rates(_rate(tokens_then, tokens, time - since), _rate(samples_then, samples, time - since))


def _rate(then: float | None, now: float | None, seconds: float) -> float | None:
    return None if now is None or seconds <= 0 else (now - (then or 0.0)) / seconds
