"""Metrics of fine-tuning jobs out of the process that trains."""

from __future__ import annotations

import functools
import logging
import os
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, cast

from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.finetuning.job import PENDING, Labels, Observed, Reading, add_job, percent, status_number
from trainwarden_exporter.finetuning.live import Live
from trainwarden_exporter.finetuning.training_info import number
from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.web.pages import ExporterPages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from trainwarden.server.server import HttpServer
    from trainwarden_exporter.core.metric import Family

log = logging.getLogger(__name__)

P = ParamSpec("P")
S = TypeVar("S", bound="JobMetrics")


def _never_raises(setter: Callable[Concatenate[S, P], None]) -> Callable[Concatenate[S, P], None]:
    """Let no value, however odd, end the training that reports it; what was odd is logged once for each setter."""

    @functools.wraps(setter)
    def call(self: S, *arguments: P.args, **named: P.kwargs) -> None:
        self.is_told_of = True
        try:
            setter(self, *arguments, **named)
        except Exception as error:  # noqa: BLE001  # see above
            self.complain(setter.__name__, error)

    return cast("Callable[Concatenate[S, P], None]", call)


class JobMetrics:
    """One job. Any thread may call any method at any time; none raises, and a value that is no number is left out."""

    def __init__(self, job_name: str, model_id: str = "", method: str = "") -> None:
        self._labels = Labels(str(job_name), str(model_id), str(method))
        self._reading = Reading(status=PENDING)
        self._observed = Observed()
        self._complained: set[str] = set()
        self.is_told_of = False
        self._changing = threading.Lock()

    @_never_raises
    def update_job_status(self, status: str) -> None:
        """Say how the job is doing: Pending, Running, Succeeded, Failed, Paused."""
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
        """Say how far it is; `progress` is in percent, without it the totals tell. What is None stays as it was."""
        done = percent(_value(progress), 100)
        if done is None:
            done = percent(_value(step), _value(total_steps))
        if done is None:
            done = percent(_value(epoch), _value(total_epochs))
        self._change(epoch=_value(epoch), step=_value(step), progress=done)

    @_never_raises
    def update_loss(self, loss: float, epoch: float | None = None) -> None:
        """Say the training loss; `epoch` as in `update_progress`. A loss that is NaN is no value: the series goes."""
        value, at = _value(loss), _value(epoch)
        with self._changing:
            self._reading = replace(self._reading, loss=value, epoch=self._reading.epoch if at is None else at)

    @_never_raises
    def update_learning_rate(self, learning_rate: float) -> None:
        """Say the learning rate."""
        self._change(learning_rate=_value(learning_rate))

    @_never_raises
    def update_throughput(
        self, samples_per_second: float | None = None, tokens_per_second: float | None = None
    ) -> None:
        """Say how fast it is. What is None stays as it was."""
        self._change(samples_per_second=_value(samples_per_second), tokens_per_second=_value(tokens_per_second))

    @_never_raises
    def update_gpu(
        self,
        utilization_percent: float | None = None,
        memory_used_bytes: float | None = None,
        memory_total_bytes: float | None = None,
    ) -> None:
        """Say what its GPUs do. What is None stays as it was."""
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
            self._reading = replace(self._reading, checkpoints=(self._reading.checkpoints or 0) + 1)
            self._observed.sizes.observe(size)

    @_never_raises
    def record_job_duration(self, seconds: float) -> None:
        """Say how long the job ran, once, at its end."""
        value = _value(seconds)
        with self._changing:
            self._observed.durations.observe(value)

    def complain(self, setter: str, error: Exception) -> None:
        """Log what a setter could not take, the first time."""
        if setter not in self._complained:
            self._complained.add(setter)
            log.warning("%s of job %s: %s", setter, self._labels.job_name, error)

    def add_to(self, families: Families) -> None:
        """Add the job's series."""
        with self._changing:
            add_job(families, self._labels, self._reading, self._observed)

    def _change(self, **values: Any) -> None:
        known = {name: value for name, value in values.items() if value is not None}
        with self._changing:
            self._reading = replace(self._reading, **known)


class MetricsExporter(JobMetrics):
    """Serves the metrics of the job that this process works on, and of others that it is told of.

    Args:
        port: where `start_server` listens; 0 is a free one.
        address: on which it listens; the empty string is every address.
        job_name, model_id, method: the labels; a job without a name is called as the run is, else `job`, and shown as
            soon as something is said of it.
        registry: one of prometheus_client, which then shows the same series as well.
    """

    name = "finetuning"

    def __init__(
        self,
        port: int = 8000,
        *,
        address: str = "127.0.0.1",
        job_name: str | None = None,
        model_id: str = "",
        method: str = "",
        registry: Any = None,
    ) -> None:
        super().__init__(job_name or os.environ.get("TRAINWARDEN_RUN_ID") or "job", model_id, method)
        self.is_told_of = job_name is not None
        self._address = (address, port)
        self._jobs: dict[Labels, JobMetrics] = {self._labels: self}
        self._server: HttpServer | None = None
        self._pid = 0
        if registry is not None:
            registry.register(self)

    def job(self, job_name: str, model_id: str = "", method: str = "") -> JobMetrics:
        """Return the metrics of a job, the same each time; the exporter itself for its own."""
        labels = Labels(str(job_name), str(model_id), str(method))
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
            server = ExporterPages(Collection([Live(self)])).server([self._address])
        except (OSError, OverflowError) as error:
            log.warning("no metrics on %s:%s: %s", *self._address, error)
            return False
        self._server, self._pid = server, os.getpid()
        server.start()
        log.info("serving /metrics on %s", server.bound[0])
        return True

    @property
    def bound(self) -> str | None:
        """The address really bound, as host:port; None while it does not serve."""
        return self._server.bound[0] if self._server is not None else None

    def stop(self) -> None:
        """End serving; the values stay, and `start_server` may be called again."""
        server, self._server = self._server, None
        if server is not None and self._pid == os.getpid():
            server.stop()

    def collect(self) -> Iterable[Family]:
        """Return the families of all jobs, for a page of ours or a registry of prometheus_client."""
        with self._changing:
            jobs = [job for job in self._jobs.values() if job is not self or self.is_told_of]
        families = Families()
        for job in jobs:
            job.add_to(families)
        return families.collected()

    def describe(self) -> Iterable[Family]:
        """Return the families, so that a registry of prometheus_client sees who else has such a name."""
        return self.collect()

    def __enter__(self) -> MetricsExporter:
        self.start_server()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()


def _value(value: Any) -> float | None:
    """Return a number; None for None, and for one that is not finite. Raises `ValueError` for what is none."""
    plain = _plain(value)
    found = number(plain)
    if found is None and plain is not None and not isinstance(plain, float):
        raise ValueError(f"{value!r} is not a number")
    return found


def _plain(value: Any) -> Any:
    """Return what a tensor or a number of NumPy holds; all else as it is."""
    item = getattr(value, "item", None)
    return item() if callable(item) else value
