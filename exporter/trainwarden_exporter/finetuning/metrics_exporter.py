"""Metrics of fine-tuning jobs, served by the process that trains."""

from __future__ import annotations

import atexit
import functools
import logging
import os
import sys
import threading
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from trainwarden.environment import in_kubernetes
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.finetuning.job import (
    ENDED,
    FAILED,
    PENDING,
    RUNNING,
    SUCCEEDED,
    JobHistograms,
    JobLabels,
    JobValues,
    add_job,
    percent,
    status_number,
)
from trainwarden_exporter.finetuning.scrapes import Scrapes, ScrapeTimeRunner
from trainwarden_exporter.finetuning.training_info import number
from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.web.pages import ExporterPages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from trainwarden.server.server import HttpServer
    from trainwarden_exporter.core.metric import Family

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.2

P = ParamSpec("P")
S = TypeVar("S", bound="JobMetrics")


def _never_raises(setter: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Log what a setter raises, once for each setter: no bad value may end the training that reports it."""

    @functools.wraps(setter)
    def call(self: S, *arguments: P.args, **named: P.kwargs) -> None:
        self.has_values = True
        try:
            setter(self, *arguments, **named)
        except Exception as error:  # noqa: BLE001  # see above
            self.log_once(setter.__name__, error)

    return cast("Callable[Concatenate[S, P], None]", call)


class JobMetrics:
    """One job. Thread-safe; no method raises, and a value that is no number is ignored."""

    def __init__(self, job_name: str, model_id: str = "", method: str = "") -> None:
        self._labels = JobLabels(str(job_name), str(model_id), str(method))
        # A counter that begins with its first event hides that event from `increase()`.
        self._values = JobValues(status=PENDING, checkpoints=0)
        self._histograms = JobHistograms()
        self._logged: set[str] = set()
        self.has_values = False
        self._changing = threading.Lock()

    @_never_raises
    def update_job_status(self, status: str) -> None:
        """Set the status: Pending, Running, Succeeded, Failed or Paused."""
        found = status_number(status)
        if found is None:
            raise ValueError(f"{status!r} is no status: expected Pending, Running, Succeeded, Failed or Paused")
        self._change(status=found)

    @_never_raises
    def update_progress(
        self,
        epoch: float | None = None,
        step: float | None = None,
        progress: float | None = None,
        *,
        total_steps: float | None = None,
        total_epochs: float | None = None,
    ) -> None:
        """Set the progress, in percent; without it, compute it from the totals. None leaves a value as it is."""
        done = percent(_value(progress), 100)
        if done is None:
            done = percent(_value(step), _value(total_steps))
        if done is None:
            done = percent(_value(epoch), _value(total_epochs))
        self._change(epoch=_value(epoch), step=_value(step), progress=done)

    @_never_raises
    def update_loss(self, loss: float, epoch: float | None = None) -> None:
        """Set the training loss, and the epoch if it is given. A loss of NaN ends the series."""
        value, at = _value(loss), _value(epoch)
        with self._changing:
            self._values = replace(self._values, loss=value, epoch=self._values.epoch if at is None else at)

    @_never_raises
    def update_learning_rate(self, learning_rate: float) -> None:
        """Set the learning rate."""
        self._change(learning_rate=_value(learning_rate))

    @_never_raises
    def update_throughput(
        self, samples_per_second: float | None = None, tokens_per_second: float | None = None
    ) -> None:
        """Set the throughput. None leaves a value as it is."""
        self._change(samples_per_second=_value(samples_per_second), tokens_per_second=_value(tokens_per_second))

    @_never_raises
    def update_gpu(
        self,
        utilization_percent: float | None = None,
        memory_used_bytes: float | None = None,
        memory_total_bytes: float | None = None,
    ) -> None:
        """Set the values of the job's GPUs. None leaves a value as it is."""
        self._change(
            gpu_utilization=_value(utilization_percent),
            gpu_memory_used=_value(memory_used_bytes),
            gpu_memory_total=_value(memory_total_bytes),
        )

    @_never_raises
    def checkpoint_saved(self, size_bytes: float | None = None) -> None:
        """Count a checkpoint, and its size if it is known."""
        size = _value(size_bytes)
        with self._changing:
            self._values = replace(self._values, checkpoints=(self._values.checkpoints or 0) + 1)
            self._histograms.sizes.observe(size)

    @_never_raises
    def record_job_duration(self, seconds: float) -> None:
        """Count the duration of the job; call it once, at the end."""
        value = _value(seconds)
        with self._changing:
            self._histograms.durations.observe(value)

    def end(self, status: int) -> None:
        """Set how the job ended, unless it has: failed, or succeeded where it was running."""
        with self._changing:
            now = self._values.status
            if now == RUNNING or (status == FAILED and now not in ENDED):
                self._values = replace(self._values, status=status)

    def log_once(self, setter: str, error: Exception) -> None:
        """Log what a setter raised, the first time."""
        if setter not in self._logged:
            self._logged.add(setter)
            log.warning("%s of job %s: %s", setter, self._labels.job_name, error)

    def add_to(self, families: Families) -> None:
        """Add the job's series."""
        with self._changing:
            add_job(families, self._labels, self._values, self._histograms)

    def _change(self, **values: Any) -> None:
        known = {name: value for name, value in values.items() if value is not None}
        with self._changing:
            self._values = replace(self._values, **known)


class MetricsExporter(JobMetrics):
    """Serves the metrics of the job that this process works on, and of others by `job()`.

    As a context manager it serves within the block. A job that is running at its end has succeeded then, and failed
    where the block raised. The end waits for a scrape that shows it.

    Args:
        port: where `start_server` listens; 0 is a free one.
        address: on which it listens, the empty string is every address; by default loopback, in a pod every address.
        job_name, model_id, method: the labels. Without a name the job has that of the run, else `job`, and is shown
            once one of its values was set.
        registry: of prometheus_client, which then shows the same series as well.
        linger_seconds: how long, at most, the end of the block or of the process waits for a scrape, where there was
            one before; 0 to never wait.
    """

    name = "finetuning"

    def __init__(
        self,
        port: int = 8000,
        *,
        address: str | None = None,
        job_name: str | None = None,
        model_id: str = "",
        method: str = "",
        registry: Any = None,
        linger_seconds: float = 60.0,
    ) -> None:
        super().__init__(job_name or os.environ.get("TRAINWARDEN_RUN_ID") or "job", model_id, method)
        self.has_values = job_name is not None
        self._address = (default_address() if address is None else address, port)
        self._linger_seconds = linger_seconds
        self._scrapes = Scrapes()
        self._jobs: dict[JobLabels, JobMetrics] = {self._labels: self}
        self._server: HttpServer | None = None
        self._pid = 0
        if registry is not None:
            registry.register(self)

    def job(self, job_name: str, model_id: str = "", method: str = "") -> JobMetrics:
        """Return the metrics of a job, the same each time; the exporter itself for its own."""
        labels = JobLabels(str(job_name), str(model_id), str(method))
        with self._changing:
            found = self._jobs.get(labels)
            if found is None:
                found = self._jobs[labels] = JobMetrics(*labels)
            return found

    def start_server(self) -> bool:
        """Listen, once for each process; False and a line in the log if the address cannot be had: training goes on."""
        if self._server is not None and self._pid == os.getpid():
            return True
        try:
            server = ExporterPages(Collection([ScrapeTimeRunner(self, self._scrapes)])).server([self._address])
        except (OSError, OverflowError) as error:
            log.warning("no metrics on %s:%s: %s", *self._address, error)
            return False
        self._server, self._pid = server, os.getpid()
        server.start()
        atexit.register(self._end_process)
        log.info("serving /metrics on %s", server.bound[0])
        return True

    @property
    def bound(self) -> str | None:
        """The address really bound, as host:port; None while it does not serve."""
        return self._server.bound[0] if self._server is not None else None

    def stop(self) -> None:
        """End serving; the values stay, and `start_server` may be called again."""
        server, self._server = self._server, None
        atexit.unregister(self._end_process)
        if server is not None and self._pid == os.getpid():
            server.stop()

    def _linger(self) -> None:
        """Wait for a scrape of the values as they are now, but not for one that cannot be expected: see above."""
        server, before = self._server, self._scrapes.count
        if server is None or self._pid != os.getpid():
            return
        deadline = time.monotonic() + self._scrapes.patience(self._linger_seconds)
        while self._scrapes.count == before and (left := deadline - time.monotonic()) > 0:
            server.answer_here(min(_POLL_SECONDS, left))

    def collect(self) -> Iterable[Family]:
        """Return the families of all jobs, for this server or a registry of prometheus_client."""
        with self._changing:
            jobs = [job for job in self._jobs.values() if job is not self or self.has_values]
        families = Families()
        for job in jobs:
            job.add_to(families)
        return families.collected()

    def describe(self) -> Iterable[Family]:
        """Return the families, so that a registry of prometheus_client finds names that are taken."""
        return self.collect()

    def __enter__(self) -> MetricsExporter:
        self.start_server()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(FAILED if is_failure(error) else SUCCEEDED)
        try:
            self._linger()
        finally:
            self.stop()

    def _end(self, status: int) -> None:
        with self._changing:
            jobs = list(self._jobs.values())
        for job in jobs:
            job.end(status)

    def _end_process(self) -> None:
        """Show how the process ends, where there was no block: a `SystemExit` leaves open how the jobs ended."""
        if self._pid == os.getpid():
            if is_failure(getattr(sys, "last_value", None)):
                self._end(FAILED)
            self._linger()
            self.stop()


def default_address() -> str:
    """Return loopback; in a pod, whose loopback is reached from nowhere else, the empty string for every address."""
    return "" if in_kubernetes(os.environ) else "127.0.0.1"


def is_failure(error: BaseException | None) -> bool:
    """Return whether a program that ends with this exception has failed; None is no exception."""
    return error is not None and not (isinstance(error, SystemExit) and error.code in (None, 0))


@dataclass
class TrainingMetrics:
    """All values of a training at once. Utilisation is in percent, memory in bytes."""

    job_name: str
    model_id: str
    method: str
    current_epoch: float
    total_epochs: float
    current_step: float
    total_steps: float
    train_loss: float
    learning_rate: float
    gpu_utilization: float | None = None
    gpu_memory_used: float | None = None
    gpu_memory_total: float | None = None
    samples_per_second: float | None = None
    tokens_per_second: float | None = None


class FineTuningMetricsExporter:
    """A `MetricsExporter` whose methods name the job in each call, as the fine-tuning exporter's do.

    Args:
        port: as of `MetricsExporter`.
        address: as of `MetricsExporter`, but every address by default, as the fine-tuning exporter: whatever scrapes it
            must find it where only the import was changed.
        options: other arguments of `MetricsExporter`.
    """

    def __init__(self, port: int = 8000, *, address: str = "", **options: Any) -> None:
        self.exporter = MetricsExporter(port, address=address, **options)
        self._methods: dict[tuple[str, str], str] = {}

    def start_server(self) -> bool:
        """Listen, once for each process; False if the address cannot be had."""
        return self.exporter.start_server()

    def stop(self) -> None:
        """End serving."""
        self.exporter.stop()

    def update_job_status(self, job_name: str, model_id: str, method: str, status: str) -> None:
        """Set the status of a job: Pending, Running, Succeeded, Failed or Paused."""
        self._job(job_name, model_id, method).update_job_status(status)

    def update_training_metrics(self, metrics: TrainingMetrics) -> None:
        """Set all values of a job; log once if `metrics` is something else."""
        try:
            job = self._job(metrics.job_name, metrics.model_id, metrics.method)
        except AttributeError as error:
            self.exporter.log_once("update_training_metrics", error)
            return
        job.update_progress(
            metrics.current_epoch,
            metrics.current_step,
            total_steps=metrics.total_steps,
            total_epochs=metrics.total_epochs,
        )
        job.update_loss(metrics.train_loss)
        job.update_learning_rate(metrics.learning_rate)
        job.update_throughput(metrics.samples_per_second, metrics.tokens_per_second)
        job.update_gpu(metrics.gpu_utilization, metrics.gpu_memory_used, metrics.gpu_memory_total)

    def record_checkpoint(self, job_name: str, model_id: str, checkpoint_size: float) -> None:
        """Count a checkpoint and its size in bytes."""
        self._job(job_name, model_id).checkpoint_saved(checkpoint_size)

    def record_job_duration(self, job_name: str, model_id: str, method: str, duration_seconds: float) -> None:
        """Count the duration of a job; call it once, at the end."""
        self._job(job_name, model_id, method).record_job_duration(duration_seconds)

    def _job(self, job_name: str, model_id: str, method: str | None = None) -> JobMetrics:
        """Return the job of that name; without a method, that of an earlier call."""
        known = self._methods.get((job_name, model_id), "") if method is None else method
        self._methods[job_name, model_id] = known
        return self.exporter.job(job_name, model_id, known)


def _value(value: Any) -> float | None:
    """Return a finite number; None for None and for other numbers. Raise `ValueError` for what is no number."""
    plain = _plain(value)
    found = number(plain)
    if found is None and plain is not None and not isinstance(plain, float):
        raise ValueError(f"{value!r} is not a number")
    return found


def _plain(value: Any) -> Any:
    """Return the Python number in a tensor or a NumPy scalar; anything else unchanged."""
    item = getattr(value, "item", None)
    return item() if callable(item) else value
