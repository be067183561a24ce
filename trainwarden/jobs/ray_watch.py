"""Watches the jobs of a Ray cluster that are runs and write no record."""

from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.clients.ray import UNDER_WAY, RayError
from trainwarden.clients.ray_jobs import RayJobs, SubmittedJob, usable_id
from trainwarden.identity import InvalidAttemptKey, InvalidRunId
from trainwarden.jobs.configuration import DEFAULT_RAY_RUN_ID, JobRule, JobsConfiguration
from trainwarden.jobs.ending import ray_outcome
from trainwarden.jobs.job_record import (
    JobRecord,
    WatchedJob,
    alone,
    followed,
    is_open,
    is_ours,
    recorded_key,
    recorded_start,
)
from trainwarden.jobs.ray_run import SPOOL, SpooledOutput, run_id_of, session_log, watched_job
from trainwarden.jobs.watch import LISTS, UNKNOWN, JobsWatch, Watched
from trainwarden.ray.jobs import SESSION_LOGS

if TYPE_CHECKING:
    from trainwarden.training.outcome import AttemptOutcome

log = logging.getLogger(__name__)

SESSION = Path(SESSION_LOGS).parent
# A job runs a moment before its output has a file.
_OUTPUT_SECONDS = 5.0
# The start of a job as its record has it, against that of the list.
_SAME_START_SECONDS = 1.0


class RayWatch(JobsWatch[SubmittedJob]):
    """Keeps the records of all submitted jobs that are runs. A head that does not answer, or has forgotten, ends none.

    Args:
        jobs: of the cluster.
        configuration: which jobs are runs.
        only: ids of the only submissions to watch, with the rule for those that no other fits; all if empty.
        rule: for `only`.
        session: the folder of the head's session, read where it is on this machine and of this user.
        clock: Unix seconds.
    """

    _no_answer = RayError

    def __init__(
        self,
        jobs: RayJobs,
        configuration: JobsConfiguration,
        only: Collection[str] = (),
        rule: JobRule | None = None,
        session: Path = SESSION,
        clock: Callable[[], float] = time.time,
    ) -> None:
        super().__init__(configuration, only, clock)
        self._jobs = jobs
        self._rule = rule or JobRule(run_id=DEFAULT_RAY_RUN_ID)
        self._folder = session
        self._session = ""
        self._under_way: frozenset[str] = frozenset()
        self._pending: dict[str, float] = {}
        self._spools: dict[str, SpooledOutput] = {}
        self._failed_reads: dict[str, int] = {}

    def _listed(self) -> dict[str, SubmittedJob] | None:
        try:
            version, jobs = self._jobs.all()
        except RayError as error:
            self._complain(str(error))
            return None
        self._session = version.session
        # A program that only connects to the cluster was not submitted: Ray has neither its output nor its exit code.
        submitted = {name: job for name, job in jobs.items() if name != job.job.job_id}
        for name in submitted:
            if not usable_id(name):
                self._complain(f"job {name[:80]!r}: its id can be in no record; it is not watched")
        return {name: job for name, job in submitted.items() if usable_id(name)}

    def _begin(self, listed: Mapping[str, SubmittedJob]) -> None:
        self._under_way = frozenset(name for name, job in listed.items() if job.job.state in UNDER_WAY)
        waiting = {name: self._clock() for name, job in listed.items() if job.job.state == "pending"}
        # The start of a job is when Ray has accepted it.
        self._pending = {name: when for name, when in self._pending.items() if name in listed} | waiting
        self._done.intersection_update(f"ray:{name}:0" for name in listed)
        for name, job in sorted(listed.items(), key=lambda each: (each[1].job.start or 0.0, each[0])):
            known = self._watched.get(name)
            if known is not None and known.job.job.start == job.job.start:
                known.job, known.missing = job, 0
            elif known is None and name not in self._ending and (new := self._new(job)) is not None:
                self._open(job, new)

    def _new(self, job: SubmittedJob) -> WatchedJob | None:
        """Return the run of a job that is to be watched from now on; None for any other."""
        name, state = job.job.submission_id, job.job.state
        over = _is_over(job)
        if f"ray:{name}:0" in self._done or not (over or state == "running") or (self._only and name not in self._only):
            return None
        rule = self._configuration.rule_of(job) or (self._rule if self._only else None)
        if rule is None:
            return None
        runs = self._configuration.runs_dir
        try:
            watched = watched_job(job, run_id_of(job, rule), rule, self._configuration.log_roots)
        except (InvalidRunId, InvalidAttemptKey) as error:
            self._refuse(name, job.job.run_id or "-", str(error))
            return None
        was_open = any(is_open(runs, each) for each in (watched, alone(watched)))
        # It has ended before this process began: of interest only where the one before has not seen its end.
        if over and not self._only and (job.job.end or 0.0) < self._since and not was_open:
            self._done.add(str(watched.key))
            return None
        # The next attempt begins when the one before is written down.
        ending = {each.record.job.run_id for each in self._watched.values() if _is_over(each.job)}
        if watched.run_id in ending | {each.record.job.run_id for each in self._ending.values()}:
            return None
        # One that its user has marked may be about to write a record itself.
        may_write = bool(job.job.run_id) and not over and not self._only and not is_ours(runs, watched)
        runs_since = max(job.job.start or 0.0, self._pending.get(name, 0.0))
        if may_write and self._clock() - runs_since < self._configuration.grace:
            return None
        start = recorded_start(runs, watched)
        if start is not None and abs(start - (job.job.start or start)) > _SAME_START_SECONDS:
            # A new session of the head may have another job of this id.
            self._done.add(str(watched.key))
            self._refuse(name, watched.run_id, f"run {watched.run_id} has a record of another submission of this id")
            return None
        return watched

    def _is_taken(self, watched: WatchedJob) -> bool:
        other = recorded_key(self._configuration.runs_dir, watched) if super()._is_taken(watched) else None
        # A job that Ray has no more does not hold its run up for ever.
        return other is not None and (other.scheduler != "ray" or other.job_id in self._under_way)

    def _record(self, watched: WatchedJob) -> JobRecord:
        runs = self._configuration.runs_dir
        if not watched.logs and is_open(runs, watched):
            watched = replace(watched, logs=followed(runs / watched.run_id))
        return JobRecord(runs, watched)

    def _runs_now(self, watched: Watched[SubmittedJob]) -> bool:
        return watched.job.job.state == "running"

    def _read(self, watched: Watched[SubmittedJob], runs: bool) -> None:
        self._find_output(watched)
        try:
            self._fetch(watched.record)
        except (RayError, OSError) as error:
            self._complain(f"run {watched.record.job.run_id}: its output cannot be fetched: {error}")
        super()._read(watched, runs)

    def _find_output(self, watched: Watched[SubmittedJob]) -> None:
        """Follow the output where it lies, or by the API."""
        record = watched.record
        if record.log.paths:
            return
        file = session_log(self._folder, self._session, record.job.key.job_id)
        if file is not None:
            record.log.follow([file])
        elif _is_over(watched.job) or self._clock() - (watched.job.job.start or 0.0) >= _OUTPUT_SECONDS:
            record.log.follow([str(record.folder / SPOOL)])

    def _fetch(self, record: JobRecord, *, over: bool = False) -> None:
        name, file = record.job.key.job_id, record.folder / SPOOL
        if str(file) in record.log.paths:
            spool = self._spools.setdefault(name, SpooledOutput(self._jobs, name, file))
            spool.fetch(over=over)

    def _end(self, listed: Mapping[str, SubmittedJob]) -> None:
        for each in list(self._watched.values()):
            name = each.record.job.key.job_id
            now = listed.get(name)
            if not each.is_read:
                continue
            if now is None or now.job.start != each.job.job.start:
                each.missing += 1
                if each.missing >= LISTS:
                    self._read_last(each.record, lambda: None)
            elif _is_over(now):
                self._read_last(each.record, partial(ray_outcome, now.job, each.record.log.tail))
        for name in self._only if self._lists >= LISTS else ():
            if name not in listed and name not in self.runs:
                self.outcomes.setdefault(name, ("-", UNKNOWN))

    def _before_last_read(self, record: JobRecord) -> None:
        name = record.job.key.job_id
        try:
            self._fetch(record, over=True)
        except (RayError, OSError) as error:
            # How it ended is known; its output is worth some more looks, not an end that is never written.
            self._failed_reads[name] = self._failed_reads.get(name, 0) + 1
            if self._failed_reads[name] < LISTS and isinstance(error, RayError):
                raise
            self._complain(f"run {record.job.run_id}: the end of its output cannot be fetched: {error}")

    def _ended(self, job: WatchedJob, outcome: AttemptOutcome | None, *, is_last: bool) -> None:
        self._spools.pop(job.key.job_id, None)
        self._failed_reads.pop(job.key.job_id, None)
        if outcome is not None:
            with contextlib.suppress(OSError):
                (self._configuration.runs_dir / job.run_id / SPOOL).unlink(missing_ok=True)
        super()._ended(job, outcome, is_last=is_last)


def _is_over(job: SubmittedJob) -> bool:
    return job.job.state in ("succeeded", "failed", "stopped")
