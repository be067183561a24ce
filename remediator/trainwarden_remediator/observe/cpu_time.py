"""What the processes of a job take of CPUs, from two readings of its scheduler some time apart."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from trainwarden.clients.slurm.client import SlurmClient, SlurmError
from trainwarden.identity import AttemptKey
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import clean

# SLURM shows whole seconds: over less time a job that works looks like one that does not.
_WINDOW_SECONDS = 30.0
# An older reading says nothing of now.
_FRESH_SECONDS = 10.0
# Of one CPU, by all processes of a task; and by all of a job, for one rank of many may work alone.
_IDLE_TASK, _IDLE_JOB = 0.05, 0.5
_MEASURING = Unknown("it is being measured")


@dataclass(frozen=True)
class CpuUse:
    """CPU time that a job has taken over some time: `cpus` on average, over `seconds`, by its `tasks` together."""

    cpus: float
    seconds: float
    tasks: int

    @property
    def is_idle(self) -> bool:
        """Whether nothing in it works, and nothing waits by polling."""
        return self.cpus <= min(_IDLE_JOB, _IDLE_TASK * self.tasks)

    def __str__(self) -> str:
        """Return it as a part of a reason."""
        return f"{self.cpus:.2f} CPUs busy in the last {self.seconds:.0f} s"


class CpuSource(Protocol):
    """Measures what jobs take of CPUs."""

    def of(self, key: AttemptKey) -> CpuUse | Unknown:
        """Return what the start of a job takes now; unknown also until it was measured for long enough."""


class NoCpu:
    """Measures nothing."""

    def of(self, key: AttemptKey) -> Unknown:
        """Return that it is not measured."""
        return Unknown(f"it is not measured with {key.scheduler}")


@dataclass
class _Readings:
    """The readings of one start: (monotonic seconds, CPU seconds), oldest first, and the last problem."""

    values: list[tuple[float, float]] = field(default_factory=list)
    tasks: int = 1
    asked: float | None = None
    problem: Unknown | None = None


class SlurmCpu:
    """Asks `sstat`, at most every ten seconds for a job; for any thread.

    Args:
        client: of the cluster.
        monotonic: seconds.
    """

    def __init__(self, client: SlurmClient, monotonic: Callable[[], float]) -> None:
        self._client = client
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._readings: dict[str, _Readings] = {}

    def of(self, key: AttemptKey) -> CpuUse | Unknown:
        """Return what the start of a job takes now."""
        if key.scheduler != "slurm":
            return NoCpu().of(key)
        with self._lock:
            now = self._monotonic()
            # One that is not asked about any more is over.
            old = now - 10 * _WINDOW_SECONDS
            self._readings = {name: each for name, each in self._readings.items() if (each.asked or old) >= old}
            known = self._readings.setdefault(str(key), _Readings())
            if known.asked is None or now - known.asked >= _FRESH_SECONDS:
                self._read(key, known)
            return known.problem or _use(known)

    def _read(self, key: AttemptKey, known: _Readings) -> None:
        try:
            seconds, tasks = self._client.cpu_time(key.job_id)
        except SlurmError as error:
            known.values, known.problem = [], Unknown(clean(error.message))
        else:
            known.problem = None
            if known.values and (seconds < known.values[-1][1] or tasks != known.tasks):
                known.values = []  # some of its processes have ended: what they took is not counted any more
            known.tasks = tasks
            known.values.append((self._monotonic(), seconds))
        now = known.asked = self._monotonic()
        # The youngest that is old enough, and those after it.
        while len(known.values) > 2 and now - known.values[1][0] >= _WINDOW_SECONDS:
            known.values.pop(0)


def _use(known: _Readings) -> CpuUse | Unknown:
    (began, before), (ended, after) = known.values[0], known.values[-1]
    if ended - began < _WINDOW_SECONDS:
        return _MEASURING
    return CpuUse((after - before) / (ended - began), ended - began, known.tasks)
