"""What a restart loses: steps that are done again, and the GPU hours of ending a job that still runs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden_remediator.errors import Unknown

_GPU_HOURS, _GPUS = "run:training_restart_gpu_hours:current", "run:training_gpus:last"


@dataclass(frozen=True)
class Loss:
    """What is lost by ending an attempt now. None is unknown.

    Attributes:
        step: the highest that the run has reached.
        checkpoint_step: of its last reported checkpoint.
        gpu_hours: of the work since that, which is done again.
        gpus: that the run holds.
        ended: the scheduler has ended the job: acting ends nothing, and waiting holds no GPU.
    """

    step: float | None = None
    checkpoint_step: float | None = None
    gpu_hours: float | None = None
    gpus: float | None = None
    ended: bool = False

    @property
    def of_acting(self) -> float | None:
        """GPU hours that are lost by acting and would not be lost anyway."""
        return 0.0 if self.ended else self.gpu_hours

    def __str__(self) -> str:
        """Return it as a part of a reason; empty where nothing is known."""
        parts = [self._steps()]
        if self.gpu_hours is not None:
            parts.append(f"{_number(self.gpu_hours)} GPU hours of work" + (" are lost already" if self.ended else ""))
        if self.gpus and not self.ended:
            parts.append(f"each hour of waiting holds {self.gpus:g} GPUs")
        return ", ".join(filter(None, parts))

    def _steps(self) -> str:
        if self.step is None:
            return ""
        if self.checkpoint_step is None:
            return f"no checkpoint is reported: it begins anew, and {self.step:g} steps may be lost"
        repeated = max(0.0, self.step - self.checkpoint_step)
        return f"its last reported checkpoint is of step {self.checkpoint_step:g}: {repeated:g} steps are repeated"


NOTHING_KNOWN = Loss()


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 10 else f"{value:.2g}"


# In the place of an `Approval`: of a page that two sources contradict each other. A person may let it be restarted.
CONTRADICTED = "contradicted"
APPROVED, VETOED = "approved", "vetoed"


@dataclass(frozen=True)
class Approval:
    """What a person may do before a restart begins: `veto_seconds` to veto it; None where it needs an approval."""

    veto_seconds: float | None = None

    def __str__(self) -> str:
        """Return it as it is kept with the incident."""
        return "approval" if self.veto_seconds is None else f"veto:{self.veto_seconds:g}"

    @classmethod
    def parse(cls, text: str) -> Approval | None:
        """Return what `str` has written; None of an empty text."""
        if not text:
            return None
        return cls(float(text.removeprefix("veto:")) if text.startswith("veto:") else None)


class PriceSource(Protocol):
    """Reads what a restart of a run would have to do again."""

    def of_run(self, run_id: str) -> Mapping[str, float] | Unknown:
        """Return `gpu_hours` and `gpus` as far as they are known."""


class NoPrices:
    """Knows no price."""

    def of_run(self, _run_id: str) -> Mapping[str, float] | Unknown:
        """Return nothing."""
        return {}


class PrometheusPrices:
    """Reads the recordings of goodput.

    Args:
        prometheus: to query.
        cluster: series of another one are not used; of every cluster where it is empty.
    """

    def __init__(self, prometheus: PrometheusClient, cluster: str = "") -> None:
        self._prometheus = prometheus
        self._cluster = cluster

    def of_run(self, run_id: str) -> dict[str, float] | Unknown:
        """Return what is known of a run. `run_id` must be well formed: it becomes part of a query."""
        names = {_GPU_HOURS: "gpu_hours", _GPUS: "gpus"}
        found: dict[str, float] = {}
        try:
            for sample in self._prometheus.query(f'{{__name__=~"{"|".join(names)}",run_id="{run_id}"}}'):
                name = names.get(sample.labels.get("__name__", ""))
                ours = not self._cluster or sample.labels.get("cluster", "") in ("", self._cluster)
                if name is not None and ours and math.isfinite(sample.value) and sample.value >= 0:
                    found[name] = max(sample.value, found.get(name, 0.0))
        except PrometheusError as error:
            return Unknown(str(error))
        return found
