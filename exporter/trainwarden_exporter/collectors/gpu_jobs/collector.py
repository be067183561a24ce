"""The collector of which job each GPU works for."""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu_jobs import metrics
from trainwarden_exporter.collectors.gpu_jobs.claim import Claim, merge
from trainwarden_exporter.collectors.gpu_jobs.devices import claims_of_groups
from trainwarden_exporter.collectors.gpu_jobs.files import claims_of_files
from trainwarden_exporter.collectors.gpu_jobs.gpus import Gpu, Gpus, find_gpus
from trainwarden_exporter.collectors.gpu_jobs.processes import Processes
from trainwarden_exporter.core.metric import Families

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from trainwarden_exporter.collectors.gpu_jobs.process import Work
    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.core.node import Node

log = logging.getLogger(__name__)

FILES, GROUPS, ENVIRONMENTS = "files", "cgroups", "environments"
SOURCES = (FILES, GROUPS, ENVIRONMENTS)
MAX_CLAIMS = 1024
LOOK_SECONDS = 30.0


class GpuJobsCollector:
    """Tells which job, step and run each GPU of this node works for.

    Args:
        node: where its file systems are.
        folder: what SLURM's prolog writes; None where it writes nothing.
    """

    name = "gpu_jobs"

    def __init__(self, node: Node, folder: Path | None) -> None:
        self._node = node
        self._folder = folder
        self._processes = Processes(node.procfs)
        self._gpus: Gpus | None = None
        self._looked_at = 0.0
        self._missing = False

    def collect(self) -> Iterable[Family]:
        """Return which job each GPU works for; nothing where the node has no GPU."""
        families = Families()
        gpus = self._find_gpus()
        unreadable = dict.fromkeys(SOURCES, 0)
        of_files, unreadable[FILES] = self._files(gpus)  # a wrong folder is said even where there is no GPU
        if not gpus.all:
            return ()
        of_groups, unreadable[GROUPS] = claims_of_groups(self._node.sysfs, gpus)
        working = self._processes.working()
        unreadable[ENVIRONMENTS] = sum(not work.readable for work in working)
        of_processes, of_runs = _of_processes(working, gpus)
        for claim in merge([*of_files, *of_processes, *of_groups])[:MAX_CLAIMS]:
            families.add(
                metrics.SLURM_GPU_JOB_INFO,
                1,
                gpu=str(claim.gpu.index),
                uuid=claim.gpu.uuid,
                job_id=claim.job_id,
                step_id=claim.step_id,
                user=claim.user,
                partition=claim.partition,
                run_id=claim.run_id,
            )
        for run_id, gpu in sorted(of_runs, key=lambda found: (found[0], found[1].index))[:MAX_CLAIMS]:
            families.add(metrics.TRAINING_GPU_INFO, 1, run_id=run_id, gpu=str(gpu.index), uuid=gpu.uuid)
        for source, count in unreadable.items():
            families.add(metrics.TRAINWARDEN_GPU_JOBS_UNREADABLE, count, source=source)
        return families.collected()

    def _find_gpus(self) -> Gpus:
        """Look now and then: on a large node the bus has hundreds of devices."""
        now = time.monotonic()
        if self._gpus is None or now - self._looked_at > LOOK_SECONDS:
            self._gpus = find_gpus(self._node.procfs, self._node.sysfs, self._gpus)
            self._looked_at = now
        return self._gpus

    def _files(self, gpus: Gpus) -> tuple[list[Claim], int]:
        if self._folder is None:
            return [], 0
        try:
            found = claims_of_files(self._folder, gpus)
        except OSError as error:
            if not self._missing:
                log.warning("--collector.gpu-jobs.path %s: %s", self._folder, error.strerror)
            self._missing = True
            return [], 1
        self._missing = False
        return found


def _of_processes(working: Iterable[Work], gpus: Gpus) -> tuple[list[Claim], set[tuple[str, Gpu]]]:
    """Return what the processes say of their jobs, and which run each GPU works for."""
    claims: list[Claim] = []
    runs: set[tuple[str, Gpu]] = set()
    for work in working:
        for gpu in filter(None, map(gpus.by_minor, sorted(work.gpus))):
            if work.job_id:
                claims.append(Claim(gpu, work.job_id, work.step_id, work.user, work.partition, work.run_id))
            if work.run_id:
                runs.add((work.run_id, gpu))
    return claims, runs
