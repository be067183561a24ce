"""The command of `trainwarden up` as a job of a Ray cluster on this machine, followed over all its submissions."""

from __future__ import annotations

import json
import logging
import re
import shlex
import shutil
import time
from dataclasses import dataclass, field
from pathlib import Path

from trainwarden.clients.ray import RUN_ID_KEY, RayDashboardOverHttp, RayError
from trainwarden.clients.ray_jobs import CallAnswer, RayJobs, RayReserved, RaySubmission
from trainwarden.stack.launcher import Job
from trainwarden.stack.scheduled_launcher import ScheduledCommand, ScheduledLauncher
from trainwarden.stack.service import ServiceFailed

logger = logging.getLogger("trainwarden")

# Of the state folder.
TEMPLATES = "ray-templates"
_ANSWER_SECONDS = 20.0
_PASSED_ON = re.compile(r"TRAINWARDEN_.*|STALE_MINUTES|MALLOC_MMAP_THRESHOLD_")


@dataclass(frozen=True)
class RayCluster:
    """The Ray cluster of this machine.

    Attributes:
        address: of its dashboard.
        token_file: the token that it requires.
        reserved: what the command reserves there for itself.
    """

    address: str
    token_file: Path | None = None
    reserved: RayReserved = field(default_factory=RayReserved)

    def jobs(self) -> RayJobs:
        """Return a client of it."""
        return RayJobs(RayDashboardOverHttp(self.address, _ANSWER_SECONDS, token_file=self.token_file))

    def launcher(self, what: ScheduledCommand) -> ScheduledLauncher:
        """Return what submits and follows the command there."""
        return RayLauncher(what, self.jobs(), self.reserved)

    def flags(self, run_id: str, state_dir: Path) -> list[str]:
        """Return the remediator's flags for the run; write its template, which holds what Ray does not return of it."""
        flags = ["--driver=ray", f"--ray-address={self.address}"]
        if self.token_file is not None:
            flags.append(f"--ray-token-file={self.token_file.absolute()}")
        if request := self.reserved.as_request():
            folder = state_dir.absolute() / TEMPLATES
            folder.mkdir(mode=0o700, exist_ok=True)
            # JSON is YAML, and needs no writer of it.
            (folder / f"{run_id}.yaml").write_text(json.dumps(request, indent=2) + "\n", encoding="utf-8")
            flags.append(f"--ray-template-dir={folder}")
        return flags


@dataclass(frozen=True)
class RayAttempt(Job):
    """The newest submission; `generation` counts those before it."""

    @property
    def attempt_key(self) -> str:
        """The attempt key that its processes find by themselves."""
        return f"ray:{self.job_id}:0"


class RayLauncher(ScheduledLauncher):
    """A job of Ray. Of the environment what concerns Trainwarden is passed on, the rest is as Ray has it."""

    def __init__(self, what: ScheduledCommand, jobs: RayJobs, reserved: RayReserved) -> None:
        self._jobs, self._reserved = jobs, reserved
        self.root = f"{what.run_id[:80]}-{time.time_ns() // 1_000_000:x}"
        super().__init__(what, RayAttempt(self.root, what.run_id))
        words = shlex.join([shutil.which(what.command[0]) or what.command[0], *what.command[1:]])
        self._submission = RaySubmission(
            self.root,
            # The job's output is that of the run: in its record, where scans and followers read it.
            f"cd {shlex.quote(str(what.folder))} && exec {words} >> {shlex.quote(str(what.log))} 2>&1",
            {RUN_ID_KEY: what.run_id},
            {
                "env_vars": {
                    "PYTHONUNBUFFERED": "1",
                    **{name: value for name, value in what.environment.items() if _PASSED_ON.fullmatch(name)},
                }
            },
        )

    @property
    def keys(self) -> str:
        """Return what the attempt keys of all submissions begin with."""
        return f"ray:{self.root}"

    def submit(self) -> None:
        """Submit the command. Raises ServiceFailed."""
        self.what.log.parent.mkdir(parents=True, exist_ok=True)
        self.what.recorder.started(self.job)
        try:
            answer = self._jobs.submit(self._submission, self._reserved)
        except RayError as error:
            raise ServiceFailed(f"Ray: {error}") from None
        if answer.answer is not CallAnswer.ACCEPTED:
            raise ServiceFailed(f"Ray: {answer.detail}")
        self.change(started=time.time(), notify=True)

    def stop(self) -> bool:
        """Let Ray end the job."""
        try:
            return self._jobs.stop(self.job.job_id).answer is not CallAnswer.UNCLEAR
        except RayError as error:
            logger.warning("job %s could not be stopped: %s", self.job.job_id, error)
            return False

    def look(self) -> None:
        """Read the jobs; the newest is the start that counts."""
        try:
            found = self._jobs.all()[1]
        except RayError as error:
            logger.debug("Ray gives no answer: %s", error)
            return
        mine = [each for name, each in found.items() if name == self.root or name.startswith(f"{self.root}-a")]
        if not mine:
            return
        newest = max(mine, key=lambda each: (each.job.start or 0.0, each.job.submission_id)).job
        if newest.submission_id != self.job.job_id:
            self.begin(job_id=newest.submission_id, generation=len(mine) - 1, started=newest.start or time.time())
            self.what.notify(self.job)
        if self.job.over:
            return
        if newest.state in ("pending", "running"):
            self.alive()
        else:
            self.end(newest.state, int(newest.exit_code or 0), newest.end)
