"""Collector `gpu_jobs`: which job, step and run each GPU of this node works for."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden_exporter.collectors.gpu.spec import roster_of
from trainwarden_exporter.collectors.gpu_jobs import metrics
from trainwarden_exporter.collectors.gpu_jobs.claims import (
    GpuClaim,
    Proof,
    claims_of_files,
    claims_of_groups,
    credible,
    merge,
    short_label,
)
from trainwarden_exporter.collectors.gpu_jobs.gpus import GpuSearch, NodeGpu, NodeGpus, on_node
from trainwarden_exporter.collectors.gpu_jobs.processes import Processes
from trainwarden_exporter.collectors.gpu_jobs.user_names import UserNames
from trainwarden_exporter.collectors.runs.limits import fair_share
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.core.scrape_times import ScrapeTimes
from trainwarden_exporter.core.spec import CollectorSpec
from trainwarden_exporter.flag_values import some_path
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

    from trainwarden_exporter.collectors.gpu.roster import NodeRoster
    from trainwarden_exporter.collectors.gpu_jobs.processes import ProcessJob
    from trainwarden_exporter.core.metric import Family
    from trainwarden_exporter.core.node import Node
    from trainwarden_exporter.core.spec import Context

log = logging.getLogger(__name__)

FILES, GROUPS, ENVIRONMENTS = "files", "cgroups", "environments"
SOURCES = (FILES, GROUPS, ENVIRONMENTS)
MAX_CLAIMS = 1024


class GpuJobsCollector:
    """Joins the GPUs with jobs and runs, by the prolog's files, control groups and processes.

    Args:
        node: where its file systems are.
        folder: where SLURM's prolog writes its files; None where it writes none.
        nvidia, amd: the GPUs of the node.
        owners: return the uid of the user of each run that has a record.
    """

    name = "gpu_jobs"

    def __init__(
        self,
        node: Node,
        folder: Path | None,
        nvidia: NodeRoster,
        amd: NodeRoster,
        owners: Callable[[], Mapping[str, int]] = dict,
    ) -> None:
        self._node = node
        self._owners = owners
        self._folder = folder
        self._user_names = UserNames(node.rootfs)
        self._processes = Processes(node.procfs, self._user_names)
        self._gpus = GpuSearch(node, nvidia, amd)
        self._missing = False

    def collect(self) -> Iterable[Family]:
        """Return which job each GPU works for; nothing where the node has no GPU."""
        families = Families()
        gpus = self._gpus.find()
        unreadable = dict.fromkeys(SOURCES, 0)
        of_files, unreadable[FILES] = self._files(gpus)  # a wrong folder is logged even where there is no GPU
        if not gpus.all:
            return ()
        of_groups, unreadable[GROUPS] = claims_of_groups(self._node.sysfs, gpus)
        owners = self._owners()
        of_files = [self._without_others_run(claim, owners) for claim in of_files]
        jobs = [_of_own_run(job, owners) for job in self._processes.jobs()]
        unreadable[ENVIRONMENTS] = sum(not job.readable for job in jobs)
        of_processes, of_runs = _of_processes(jobs, gpus)
        claims = credible([*of_files, *of_processes, *of_groups])
        for claim in of_processes:
            if claim.run_id and claim in claims:
                of_runs.setdefault((claim.run_id, claim.gpu), claim.user)
        for claim in merge(claims)[:MAX_CLAIMS]:
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
        # Of each user a share: any process may name a thousand runs that have no record here.
        shown, _ = fair_share(of_runs, MAX_CLAIMS, of_runs.__getitem__, _place)
        for run_id, gpu in sorted(shown, key=_place):
            families.add(metrics.TRAINING_GPU_INFO, 1, run_id=run_id, gpu=str(gpu.index), uuid=gpu.uuid)
        for source, count in unreadable.items():
            families.add(metrics.TRAINWARDEN_GPU_JOBS_UNREADABLE, count, source=source)
        return families.collected()

    def _without_others_run(self, claim: GpuClaim, owners: Mapping[str, int]) -> GpuClaim:
        """Return a claim of the prolog without a run that is another user's: any job's comment may name any run.

        A user whose name is not known here, and root, count as the run's own.
        """
        owner = owners.get(claim.run_id)
        if owner is None or claim.user in ("", "root"):
            return claim
        name = self._user_names(owner)
        return claim if name == str(owner) or short_label(name) == claim.user else replace(claim, run_id="")

    def _files(self, gpus: NodeGpus) -> tuple[list[GpuClaim], int]:
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


def _of_own_run(job: ProcessJob, owners: Mapping[str, int]) -> ProcessJob:
    """Return the job of a process without a run that is another user's: any process may name any run.

    The processes of root may work for any run, and a run without a record here has no owner to compare with.
    """
    owner = owners.get(job.run_id)
    return job if owner is None or job.uid in (0, owner) else replace(job, run_id="")


def _place(found: tuple[str, NodeGpu]) -> tuple[str, int]:
    return found[0], found[1].index


def _of_processes(
    jobs: Iterable[ProcessJob], gpus: NodeGpus
) -> tuple[list[GpuClaim], dict[tuple[str, NodeGpu], int | str]]:
    """Return the claims of the processes' jobs, and which run each GPU works for outside of jobs, with its user."""
    claims: list[GpuClaim] = []
    runs: dict[tuple[str, NodeGpu], int | str] = {}
    for job in jobs:
        for minor in sorted(job.gpus | job.open_gpus):
            gpu = gpus.by_minor(minor)
            if gpu is None:
                continue
            if job.job_id:
                proof = Proof.OPEN if minor in job.open_gpus else Proof.ENVIRONMENT
                claims.append(GpuClaim(gpu, job.job_id, job.step_id, job.user, job.partition, job.run_id, proof))
            elif job.run_id:
                runs.setdefault((job.run_id, gpu), job.uid)
    return claims, runs


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that only this collector has."""
    parser.add_argument(
        "--collector.gpu-jobs.path",
        type=some_path,
        metavar="FOLDER",
        help="where SLURM's prolog writes a file for each GPU, with the ids of its jobs (default: none)",
    )


def enabled(context: Context) -> bool:
    """Return whether the node has a GPU, or had one."""
    rosters = [roster_of(context, vendor) for vendor in ("nvidia", "amd")]
    return any(roster.gpus for roster in rosters) or on_node(context.node.procfs, context.node.sysfs)


def create(context: Context) -> Sampler:
    """Return what samples it. The folder need not exist yet: the first job may create it."""
    nvidia, amd = (roster_of(context, vendor) for vendor in ("nvidia", "amd"))
    shared = context.shared
    collector = GpuJobsCollector(
        context.node, context.flags["collector.gpu_jobs.path"], nvidia, amd, lambda: shared.owners
    )
    return Sampler(single_task(collector, context.interval, context.timeout), scrape_times=ScrapeTimes())


SPEC = CollectorSpec(
    name="gpu_jobs",
    help="which job each GPU works for",
    interval="5s",
    follows_scrapes=True,
    timeout="10s",
    needs="a GPU",
    create=create,
    enabled=enabled,
    add_flags=add_flags,
)
