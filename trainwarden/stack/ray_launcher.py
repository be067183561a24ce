"""One command as a job of a Ray cluster on this machine, followed over all its submissions, for `trainwarden up`."""

from __future__ import annotations

import logging
import re
import shlex
import shutil
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from trainwarden.clients.ray import RUN_ID_KEY, RayError
from trainwarden.clients.ray_jobs import CallAnswer, RayJobs, RayReserved, RaySubmission, SubmittedJob
from trainwarden.record.sentinels import announced_restart
from trainwarden.stack.launcher import CANCELLED, COMPLETED, FAILED, RUNNING, STOPPING, Job, Recorder
from trainwarden.stack.service import ServiceFailed

logger = logging.getLogger("trainwarden")

_TICK_SECONDS = 0.3
_END_SECONDS = 30.0
_PASSED_ON = re.compile(r"TRAINWARDEN_.*|STALE_MINUTES|MALLOC_MMAP_THRESHOLD_")


@dataclass(frozen=True)
class RayAttempt(Job):
    """The newest submission; `generation` counts those before it."""

    @property
    def attempt_key(self) -> str:
        """The attempt key that its processes find by themselves."""
        return f"ray:{self.job_id}:0"


class RayLauncher:
    """Submits the command, and follows what the remediator submits after it. `run()` drives it, as in `Launcher`.

    Args:
        command: program and arguments; they run in `folder`.
        run_id: of the run.
        jobs: of the cluster.
        folder: the working directory.
        environment: of the command; what concerns Trainwarden is passed on, the rest is as Ray has it.
        log: takes the command's output.
        recorder: writes the run record.
        notify: is called when the job has changed.
    """

    def __init__(
        self,
        command: Sequence[str],
        run_id: str,
        *,
        jobs: RayJobs,
        folder: Path,
        environment: Mapping[str, str],
        log: Path,
        recorder: Recorder,
        notify: Callable[[Job], None] = lambda _job: None,
    ) -> None:
        self._jobs = jobs
        self._log = log
        self._recorder = recorder
        self._notify = notify
        self.root = f"{run_id[:80]}-{time.time_ns() // 1_000_000:x}"
        program = shutil.which(command[0]) or command[0]
        words = shlex.join([program, *command[1:]])
        self._submission = RaySubmission(
            self.root,
            # The job's output is that of the run: in its record, where scans and followers read it.
            f"cd {shlex.quote(str(folder))} && exec {words} >> {shlex.quote(str(log))} 2>&1",
            {RUN_ID_KEY: run_id},
            {
                "env_vars": {
                    "PYTHONUNBUFFERED": "1",
                    **{name: value for name, value in environment.items() if _PASSED_ON.fullmatch(name)},
                }
            },
        )
        self._job: Job = RayAttempt(self.root, run_id)
        self._lock = threading.Lock()
        self._closed = threading.Event()

    @property
    def job(self) -> Job:
        """Return the newest submission as it is now."""
        with self._lock:
            return self._job

    def submit(self) -> None:
        """Submit the command. Raises ServiceFailed."""
        self._log.parent.mkdir(parents=True, exist_ok=True)
        self._recorder.started(self.job)
        try:
            answer = self._jobs.submit(self._submission, RayReserved())
        except RayError as error:
            raise ServiceFailed(f"Ray: {error}") from None
        if answer.answer is not CallAnswer.ACCEPTED:
            raise ServiceFailed(f"Ray: {answer.detail}")
        self._change(started=time.time(), notify=True)

    def close(self) -> None:
        """Let `run()` return once nothing runs; a job that still runs is stopped."""
        self._closed.set()

    def run(self) -> None:
        """Follow the job until `close()`."""
        while not self._closed.wait(_TICK_SECONDS):
            self._look()
        end = time.monotonic() + _END_SECONDS
        asked = False
        while not self.job.over and time.monotonic() < end:
            if not asked:
                asked = self._stop()
            time.sleep(_TICK_SECONDS)
            self._look()

    def _stop(self) -> bool:
        try:
            return self._jobs.stop(self.job.job_id).answer is not CallAnswer.UNCLEAR
        except RayError as error:
            logger.warning("job %s could not be stopped: %s", self.job.job_id, error)
            return False

    def _look(self) -> None:
        try:
            found = self._jobs.all()[1]
        except RayError as error:
            logger.debug("Ray gives no answer: %s", error)
            return
        mine = [each for name, each in found.items() if name == self.root or name.startswith(f"{self.root}-a")]
        if not mine:
            return
        newest = max(mine, key=lambda each: (each.job.start or 0.0, each.job.submission_id))
        if newest.job.submission_id != self.job.job_id:
            self._change(
                job_id=newest.job.submission_id,
                generation=len(mine) - 1,
                state=RUNNING,
                exit_code=None,
                ended=None,
                started=newest.job.start or time.time(),
            )
            self._recorder.started(self.job)
            self._notify(self.job)
        self._take(newest)

    def _take(self, found: SubmittedJob) -> None:
        job, state = self.job, found.job.state
        if job.over:
            return
        restarts = announced_restart(self._log.parents[1], job.attempt_key)
        if state in ("pending", "running"):
            self._recorder.alive(job, moving=lambda: True)
            if restarts and job.state == RUNNING:
                self._change(state=STOPPING, tokens={"restart": job.generation + 1}, notify=True)
            return
        completed = self._recorder.completed(job)
        if state == "stopped":
            ended = COMPLETED if completed else FAILED if restarts else CANCELLED
        else:
            ended = COMPLETED if state == "succeeded" and completed is not False else FAILED
        code = 143 if state == "stopped" else int(found.job.exit_code or 0) or (0 if ended == COMPLETED else 1)
        self._change(
            state=ended,
            exit_code=code,
            ended=found.job.end or time.time(),
            tokens={"restart": job.generation + 1} if restarts and ended == FAILED else {},
        )
        self._recorder.ended(self.job)
        self._notify(self.job)

    def _change(self, *, notify: bool = False, **changes: object) -> None:
        with self._lock:
            self._job = replace(self._job, **changes)  # type: ignore[arg-type]  # the callers above name fields of Job
            job = self._job
        if notify:
            self._notify(job)
