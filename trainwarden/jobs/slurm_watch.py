"""Watches the jobs of a SLURM cluster that are runs and write no record: one look is one list of all jobs."""

from __future__ import annotations

import logging
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING

from trainwarden.clients.slurm.client import SlurmError, UnreadableRecord
from trainwarden.clients.slurm.jobs import ALLOCATED_STATES, ENDED_STATES, RUN_MARK, SlurmJob
from trainwarden.identity import InvalidAttemptKey, InvalidRunId
from trainwarden.jobs.configuration import JobRule, JobsConfiguration
from trainwarden.jobs.ending import REQUEUED, log_outcome, lost_outcome, slurm_outcome
from trainwarden.jobs.job_record import (
    JobRecord,
    NotOurs,
    WatchedJob,
    is_another_live_job,
    is_of_job,
    is_open,
    is_ours,
    open_jobs,
    recorded_end,
)
from trainwarden.jobs.kept_logs import KeptLogs
from trainwarden.jobs.slurm_run import alone, job_logs, run_id_of, watched_job
from trainwarden.redaction import plain
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
# A job that SLURM forgets before its end was read must be missing from so many lists.
_LISTS = 3
# A running job is known to run for so long while SLURM does not answer.
_UNANSWERED_SECONDS = 3600.0
_THREADS = 16
_MARKS_A_LOOK = 20
_MAX_COMMENT_BYTES = 1024  # of SLURM
_HOLD_MARK = "trainwarden-hold:"
# Statuses of a job that was to be watched, beside those of records.
UNKNOWN, REFUSED = "unknown", "refused"
# Problems that are logged once each.
_MAX_LOGGED = 1000


@dataclass
class _Watched:
    """A job under watch: as it was listed last, its record, and what it waits for."""

    job: SlurmJob
    record: JobRecord
    ended: float | None = None
    missing: int = 0
    reading: Future[None] | None = None

    @property
    def is_read(self) -> bool:
        """Whether no thread reads its log."""
        return self.reading is None or self.reading.done()


@dataclass
class _Ending:
    """An attempt that is over, and how it ended, once its log was read; `is_last`: its job does not start again."""

    record: JobRecord
    judge: Callable[[], AttemptOutcome | None]
    outcome: Future[AttemptOutcome | None]
    is_last: bool


class SlurmWatch:
    """Keeps the records of all jobs that are runs.

    Args:
        client: of the cluster.
        configuration: which jobs are runs.
        only: ids of the only jobs to watch, with the rule for those that no other fits; all if empty.
        rule: for `only`.
        clock: Unix seconds.

    Attributes:
        outcomes: the run and the status of each job of `only` that is over; the status is `unknown` where nothing shows
            it, and `refused` where the job cannot be watched. A job that has failed and is marked, so that it may be
            started again, is over when SLURM lists it no more.
        left_out: how many jobs are not watched because there are too many.
    """

    def __init__(
        self,
        client: SlurmClient,
        configuration: JobsConfiguration,
        only: Collection[str] = (),
        rule: JobRule | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._client = client
        self._configuration = configuration
        self._only = frozenset(only)
        self._rule = rule or JobRule()
        self._clock = clock
        self._since = clock()
        self._answered = clock()
        self._lists = 0
        self._watched: dict[str, _Watched] = {}
        self._ending: dict[str, _Ending] = {}
        self._done: set[str] = set()
        self._marked: set[str] = set()
        self._logged: set[str] = set()
        self._lock = threading.Lock()
        self._kept_logs = KeptLogs(configuration.runs_dir, configuration.max_log_bytes)
        self._threads = ThreadPoolExecutor(_THREADS, "log")
        self._last_threads = ThreadPoolExecutor(_THREADS, "last log")
        self._failed: dict[str, tuple[str, str]] = {}
        self.outcomes: dict[str, tuple[str, str]] = {}
        self.left_out = 0

    @property
    def runs(self) -> Mapping[str, str]:
        """The run of each job under watch."""
        records = [each.record for each in self._watched.values()] + [each.record for each in self._ending.values()]
        return {record.job.key.job_id: record.job.run_id for record in records}

    def look(self, seconds: float = 60.0) -> bool:
        """List the jobs, follow their logs for so many seconds at most, write their records; False if SLURM failed."""
        deadline = time.monotonic() + seconds
        listed = self._listed()
        now = self._clock()
        if listed is not None:
            self._answered = now
            self._lists += 1
            self._begin(listed)
        lives = now - self._answered < _UNANSWERED_SECONDS
        for each in self._watched.values():
            if each.is_read:
                runs = lives and each.job.state in ALLOCATED_STATES and not each.job.end
                each.reading = self._threads.submit(self._read, each, runs)
        # A file system that does not answer costs its own jobs alone, as long as threads are left.
        wait([each.reading for each in self._watched.values() if each.reading is not None], seconds)
        if listed is not None:
            self._end(listed)
        wait([each.outcome for each in self._ending.values()], max(1.0, deadline - time.monotonic()))
        self._finish()
        if not self._only:
            self._bound_logs()
        return listed is not None

    def close(self) -> None:
        """Close all logs; the records stay open for the next process."""
        for threads in (self._threads, self._last_threads):
            threads.shutdown(wait=False, cancel_futures=True)
        for each in self._watched.values():
            if each.is_read:
                each.record.close()

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
            self._refuse(job, job.mark_problem)
            return None
        try:
            run_id = run_id_of(job, rule)
            if run_id is None:
                return None
            watched = watched_job(job, run_id, rule, self._configuration.log_roots)
        except (InvalidRunId, InvalidAttemptKey) as error:
            self._refuse(job, str(error))
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
        """Begin the record of a job; return its run, None if it has none."""
        if len(self._watched) >= self._configuration.max_jobs:
            self.left_out += 1
            self._complain(f"more than {self._configuration.max_jobs} jobs are runs: the others are not watched")
            return None
        runs = self._configuration.runs_dir
        own = alone(watched)
        if watched.run_id in self.runs.values() or is_another_live_job(runs, watched) or is_of_job(runs, own):
            # Two jobs of one name, or with one mark: each is a run.
            watched = own
        record = JobRecord(runs, watched)
        try:
            has_begun = record.open()
        except NotOurs as error:
            self._done.add(job.attempt_key)
            self._refuse(job, f"{error}; it is left alone")
            return None
        except OSError as error:
            self._complain(f"run {watched.run_id}: its record cannot be written: {error}")
            return None
        if not has_begun:
            self._done.add(job.attempt_key)
            self._decide(job.job_id, watched.run_id, recorded_end(runs, watched) or REFUSED)
            return None
        log.info("job %s is run %s, attempt %s; its log: %s", job.job_id, watched.run_id, watched.key, " and ".join(
            map(plain, watched.logs)) or "none")  # fmt: skip
        self._watched[job.job_id] = _Watched(job, record)
        self._failed.pop(job.job_id, None)
        return watched.run_id

    def _read(self, watched: _Watched, runs: bool) -> None:
        watched.record.look(lives=runs)
        for problem in watched.record.log.problems.values():
            self._complain(f"run {watched.record.job.run_id}: {problem}")
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
                if each.missing >= _LISTS:
                    self._read_last(each.record, self._lost(each.record))
            elif each.job.end:
                each.ended = each.ended or now
                gone = each.job.state in ENDED_STATES
                settled = now - min(each.job.ended or now, each.ended) >= _LAST_OUTPUT_SECONDS
                if (gone and settled) or now - each.ended >= _COMPLETING_SECONDS:
                    self._read_last(each.record, partial(slurm_outcome, each.job, each.record.log.tail))
        if self._lists == _LISTS:
            self._end_left(listed)
        for job_id in self._only if self._lists >= _LISTS else ():
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

    def _replaced(self, watched: _Watched, job: SlurmJob) -> Callable[[], AttemptOutcome]:
        """Return what judges a start that its job was requeued after."""
        tail = watched.record.log.tail
        by_us = any(
            word.startswith(_HOLD_MARK) and word.endswith(f":{watched.job.restarts or 0}")
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

    def _read_last(
        self, record: JobRecord, judge: Callable[[], AttemptOutcome | None], *, is_last: bool = True
    ) -> None:
        """Read the log of an attempt that is over to its end, and judge it, in a thread: the others go on meanwhile."""

        def outcome() -> AttemptOutcome | None:
            record.read_to_end()
            return judge()

        job_id = record.job.key.job_id
        self._watched.pop(job_id, None)
        self._ending[job_id] = _Ending(record, outcome, self._last_threads.submit(outcome), is_last)

    def _finish(self) -> None:
        """Write how the attempts have ended whose logs were read to their end."""
        for job_id, each in list(self._ending.items()):
            if not each.outcome.done():
                continue
            try:
                outcome = each.outcome.result()
            except SlurmError as error:
                self._complain(f"{error.reason}: {error.message}")
                each.outcome = self._last_threads.submit(each.judge)
                continue
            del self._ending[job_id]
            job = each.record.job
            self._done.add(str(job.key))
            if outcome is None:
                self._complain(f"job {job_id} is not listed any more, and nothing shows how it ended")
                each.record.close()
            else:
                each.record.end(outcome)
                log.info("run %s, attempt %s: %s%s", job.run_id, job.key, outcome.status,
                         f", {plain(outcome.reason)}" if outcome.reason else "")  # fmt: skip
            if outcome is not None and outcome.status == "failed" and self._configuration.mark:
                self._failed[job_id] = job.run_id, outcome.status
            elif each.is_last:
                self._decide(job_id, job.run_id, outcome.status if outcome else UNKNOWN)

    def _refuse(self, job: SlurmJob, problem: str) -> None:
        self._complain(f"job {job.job_id}: {problem}")
        self._decide(job.job_id, job.run_id or "-", REFUSED)

    def _decide(self, job_id: str, run_id: str, status: str) -> None:
        if self._only:
            self.outcomes[job_id] = run_id, status

    def _rule_of(self, job: SlurmJob) -> JobRule | None:
        return self._configuration.rule_of(job) or (self._rule if self._only else None)

    def _mark(self, job: SlurmJob, run_id: str) -> int:
        """Write the run into the job's comment, from which all else takes it; return how many calls that took."""
        words = [word for word in job.comment.split() if not word.startswith(RUN_MARK)]
        comment = " ".join([*words, f"{RUN_MARK}{run_id}"])
        if job.run_id == run_id or job.job_id in self._marked or job.target is None or job.end:
            return 0
        self._marked.add(job.job_id)
        if not job.comment.isprintable() or len(comment.encode()) > _MAX_COMMENT_BYTES:
            self._complain(f"job {job.job_id}: its comment has no room for a mark")
            return 0
        answer = self._client.update(job.target, Comment=comment)
        if not answer.accepted:
            self._complain(f"job {job.job_id} cannot be marked: {answer.detail}")
        return 1

    def _bound_logs(self) -> None:
        limit = self._configuration.max_log_bytes
        for user in sorted(self._kept_logs.bound(set(self.runs.values()))):
            self._complain(f"uid {user}: the copies of its jobs' logs exceed max_log_bytes ({limit}): the oldest go")

    def _complain(self, problem: str) -> None:
        """Log each problem once."""
        with self._lock:
            if problem in self._logged or len(self._logged) >= _MAX_LOGGED:
                return
            self._logged.add(problem)
        log.warning("%s", plain(problem)[:600])
