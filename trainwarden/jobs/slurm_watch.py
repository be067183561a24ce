"""Watches the jobs of a SLURM cluster that are runs and write no record: one look is one list of all jobs."""

from __future__ import annotations

import logging
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from trainwarden.clients.slurm.client import SlurmError, UnreadableRecord
from trainwarden.clients.slurm.jobs import (
    ALLOCATED_STATES,
    ENDED_STATES,
    HOLD_MARK,
    MAX_COMMENT_BYTES,
    RUN_MARK,
    SlurmJob,
)
from trainwarden.identity import InvalidAttemptKey, InvalidRunId
from trainwarden.jobs.configuration import JobRule, JobsConfiguration
from trainwarden.jobs.ending import REQUEUED, log_outcome, lost_outcome, slurm_outcome
from trainwarden.jobs.job_record import (
    JobRecord,
    NotOurs,
    WatchedJob,
    alone,
    is_open,
    is_ours,
    open_jobs,
)
from trainwarden.jobs.slurm_run import job_logs, run_id_of, watched_job
from trainwarden.jobs.watch import LISTS, UNKNOWN, JobsWatch, Watched
from trainwarden.training.outcome import AttemptOutcome

if TYPE_CHECKING:
    from trainwarden.clients.slurm.client import SlurmClient

log = logging.getLogger(__name__)

# What a job writes last may become visible late on a shared file system.
_LAST_OUTPUT_SECONDS = 10.0
# sbatch makes the file of a job's output when it starts.
_OUTPUT_SECONDS = 300.0
# A job that is being ended for longer has a process that does not end.
_COMPLETING_SECONDS = 120.0
_MARKS_A_LOOK = 20


class SlurmWatch(JobsWatch["SlurmJob"]):
    """Keeps the records of all jobs that are runs.

    Args:
        client: of the cluster.
        configuration: which jobs are runs.
        only: ids of the only jobs to watch, with the rule for those that no other fits; all if empty. One that has
            failed and is marked, so that it may be started again, is over when SLURM lists it no more.
        rule: for `only`.
        clock: Unix seconds.
    """

    _no_answer = SlurmError

    def __init__(
        self,
        client: SlurmClient,
        configuration: JobsConfiguration,
        only: Collection[str] = (),
        rule: JobRule | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(configuration, only, clock)
        self._client = client
        self._rule = rule or JobRule()
        self._marked: set[str] = set()
        self._failed: dict[str, tuple[str, str]] = {}

    def _listed(self) -> dict[str, SlurmJob] | None:
        """Return the jobs by id; None if there is no complete answer."""
        found: dict[str, SlurmJob] = {}
        try:
            for job in self._client.jobs():
                if isinstance(job, UnreadableRecord):
                    self._complain(job.problem)
                else:
                    found[job.job_id] = job
        except SlurmError as error:
            self._complain(f"{error.reason}: {error.message}")
            return None
        return found

    def _begin(self, listed: Mapping[str, SlurmJob]) -> None:
        marks = 0
        self._done.intersection_update(job.attempt_key for job in listed.values())
        for job in self._in_turn(listed.values()):
            key = job.attempt_key
            known = self._watched.get(job.job_id)
            if known is not None and known.job.attempt_key == key:
                known.job = (
                    job if job.node_list or not known.job.node_list else replace(job, node_list=known.job.node_list)
                )
                known.missing = 0
                if known.is_read and (rule := self._rule_of(job)) is not None:
                    # A name with %N leads to no file before the job has its nodes.
                    known.record.log.follow(job_logs(known.job, rule))
                continue
            if known is not None and known.is_read:
                self._read_last(known.record, self._replaced(known, job), is_last=False)
            if known is not None or job.job_id in self._ending:
                # The next attempt begins when this one is written down.
                continue
            new = self._new(job)
            run_id = self._open(job, new) if new is not None else None
            if run_id is not None and self._configuration.mark and marks < _MARKS_A_LOOK:
                marks += self._mark(job, run_id)

    def _in_turn(self, jobs: Iterable[SlurmJob]) -> list[SlurmJob]:
        """Return the jobs so that the first of each user comes before the second of any, the oldest first."""
        of_user: dict[int | None, int] = defaultdict(int)
        order: list[tuple[int, int, SlurmJob]] = []
        for job in sorted(jobs, key=lambda each: int(each.job_id)):
            order.append((of_user[job.user_id], int(job.job_id), job))
            of_user[job.user_id] += 1
        return [job for _, _, job in sorted(order, key=lambda each: each[:2])]

    def _new(self, job: SlurmJob) -> WatchedJob | None:
        """Return the run of a job that is to be watched from now on; None for any other."""
        if job.attempt_key in self._done or job.user_id is None or job.target is None:
            return None
        over = job.state in ENDED_STATES or bool(job.end)
        if not over and job.state not in ALLOCATED_STATES:
            return None
        if self._only and job.job_id not in self._only and job.queue_id not in self._only:
            return None
        rule = self._rule_of(job)
        if rule is None:
            return None
        if job.mark_problem:
            self._refuse(job.job_id, "-", job.mark_problem)
            return None
        try:
            run_id = run_id_of(job, rule)
            if run_id is None:
                return None
            watched = watched_job(job, run_id, rule, self._configuration.log_roots)
        except (InvalidRunId, InvalidAttemptKey) as error:
            self._refuse(job.job_id, job.run_id or "-", str(error))
            return None
        runs = self._configuration.runs_dir
        # It has ended before this process began: of interest only where the one before has not seen its end.
        is_early = over and not self._only and (job.ended or 0.0) < self._since
        if is_early and not any(is_open(runs, each) for each in (watched, alone(watched))):
            self._done.add(job.attempt_key)
            return None
        # One that its user has marked may be about to write a record itself.
        may_write = job.run_id is not None and not over and not self._only and not is_ours(runs, watched)
        if may_write and self._clock() - (job.started or 0.0) < self._configuration.grace:
            return None
        return watched

    def _open(self, job: SlurmJob, watched: WatchedJob) -> str | None:
        run_id = super()._open(job, watched)
        if run_id is not None:
            self._failed.pop(job.job_id, None)
        return run_id

    def _runs_now(self, watched: Watched[SlurmJob]) -> bool:
        return watched.job.state in ALLOCATED_STATES and not watched.job.end

    def _read(self, watched: Watched[SlurmJob], runs: bool) -> None:
        super()._read(watched, runs)
        logs = watched.record.log
        is_late = runs and self._clock() - (watched.job.started or self._clock()) > _OUTPUT_SECONDS
        if is_late and logs.paths and not logs.positions() and not logs.problems:
            self._complain(
                f"run {watched.record.job.run_id}: none of its logs is there ({', '.join(logs.paths)}): on a disk of "
                "its node? Its steps and the cause of its end are not seen"
            )

    def _end(self, listed: Mapping[str, SlurmJob]) -> None:
        now = self._clock()
        for each in list(self._watched.values()):
            if not each.is_read:
                continue
            if each.job.job_id not in listed:
                each.missing += 1
                if each.missing >= LISTS:
                    self._read_last(each.record, self._lost(each.record))
            elif each.job.end:
                each.ended = each.ended or now
                gone = each.job.state in ENDED_STATES
                settled = now - min(each.job.ended or now, each.ended) >= _LAST_OUTPUT_SECONDS
                if (gone and settled) or now - each.ended >= _COMPLETING_SECONDS:
                    self._read_last(each.record, partial(slurm_outcome, each.job, each.record.log.tail))
        if self._lists == LISTS:
            self._end_left(listed)
        for job_id in self._only if self._lists >= LISTS else ():
            if job_id not in listed and job_id not in self.runs:
                # It has waited for its next start, and SLURM has forgotten it.
                self.outcomes.setdefault(job_id, self._failed.get(job_id, ("-", UNKNOWN)))

    def _end_left(self, listed: Mapping[str, SlurmJob]) -> None:
        """End the jobs that a process before this one has watched, and that SLURM has forgotten since."""
        runs = self._configuration.runs_dir
        for job in open_jobs(runs, "slurm") if not self._only else ():
            if job.key.job_id in listed or job.key.job_id in self.runs:
                continue
            record = JobRecord(runs, replace(job, log_roots=self._configuration.log_roots))
            try:
                has_begun = record.open()
            except (NotOurs, OSError) as error:
                self._complain(f"run {job.run_id}: {error}")
                continue
            if has_begun:
                self._read_last(record, self._lost(record))

    def _replaced(self, watched: Watched[SlurmJob], job: SlurmJob) -> Callable[[], AttemptOutcome]:
        """Return what judges a start that its job was requeued after."""
        tail = watched.record.log.tail
        by_us = any(
            word.startswith(HOLD_MARK) and word.endswith(f":{watched.job.restarts or 0}")
            for word in job.comment.split()
        )

        def judge() -> AttemptOutcome:
            if by_us:
                return AttemptOutcome("cancelled", "restart")
            if watched.job.end:
                return slurm_outcome(watched.job, tail)
            return log_outcome(tail) or AttemptOutcome("cancelled", REQUEUED)

        return judge

    def _lost(self, record: JobRecord) -> Callable[[], AttemptOutcome | None]:
        """Return what judges a job that SLURM has forgotten, by its accounting or its log; None leaves it as it is."""
        return lambda: lost_outcome(self._client.accounted_state(record.job.key.job_id), record.log.tail)

    def _ended(self, job: WatchedJob, outcome: AttemptOutcome | None, *, is_last: bool) -> None:
        if outcome is not None and outcome.status == "failed" and self._configuration.mark:
            self._failed[job.key.job_id] = job.run_id, outcome.status
        else:
            super()._ended(job, outcome, is_last=is_last)

    def _rule_of(self, job: SlurmJob) -> JobRule | None:
        return self._configuration.rule_of(job) or (self._rule if self._only else None)

    def _mark(self, job: SlurmJob, run_id: str) -> int:
        """Write the run into the job's comment, from which all else takes it; return how many calls that took."""
        words = [word for word in job.comment.split() if not word.startswith(RUN_MARK)]
        comment = " ".join([*words, f"{RUN_MARK}{run_id}"])
        if job.run_id == run_id or job.job_id in self._marked or job.target is None or job.end:
            return 0
        self._marked.add(job.job_id)
        if not job.comment.isprintable() or len(comment.encode()) > MAX_COMMENT_BYTES:
            self._complain(f"job {job.job_id}: its comment has no room for a mark")
            return 0
        answer = self._client.update(job.target, Comment=comment)
        if not answer.accepted:
            self._complain(f"job {job.job_id} cannot be marked: {answer.detail}")
        return 1
