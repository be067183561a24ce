"""Jobs of SLURM that cannot be requeued, submitted again as they were: held, as their owner, with the incident's token.

SLURM shows the script of a job, and what it was asked for, until it forgets the job; both are kept in a folder from
before the job is ended. The variables of the shell that had submitted it are gone. The new job gets those of a login
(HOME, USER, LOGNAME, SHELL, PATH), `TRAINWARDEN_RUN_ID`, what its target has for it, and nothing else of this process.
"""

from __future__ import annotations

import os
import pwd
from pathlib import Path

from trainwarden.clients.process import User
from trainwarden.clients.slurm.client import JOB_ID, SlurmClient, SlurmError
from trainwarden.clients.slurm.jobs import SlurmJob
from trainwarden.clients.slurm.submission import CannotRepeat, Submitted
from trainwarden.record.folder import replace_file
from trainwarden_remediator.drivers.driver import CallOutcome, CallResult, RestartTarget
from trainwarden_remediator.drivers.slurm_marks import with_submission
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import clean

_LOGIN_PATH = "/usr/local/bin:/usr/bin:/bin:/usr/local/sbin:/usr/sbin:/sbin"
# Beside what the job had: its dependencies are fulfilled, and what it has written is continued.
_ALWAYS = ("--hold", "--no-requeue", "--dependency=", "--begin=now", "--open-mode=append")
# Of this process: where sbatch finds its cluster.
_KEPT = ("SLURM_CONF", "LD_LIBRARY_PATH")


class Resubmission:
    """Submits jobs again.

    Args:
        client: the cluster's commands.
        folder: where scripts and options are kept; created when it is first needed.
    """

    def __init__(self, client: SlurmClient, folder: Path) -> None:
        self._client = client
        self._folder = folder

    def objection(self, job: SlurmJob) -> str | None:
        """Return why a job cannot be submitted again, as far as its record in the queue shows it."""
        if job.heterogeneous:
            return f"job {job.job_id} is heterogeneous: it is not submitted again"
        if "_" in job.queue_id:
            return (
                f"job {job.queue_id} is a task of an array and was submitted with --no-requeue: a new job would not be "
                "one of its tasks"
            )
        if job.must_end is not None:
            return f"job {job.job_id} has a --deadline and was submitted with --no-requeue: submit it with a later one"
        return self.of_user(job.user_id)

    def keep(self, job: SlurmJob, *, anew: bool = False) -> str | Unknown | None:
        """Keep how a job can be submitted again, unless that is kept already; return why it cannot be.

        Unknown where SLURM does not answer. `anew`: also where it is kept, for it may have been changed since.
        """
        if job.run_id is None:
            return f"job {job.job_id} is marked with no run"
        kept = self.kept(job.job_id)
        if kept is not None and kept.run_id == job.run_id and not anew:
            return None
        try:
            found = self._client.submitted(job.job_id, job.run_id)
        except CannotRepeat as error:
            return clean(f"job {job.job_id} cannot be submitted again: {error}")
        except SlurmError as error:
            return Unknown(clean(f"the script of job {job.job_id} cannot be read: {error.message}"))
        try:
            self._write(found)
        except OSError as error:
            return f"{self._folder}: {error.strerror}"
        return None

    def submit(self, target: RestartTarget, job: SlurmJob | None) -> CallResult:
        """Submit the job of a target again, held.

        Args:
            target: whose job it is, and whose incident the token.
            job: that job, where SLURM still shows it.
        """
        problem = self.keep(job) if job is not None else None
        if isinstance(problem, Unknown):
            return CallResult(CallOutcome.UNCLEAR, f"nothing was called: {problem.reason}")
        found = self.kept(target.job_id)
        if found is None or found.run_id != target.run_id or problem is not None:
            gone = f"nothing was called: slurmctld has forgotten job {target.job_id}, and its script was not kept"
            return CallResult(CallOutcome.REFUSED, problem or gone)
        comment = with_submission(found.comment, target)
        if comment is None:
            return CallResult(CallOutcome.REFUSED, f"the comment of job {target.job_id} has no room for a mark")
        if problem := self.of_user(found.user_id):
            return CallResult(CallOutcome.REFUSED, problem)
        done = self._client.submit(
            found.script,
            *found.options,
            *_ALWAYS,
            f"--comment={comment}",
            environment=self._environment(found, target),
            user=_demoted(found),
        )
        failed = CallOutcome.REFUSED if done.refused else CallOutcome.UNCLEAR
        outcome = CallOutcome.ACCEPTED if done.job_id else failed
        return CallResult(outcome, clean(done.detail, 800), done.job_id or "")

    def of_user(self, uid: int | None) -> str | None:
        """Return why jobs of a user cannot be submitted by this process; None where they can."""
        if uid is not None and os.geteuid() in (0, uid):
            return None if _exists(uid) else f"uid {uid} has no name on this machine: nothing is submitted as that user"
        return (
            f"the job belongs to uid {uid}, and this remediator runs as uid {os.geteuid()}: only root and that user "
            "submit its job again"
        )

    def _environment(self, found: Submitted, target: RestartTarget) -> dict[str, str]:
        owner = pwd.getpwuid(found.user_id)
        is_own = found.user_id == os.geteuid()
        return {
            **{name: os.environ[name] for name in _KEPT if name in os.environ},
            "HOME": owner.pw_dir,
            "USER": owner.pw_name,
            "LOGNAME": owner.pw_name,
            "SHELL": owner.pw_shell,
            "PATH": os.environ.get("PATH", _LOGIN_PATH) if is_own else _LOGIN_PATH,
            "TRAINWARDEN_RUN_ID": found.run_id,
            **target.environment,
        }

    def _path(self, job_id: str) -> Path:
        return self._folder / f"{job_id if JOB_ID.fullmatch(job_id) else 'none'}.json"

    def kept(self, job_id: str) -> Submitted | None:
        """Return what is kept of a job."""
        try:
            found = Submitted.from_text(self._path(job_id).read_text(encoding="utf-8"))
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return found if found.job_id == job_id else None

    def _write(self, found: Submitted) -> None:
        """Write durably: the job may be ended right after that. A script may hold secrets."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        content = found.as_text().encode()
        replace_file(self._path(found.job_id), content, durable=True, mode=0o600)


def _exists(uid: int) -> bool:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return False
    return True


def _demoted(found: Submitted) -> User | None:
    """Return the user to become; None where this process is that user."""
    if found.user_id == os.geteuid():
        return None
    name = pwd.getpwuid(found.user_id).pw_name
    return User(found.user_id, found.group_id, tuple(os.getgrouplist(name, found.group_id)))
