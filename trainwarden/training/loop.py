"""What the training loop said of itself: memory only, so that saying it costs the loop nothing."""

import operator
import threading
import time
from dataclasses import dataclass
from typing import Any

_LARGEST = 2**63
_MAX_METRICS = 100
_MAX_TEXT = 200
_INFINITY = float("inf")


@dataclass(frozen=True)
class Carried:
    """What a run keeps across its attempts."""

    high_water: int | None = None
    steps_completed: int = 0
    nonfinite: int = 0


@dataclass(frozen=True)
class LoopView:
    """The loop at one moment. Times are Unix seconds; `tokens` and `samples` are sums over the attempt.

    Plain values throughout: nothing of the user's is asked for its value again, which may mean to wait for a device.
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

    @property
    def final_metric(self) -> float | None:
        """What a summary shows: the metric called `metric` where the loop reports one, else the loss."""
        return finite(self.metrics.get("metric", self.loss))


class Loop:
    """The loop's last word and its counters.

    The lock is held only while numbers are moved, never during input or output. It is reentrant because a signal
    handler may call back in the middle.
    """

    def __init__(self, carried: Carried) -> None:
        self._lock = threading.RLock()
        self._reports = 0
        # The thread that reported last.
        self.thread: int | None = None
        self._step: int | None = None
        self._first_step: int | None = None
        self._attempt_high = -1
        self._epoch: float | None = None
        self._last: tuple[float | None, float | None, float | None, dict[str, Any]] = (None, None, None, {})
        self._last_updated: float | None = None
        self._step_time: float | None = None
        self._moved_time: float | None = None
        self._high_water = carried.high_water
        self._steps_completed = carried.steps_completed
        self._nonfinite = carried.nonfinite
        self._tokens: float | None = None
        self._samples: float | None = None

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
        """Take one report of the loop. Numbers of any library will do; what is no number is passed over.

        Returns:
            The names of what was passed over, of `metrics` none.
        """
        now = time.time()
        number = step if type(step) is int and 0 <= step < _LARGEST else whole(step)
        # In the loop's own thread and before the lock: only the loop waits for a device that does not answer.
        value, rate, norm = _number(loss), _number(learning_rate), _number(grad_norm)
        bad = not (_is_finite(value) and _is_finite(norm))
        more_tokens, more_samples = finite(tokens), finite(samples)
        plain = plain_metrics(metrics) if metrics else {}
        with self._lock:
            self._reports += 1
            self.thread = threading.get_ident()
            self._last_updated = now
            self._last = (value, rate, norm, plain)
            if plain and "epoch" in plain:
                epoch = finite(plain.pop("epoch"))
                self._epoch = self._epoch if epoch is None else epoch
            if bad:
                self._nonfinite += 1
            if tokens is not None:
                self._tokens = (self._tokens or 0.0) + (more_tokens or 0.0)
            if samples is not None:
                self._samples = (self._samples or 0.0) + (more_samples or 0.0)
            if number is not None:
                self._advance(number, now)
        if (
            number is None
            or (value is None and loss is not None)
            or (rate is None and learning_rate is not None)
            or (norm is None and grad_norm is not None)
            or (more_tokens is None and tokens is not None)
            or (more_samples is None and samples is not None)
        ):
            given = (step, loss, learning_rate, grad_norm, tokens, samples)
            return _passed_over(given, (number, value, rate, norm, more_tokens, more_samples))
        return ()

    def enter_epoch(self, epoch: Any) -> int | float | None:
        """Take the epoch that begins, a whole number or a fraction; what it is, None if it is no number."""
        number = whole(epoch)
        known = finite(epoch) if number is None else number
        if known is not None:
            with self._lock:
                self._reports += 1
                self._epoch = known
        return known

    def _advance(self, number: int, now: float) -> None:
        before = self._step
        if before is None:
            self._first_step = number
            self._steps_completed += 1
            self._moved_time = now
        elif number != before:
            # A loop that reports every tenth step has made ten; one that was set back repeats.
            self._steps_completed += number - before if number > before else 1
            self._moved_time = now
        self._step = number
        if number > self._attempt_high:
            self._attempt_high = number
            self._step_time = now
        if self._high_water is None or number > self._high_water:
            self._high_water = number

    @property
    def reports(self) -> int:
        """How often the loop said something."""
        return self._reports

    @property
    def step(self) -> int | None:
        """The step last reported."""
        return self._step

    @property
    def first_step(self) -> int | None:
        """The first step that this attempt reported."""
        return self._first_step

    def view(self) -> LoopView:
        """A consistent copy."""
        with self._lock:
            loss, learning_rate, grad_norm, metrics = self._last
            return LoopView(
                reports=self._reports,
                step=self._step,
                first_step=self._first_step,
                loss=loss,
                learning_rate=learning_rate,
                grad_norm=grad_norm,
                metrics=metrics,
                epoch=self._epoch,
                last_updated=self._last_updated,
                step_time=self._step_time,
                moved_time=self._moved_time,
                high_water=self._high_water,
                steps_completed=self._steps_completed,
                nonfinite=self._nonfinite,
                tokens=self._tokens,
                samples=self._samples,
            )


def finite(value: Any) -> float | None:
    """The number that `value` is, if it is a finite one of any library; text is none."""
    number = _number(value)
    return number if number is not None and -_INFINITY < number < _INFINITY else None


def whole(value: Any) -> int | None:
    """The whole number from 0 to 2**63 that `value` is, if it is one."""
    try:
        number = operator.index(value)
    except Exception:  # noqa: BLE001  # whatever an object of the user's does when asked for its value
        as_float = finite(value)
        if as_float is None or as_float != int(as_float):
            return None
        number = int(as_float)
    return number if 0 <= number < _LARGEST else None


def plain_metrics(metrics: dict[str, Any]) -> dict[str, Any]:
    """What of the user's metrics has a JSON form: numbers, short texts, and null for NaN and infinities."""
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


def _passed_over(given: tuple[Any, ...], taken: tuple[Any, ...]) -> tuple[str, ...]:
    names = ("step", "loss", "learning_rate", "grad_norm", "tokens", "samples")
    left = zip(names, given, taken, strict=True)
    return tuple(name for name, value, number in left if number is None and (value is not None or name == "step"))


def _number(value: Any) -> float | None:
    if type(value) is float or value is None:
        return value
    if isinstance(value, (str, bytes)):
        return None
    try:
        return float(value)
    except OverflowError:
        return _INFINITY
    except Exception:  # noqa: BLE001  # whatever an object of the user's does when asked for its value
        return None


def _is_finite(number: float | None) -> bool:
    return number is None or -_INFINITY < number < _INFINITY
