"""What watches of jobs have in common, whatever the scheduler: one look is one list of all jobs."""

from __future__ import annotations

import logging
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Generic, TypeVar

from trainwarden.jobs.configuration import JobsConfiguration
from trainwarden.jobs.job_record import (
    BeingWritten,
    JobRecord,
    NotOurs,
    WatchedJob,
    alone,
    is_another_live_job,
    is_of_job,
    recorded_end,
)
from trainwarden.jobs.kept_logs import KeptLogs
from trainwarden.redaction import plain
from trainwarden.training.outcome import AttemptOutcome

log = logging.getLogger(__name__)

# A job that the scheduler forgets before its end was read must be missing from so many lists.
LISTS = 3
# A running job is known to run for so long while the scheduler does not answer.
_UNANSWERED_SECONDS = 3600.0
_THREADS = 16
# Statuses of a job that was to be watched, beside those of records.
UNKNOWN, REFUSED = "unknown", "refused"
# Problems that are logged once each.
_MAX_LOGGED = 1000

Job = TypeVar("Job")


@dataclass
class Watched(Generic[Job]):
    """A job under watch: as it was listed last, its record, and what it waits for."""

    job: Job
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


class JobsWatch(ABC, Generic[Job]):
    """Keeps the records of all jobs that are runs.

    Args:
        configuration: which jobs are runs.
        only: ids of the only jobs to watch; all if empty.
        clock: Unix seconds.

    Attributes:
        outcomes: the run and the status of each job of `only` that is over; the status is `unknown` where nothing shows
            it, and `refused` where the job cannot be watched.
        left_out: how many jobs are not watched because there are too many.
    """

    # What the scheduler's client raises where it gives no answer.
    _no_answer: type[Exception]

    def __init__(
        self, configuration: JobsConfiguration, only: Collection[str] = (), clock: Callable[[], float] = time.time
    ) -> None:
        self._configuration = configuration
        self._only = frozenset(only)
        self._clock = clock
        self._since = clock()
        self._answered = clock()
        self._lists = 0
        self._watched: dict[str, Watched[Job]] = {}
        self._ending: dict[str, _Ending] = {}
        self._done: set[str] = set()
        self._logged: set[str] = set()
        self._lock = threading.Lock()
        self._kept_logs = KeptLogs(configuration.runs_dir, configuration.max_log_bytes)
        self._threads = ThreadPoolExecutor(_THREADS, "log")
        self._last_threads = ThreadPoolExecutor(_THREADS, "last log")
        self.outcomes: dict[str, tuple[str, str]] = {}
        self.left_out = 0

    @property
    def runs(self) -> Mapping[str, str]:
        """The run of each job under watch."""
        records = [each.record for each in self._watched.values()] + [each.record for each in self._ending.values()]
        return {record.job.key.job_id: record.job.run_id for record in records}

    def look(self, seconds: float = 60.0) -> bool:
        """List the jobs, follow their logs for so many seconds at most, write their records; False without a list."""
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
                each.reading = self._threads.submit(self._read, each, lives and self._runs_now(each))
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

    @abstractmethod
    def _listed(self) -> dict[str, Job] | None:
        """Return the jobs by id; None if there is no complete answer."""

    @abstractmethod
    def _begin(self, listed: Mapping[str, Job]) -> None:
        """Begin the records of new jobs, and take over how the known ones are listed."""

    @abstractmethod
    def _runs_now(self, watched: Watched[Job]) -> bool:
        """Return whether a job runs by its last list."""

    @abstractmethod
    def _end(self, listed: Mapping[str, Job]) -> None:
        """Let those end that are over."""

    def _read(self, watched: Watched[Job], runs: bool) -> None:
        watched.record.look(lives=runs)
        for problem in watched.record.log.problems.values():
            self._complain(f"run {watched.record.job.run_id}: {problem}")

    def _open(self, job: Job, watched: WatchedJob) -> str | None:
        """Begin the record of a job; return its run, None if it has none."""
        if len(self._watched) >= self._configuration.max_jobs:
            self.left_out += 1
            self._complain(f"more than {self._configuration.max_jobs} jobs are runs: the others are not watched")
            return None
        runs, job_id = self._configuration.runs_dir, watched.key.job_id
        own = alone(watched)
        if watched.run_id in self.runs.values() or self._is_taken(watched) or is_of_job(runs, own):
            # Two jobs of one name, or with one mark: each is a run.
            watched = own
        record = self._record(watched)
        try:
            has_begun = record.open()
        except BeingWritten as error:
            # By `adopt`, say: once that has ended the job is watched here.
            self._refuse(job_id, watched.run_id, str(error))
            return None
        except NotOurs as error:
            self._done.add(str(watched.key))
            self._refuse(job_id, watched.run_id, f"{error}; it is left alone")
            return None
        except OSError as error:
            self._complain(f"run {watched.run_id}: its record cannot be written: {error}")
            return None
        if not has_begun:
            self._done.add(str(watched.key))
            self._decide(job_id, watched.run_id, recorded_end(runs, watched) or REFUSED)
            return None
        log.info("job %s is run %s, attempt %s; its log: %s", job_id, watched.run_id, watched.key, " and ".join(
            map(plain, watched.logs)) or "none")  # fmt: skip
        self._watched[job_id] = Watched(job, record)
        return watched.run_id

    def _is_taken(self, watched: WatchedJob) -> bool:
        """Return whether the run of a job is that of another, which lives."""
        return is_another_live_job(self._configuration.runs_dir, watched)

    def _record(self, watched: WatchedJob) -> JobRecord:
        return JobRecord(self._configuration.runs_dir, watched)

    def _before_last_read(self, record: JobRecord) -> None:
        """Make the end of the log readable; raise what `_no_answer` names to be called again."""

    def _read_last(
        self, record: JobRecord, judge: Callable[[], AttemptOutcome | None], *, is_last: bool = True
    ) -> None:
        """Read the log of an attempt that is over to its end, and judge it, in a thread: the others go on meanwhile."""

        def outcome() -> AttemptOutcome | None:
            self._before_last_read(record)
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
            except self._no_answer as error:
                self._complain(str(error))
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
            self._ended(job, outcome, is_last=each.is_last)

    def _ended(self, job: WatchedJob, outcome: AttemptOutcome | None, *, is_last: bool) -> None:
        """Note how the last attempt of a job has ended; None if nothing shows how."""
        if is_last:
            self._decide(job.key.job_id, job.run_id, outcome.status if outcome else UNKNOWN)

    def _refuse(self, job_id: str, run_id: str, problem: str) -> None:
        self._complain(f"job {job_id}: {problem}")
        self._decide(job_id, run_id, REFUSED)

    def _decide(self, job_id: str, run_id: str, status: str) -> None:
        if self._only:
            self.outcomes[job_id] = run_id, status

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
