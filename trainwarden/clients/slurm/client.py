"""The client commands of SLURM: no shell, a deadline, an environment without options in disguise, named failures."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from trainwarden.clients.process import (
    CannotStart,
    Completed,
    Process,
    ProcessError,
    ProcessTimeout,
    TooMuchOutput,
    User,
    one_line,
    run,
)
from trainwarden.clients.slurm.fields import number, tres_cpu_seconds
from trainwarden.clients.slurm.jobs import read_job
from trainwarden.clients.slurm.nodes import read_node
from trainwarden.clients.slurm.record_stream import AnswerErrors, read_records
from trainwarden.clients.slurm.rights import Rights, read_rights, read_settings
from trainwarden.clients.slurm.submission import CannotRepeat, Submitted, read_submitted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from trainwarden.clients.slurm.jobs import SlurmJob
    from trainwarden.clients.slurm.nodes import SlurmNode

T = TypeVar("T")

# missing: no such command; timeout: no answer in time; authentication: it is refused, or munge is down; failed: the
# command itself reports an error; unreadable: the answer is no list of records; too_much: it is too long.
REASONS = ("missing", "timeout", "authentication", "failed", "unreadable", "too_much")
# The commands take options from SQUEUE_*, SBATCH_*, SLURM_* and others, and a job that this process runs in sets some.
KEPT_VARIABLES = frozenset(
    "PATH HOME USER LOGNAME TMPDIR LD_LIBRARY_PATH SSH_AUTH_SOCK KRB5CCNAME SLURM_CONF SLURM_JWT".split()  # noqa: SIM905  # shorter
)
# More than 100,000 jobs in the longest layout. It is read record by record and never held at once.
MAX_OUTPUT = 1 << 30
JOB_ID = re.compile(r"[1-9][0-9]{0,9}")
# No hostlist: each call is about one node.
NODE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,252}")
_TARGET = re.compile(r"[0-9]+(_[0-9]+)?")
_AUTHENTICATION = re.compile(
    r"munge|authenticat|auth_g_|credential|jwt|permission denied|access denied|access/permission|invalid user", re.I
)
# Only these mean that the controller understood the request and will not do it.
_REFUSED = re.compile(r"disabled|permission denied|invalid job id|not supported|invalid user|invalid node name", re.I)

# sbatch's own words for a job that was not sent, or that the controller did not take. No answer reads otherwise.
_NOT_SUBMITTED = re.compile(
    r"unable to open file|does not look like a batch script|invalid|not available|not permitted|permission denied|"
    r"violates|access denied|unrecognized|no partition|can ?not be satisfied|dependency problem",
    re.I,
)
_NOT_ACCOUNTED = re.compile("accounting storage is disabled", re.I)


def is_not_submitted(message: str) -> bool:
    """Return whether this, printed by an sbatch that failed, means that there is no job; after any other there may be.

    A controller that answers too late has taken the job all the same.
    """
    return bool(_NOT_SUBMITTED.search(message))


class SlurmError(Exception):
    """SLURM could not be read; `reason` is one of `REASONS`."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message


@dataclass(frozen=True)
class Submission:
    """How a call of sbatch went. Without an id it may have taken effect all the same, unless it was `refused`.

    `detail` is for a log.
    """

    job_id: str | None
    detail: str
    refused: bool = False


class CommandsMissing(Exception):
    """Client commands are not there; the message names them and the place."""


@dataclass(frozen=True)
class UnreadableRecord:
    """A record that does not name its job or node."""

    problem: str


@dataclass(frozen=True)
class ControlResult:
    """How a call of scontrol went. None of it is the truth about the job: a failed call may have taken effect.

    Attributes:
        accepted: status 0.
        refused: the controller understood the request and will not do it.
        detail: command line, status and message, for a log.
    """

    accepted: bool
    refused: bool
    detail: str


def find_commands(folder: Path | None, names: Sequence[str]) -> dict[str, str]:
    """Return the absolute path of each command in `folder`, else on PATH; raises `CommandsMissing`."""
    found = {name: shutil.which(name, path=None if folder is None else str(folder)) for name in names}
    missing = [name for name, path in found.items() if path is None]
    if missing:
        raise CommandsMissing(f"{' and '.join(missing)} not found {f'in {folder}' if folder else 'on PATH'}")
    return {name: str(Path(path).absolute()) for name, path in found.items() if path is not None}


def command_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a client command, given those of this process."""
    return {**{name: environment[name] for name in KEPT_VARIABLES & environment.keys()}, "LC_ALL": "C", "TZ": "UTC"}


class SlurmClient:
    """The commands of one cluster.

    Args:
        commands: absolute paths by name, as of `find_commands`.
        timeout: seconds that one method may take.
    """

    def __init__(self, commands: Mapping[str, str], timeout: float) -> None:
        self._commands = commands
        self._timeout = timeout
        self._nodes_command: Sequence[str] | None = None

    def jobs(self, *job_ids: str) -> Iterator[SlurmJob | UnreadableRecord]:
        """Yield the jobs of the cluster as they are read, those that have just ended included.

        What was yielded counts only if the iterator ends without an error.

        Args:
            job_ids: the only jobs wanted; all where none is named. Other records must be expected: of its array or
                heterogeneous job, and before 24.05 of the whole queue, for `squeue --json` ignored the filter. A job
                that SLURM does not have is an error in some versions and no record in others: only a list without
                filter shows that it is not there.

        Raises:
            SlurmError: there is no complete answer.
            ValueError: one of `job_ids` is none.
        """
        for job_id in job_ids:
            if not JOB_ID.fullmatch(job_id):
                raise ValueError(f"{job_id!r} is no job id")
        named = [f"--jobs={','.join(job_ids)}"] if job_ids else []
        # Without --all those of hidden partitions are shown to administrators alone, since 24.05.
        argv = [self._commands["squeue"], "--json", "--all", "--states=all", *named]
        return self._records(argv, "jobs", read_job, self._timeout)

    def nodes(self) -> Iterator[SlurmNode | UnreadableRecord]:
        """Yield the nodes of the cluster as they are read; what was yielded counts as with `jobs`.

        `scontrol` lists single nodes as JSON since 23.02; before, `sinfo` does.

        Raises:
            SlurmError: there is no complete answer.
        """
        deadline = time.monotonic() + self._timeout
        newer = [self._commands["scontrol"], "show", "nodes", "--json"]
        if self._nodes_command is None:
            try:
                yield from self._records(newer, "nodes", read_node, self._timeout)
            except SlurmError as error:
                if "option" not in error.message:
                    raise
                self._nodes_command = [self._commands["sinfo"], "--json"]
            else:
                self._nodes_command = newer
                return
        yield from self._records(self._nodes_command, "nodes", read_node, deadline - time.monotonic())

    def accounted_state(self, job_id: str) -> str:
        """Return the state of a job by `sacct`, which remembers jobs that slurmctld has forgotten (MinJobAge).

        Empty where there is no accounting, or it has no such job.

        Raises:
            SlurmError: there is one, and it gives no answer, as while slurmdbd is down.
        """
        if "sacct" not in self._commands or not JOB_ID.fullmatch(job_id):
            return ""
        fields = ("--allocations", "--noheader", "--parsable2", "--format=JobIDRaw,State")
        try:
            output = self._output("sacct", *fields, f"--jobs={job_id}")
        except SlurmError as error:
            if _NOT_ACCOUNTED.search(error.message):
                return ""
            raise
        rows = [line.split("|") for line in output.splitlines()]
        states = [row[1].split(" ")[0] for row in rows if len(row) == 2 and row[0] == job_id]
        return states[-1] if states else ""

    def cpu_time(self, job_id: str) -> tuple[float, int]:
        """Return the CPU seconds that the processes of a job have taken by `sstat`, and how many tasks it has.

        It asks the nodes of the job, and lets root, SlurmUser and the job's user alone do so.

        Raises:
            SlurmError: it gives no answer, or measures nothing, as with JobAcctGatherType=jobacct_gather/none.
        """
        if "sstat" not in self._commands or not JOB_ID.fullmatch(job_id):
            raise SlurmError("missing", "there is no sstat")
        fields = ("--allsteps", "--noheader", "--parsable2", "--format=JobID,NTasks,TRESUsageInTot")
        rows = [line.split("|") for line in self._output("sstat", *fields, f"--jobs={job_id}").splitlines()]
        steps = [row for row in rows if len(row) == 3 and row[0].partition(".")[0] == job_id]
        seconds = sum(tres_cpu_seconds(row[2]) for row in steps)
        if not seconds:
            # Where nothing is gathered it is 0, as of a job that has just begun.
            raise SlurmError("failed", f"sstat shows no CPU time of job {job_id}")
        return float(seconds), sum(int(row[1]) for row in steps if row[1].isdecimal()) or 1

    def described(self, job_id: str) -> bytes:
        """Return what `scontrol show job` prints of a job; the reason where it gives no answer."""
        if not JOB_ID.fullmatch(job_id):
            return b""
        argv = [self._commands["scontrol"], "show", "job", "--details", job_id]
        try:
            done = run(argv, self._timeout, environment=command_environment(os.environ))
        except ProcessError as error:
            return f"scontrol: {error}\n".encode("utf-8", "replace")
        return done.output or done.errors

    def rights(self, user: str, uid: int) -> Rights:
        """Return what SLURM lets a user do, by `scontrol show config` and, where it can be asked, `sacctmgr`.

        Raises:
            SlurmError: the controller gives no answer.
        """
        settings = read_settings(self._output("scontrol", "show", "config"))
        accounted = ""
        if "sacctmgr" in self._commands:
            options = ("--noheader", "--parsable2", "--readonly", "show", "user", user, "withcoord")
            with suppress(SlurmError):
                accounted = self._output("sacctmgr", *options, "format=user,adminlevel,coordinators")
        return read_rights(user, uid, settings, accounted)

    def boot_time(self) -> str:
        """Return when the controller was started, as `scontrol show config` prints it.

        Raises:
            SlurmError: the controller gives no answer, or states no time.
        """
        found = read_settings(self._output("scontrol", "show", "config")).get("BOOT_TIME", "")
        if not found:
            raise SlurmError("unreadable", "scontrol show config has no BOOT_TIME")
        return found

    def _output(self, command: str, *arguments: str, errors: str = "replace") -> str:
        argv = [self._commands[command], *arguments]
        with _named_errors(argv[0], command, self._timeout):
            done = run(argv, self._timeout, environment=command_environment(os.environ))
        if done.status:
            message = _message(done)
            raise _failure(f"{command} ended with status {done.status}: {message}", message)
        return done.output.decode(errors=errors)

    def control(self, verb: str, target: str, *options: str) -> ControlResult:
        """Call scontrol, such as `scontrol requeuehold Incomplete 12_3`, for one job: `target` is `SlurmJob.target`."""
        if not _TARGET.fullmatch(target):
            return ControlResult(accepted=False, refused=True, detail=f"{target!r} is no job id")
        return self._control(verb, *options, target)

    def update(self, target: str, **fields: str) -> ControlResult:
        """Change fields of one job: `scontrol update JobId=12_3 Comment=…`."""
        if not _TARGET.fullmatch(target):
            return ControlResult(accepted=False, refused=True, detail=f"{target!r} is no job id")
        return self._control("update", f"JobId={target}", *(f"{name}={value}" for name, value in fields.items()))

    def update_node(self, name: str, **fields: str) -> ControlResult:
        """Change fields of one node: `scontrol update NodeName=n1 State=DRAIN Reason=…`."""
        if not NODE_NAME.fullmatch(name):
            return ControlResult(accepted=False, refused=True, detail=f"{name!r} is no name of a node")
        return self._control("update", f"NodeName={name}", *(f"{key}={value}" for key, value in fields.items()))

    def submitted(self, job_id: str, run_id: str) -> Submitted:
        """Return how a job can be submitted again, which slurmctld has not forgotten.

        Raises:
            SlurmError: it cannot be read.
            CannotRepeat: it cannot be submitted again.
        """
        if not JOB_ID.fullmatch(job_id):
            raise CannotRepeat(f"{job_id!r} is no job id")
        argv = [self._commands["squeue"], "--json", "--states=all", f"--jobs={job_id}"]
        found = [each for each in _entries(argv, "jobs", self._timeout) if isinstance(each, dict)]
        entry = next((each for each in found if number(each.get("job_id")) == int(job_id)), None)
        if entry is None:
            raise SlurmError("failed", f"squeue does not list job {job_id}")
        described = self._output("scontrol", "show", "job", job_id)
        # Its status is 0 also where there is none: what it writes then stands on standard error.
        script = self._output("scontrol", "write", "batch_script", job_id, "-", errors="surrogateescape")
        return read_submitted(entry, described, script.rstrip("\0\n") + "\n", run_id)

    def submit(
        self,
        script: str,
        *options: str,
        environment: Mapping[str, str] | None = None,
        user: User | None = None,
    ) -> Submission:
        """Call sbatch with a batch script.

        Args:
            script: the script; bytes that are no UTF-8 as surrogates.
            options: of sbatch.
            environment: all variables of sbatch, which the job gets; without, those of the client commands.
            user: that submits it.
        """
        argv = [self._commands["sbatch"], "--parsable", *options]
        called = shlex.join(argv)
        stdin = script.encode(errors="surrogateescape")
        variables = command_environment(os.environ) if environment is None else environment
        try:
            done = run(argv, self._timeout, stdin=stdin, environment=variables, user=user)
        except ProcessError as error:
            return Submission(None, f"{called}: {error}", refused=isinstance(error, CannotStart))
        job_id = done.output.decode(errors="replace").strip().partition(";")[0]
        if done.status == 0 and JOB_ID.fullmatch(job_id):
            return Submission(job_id, f"{called}: job {job_id}")
        message = _message(done)
        refused = done.status not in (0, -9) and is_not_submitted(message)
        return Submission(None, f"{called}: status {done.status}, {message}", refused)

    def cancel(self, target: str) -> ControlResult:
        """Call scancel for one job, whatever it does: its status is 0 also where there is no such job."""
        if not _TARGET.fullmatch(target):
            return ControlResult(accepted=False, refused=True, detail=f"{target!r} is no job id")
        return self._call(self._commands["scancel"], target)

    def cancel_pending(self, target: str) -> ControlResult:
        """Call scancel for one job, which has no effect once it runs."""
        if not _TARGET.fullmatch(target):
            return ControlResult(accepted=False, refused=True, detail=f"{target!r} is no job id")
        return self._call(self._commands["scancel"], "--state=PENDING", target)

    def _control(self, *arguments: str) -> ControlResult:
        return self._call(self._commands["scontrol"], *arguments)

    def _call(self, *argv: str) -> ControlResult:
        called = shlex.join(argv)
        try:
            done = run(argv, self._timeout, environment=command_environment(os.environ))
        except ProcessError as error:
            return ControlResult(accepted=False, refused=False, detail=f"{called}: {error}")
        message = _message(done)
        detail = f"{called}: status {done.status}" + (f", {message}" if message else "")
        return ControlResult(done.status == 0, done.status != 0 and bool(_REFUSED.search(message)), detail)

    def _records(
        self, argv: Sequence[str], kind: str, read: Callable[[Mapping[str, Any]], T], seconds: float
    ) -> Iterator[T | UnreadableRecord]:
        """Read each record by itself: one that is odd costs no other."""
        for entry in _entries(argv, kind, seconds):
            try:
                yield read(entry)
            except ValueError as error:  # noqa: PERF203  # each by itself
                yield UnreadableRecord(str(error))


def _entries(argv: Sequence[str], kind: str, seconds: float) -> Iterator[Any]:
    """Yield the records of an answer; raises `SlurmError` if it is not complete."""
    name = Path(argv[0]).name
    with (
        _named_errors(argv[0], name, seconds),
        Process(argv, seconds, environment=command_environment(os.environ), limit=MAX_OUTPUT) as process,
    ):
        chunks, problem = process.chunks(), None
        try:
            yield from read_records(chunks, kind)
        except (ValueError, RecursionError, AnswerErrors) as error:
            problem = error
            for _ in chunks:  # the status and the message of the command explain more
                pass
        status, message = process.status, one_line(process.errors)
        if status != 0:
            raise _failure(f"{name} ended with status {status}: {message}", message)
        if isinstance(problem, AnswerErrors):
            # The status is 0 then, before 23.02.
            raise _failure(f"{problem} {message}".strip(), f"{problem} {message}")
        if problem is not None:
            raise SlurmError("unreadable", f"the answer of {name} is no list of {kind}: {problem!s:.200}")


@contextmanager
def _named_errors(program: str, name: str, seconds: float) -> Iterator[None]:
    try:
        yield
    except CannotStart as error:
        raise SlurmError("missing", f"{program}: {error}") from error
    except ProcessTimeout as error:
        raise SlurmError("timeout", f"{name} gave no answer within {seconds:.3g} s") from error
    except TooMuchOutput as error:
        raise SlurmError("too_much", f"the answer of {name} has more than {MAX_OUTPUT >> 20} MiB") from error


def _failure(message: str, explanation: str) -> SlurmError:
    return SlurmError("authentication" if _AUTHENTICATION.search(explanation) else "failed", message)


def _message(done: Completed) -> str:
    """Standard error and the beginning of the output: some versions report errors there."""
    return one_line(done.errors + b" " + done.output[:200])
