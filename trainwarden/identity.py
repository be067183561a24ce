"""The identity of a process: its run, its attempt, its rank and its host."""

from __future__ import annotations

import os
import re
from collections import namedtuple
from collections.abc import Mapping

from trainwarden.environment import in_kubernetes, indexed_job, pod, ray_submission_id, ray_worker_job

_RUN_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
_SCHEDULER = re.compile(r"[a-z][a-z0-9_-]{0,31}")
_JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,127}")


# Variables of launchers, the innermost first: `mpirun` in a SLURM job leaves those that SLURM has set for its daemon.
# Hydra (MPICH, Intel MPI) and Cray's PALS set those of PMI.
_RANK = (
    "RANK",
    "OMPI_COMM_WORLD_RANK",
    "MV2_COMM_WORLD_RANK",
    "PMI_RANK",
    "PALS_RANKID",
    "JSM_NAMESPACE_RANK",
    "FLUX_TASK_RANK",
    "PMIX_RANK",
    "SLURM_PROCID",
)
_LOCAL_RANK = (
    "LOCAL_RANK",
    "OMPI_COMM_WORLD_LOCAL_RANK",
    "MV2_COMM_WORLD_LOCAL_RANK",
    "PMI_LOCAL_RANK",
    "MPI_LOCALRANKID",
    "PALS_LOCAL_RANKID",
    "JSM_NAMESPACE_LOCAL_RANK",
    "FLUX_TASK_LOCAL_ID",
    "SLURM_LOCALID",
)
_WORLD_SIZE = (
    "WORLD_SIZE",
    "OMPI_COMM_WORLD_SIZE",
    "MV2_COMM_WORLD_SIZE",
    "PMI_SIZE",
    "PALS_SIZE",
    "JSM_NAMESPACE_SIZE",
    "FLUX_JOB_SIZE",
    "SLURM_NTASKS",
)
_LOCAL_WORLD_SIZE = (
    "LOCAL_WORLD_SIZE",
    "OMPI_COMM_WORLD_LOCAL_SIZE",
    "MV2_COMM_WORLD_LOCAL_SIZE",
    "PMI_LOCAL_SIZE",
    "MPI_LOCALNRANKS",
    "PALS_LOCAL_SIZE",
    "JSM_NAMESPACE_LOCAL_SIZE",
)
# The system chooses no port below this one.
_EPHEMERAL_PORT = 32768
_MODAL_TASK = "MODAL_TASK_ID"
# What names a start that has ranks on several hosts, by the name of its launcher in the key.
_STARTS = (
    ("pals", "PALS_APID"),
    ("mpi", "PMIX_NAMESPACE"),
    ("pbs", "PBS_JOBID"),
    ("lsf", "LSB_JOBID"),
)


class InvalidRunId(ValueError):
    """The text is not usable as the name of a run."""


class InvalidAttemptKey(ValueError):
    """The text is not of the form `<scheduler>:<job_id>:<generation>`."""


def check_run_id(run_id: object) -> str:
    """Return `run_id` unchanged if it can name a run, and therefore a folder.

    Raises:
        InvalidRunId: it is not a string of the form described in docs/contracts.md.
    """
    if isinstance(run_id, str) and _RUN_ID.fullmatch(run_id) and ".." not in run_id:
        return run_id
    shown = repr(run_id)
    shown = shown if len(shown) <= 80 else f"{shown[:80]}… ({len(shown)} characters)"
    raise InvalidRunId(
        f"run id {shown} is not usable: expected 1 to 128 letters, digits, '.', '_' or '-', "
        "beginning with a letter or digit and without '..'"
    )


# Shell commands need the key, and dataclasses and typing take longer to import than the command runs.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import NamedTuple

    class _Parts(NamedTuple):
        scheduler: str
        job_id: str
        generation: int
else:
    _Parts = namedtuple("_Parts", ("scheduler", "job_id", "generation"))  # typed above


class AttemptKey(_Parts):
    """The identity of one attempt: one start of one job."""

    __slots__ = ()

    def __new__(cls, scheduler: str, job_id: str, generation: int) -> AttemptKey:
        """Build the key from its parts.

        Raises:
            InvalidAttemptKey: a part is invalid.
        """
        usable = _SCHEDULER.fullmatch(scheduler) and _JOB_ID.fullmatch(job_id)
        if not usable or not 0 <= generation < 2**31:
            given = f"{scheduler}:{job_id}:{generation}"
            raise InvalidAttemptKey(f"{given[:120]!r} is no attempt key: expected <scheduler>:<job_id>:<generation>")
        return super().__new__(cls, scheduler, job_id, generation)

    def __str__(self) -> str:
        return f"{self.scheduler}:{self.job_id}:{self.generation}"

    @classmethod
    def parse(cls, text: str) -> AttemptKey:
        """Parse a key.

        Raises:
            InvalidAttemptKey: the text is not of its form.
        """
        scheduler, _, rest = text.partition(":")
        job_id, _, generation = rest.rpartition(":")
        if not (generation.isascii() and generation.isdigit() and len(generation) <= 10):
            raise InvalidAttemptKey(f"{text[:120]!r} is no attempt key: expected <scheduler>:<job_id>:<generation>")
        return cls(scheduler, job_id, int(generation))

    def same_job(self, other: AttemptKey) -> bool:
        """Whether both are starts of one job, which its scheduler never runs twice at once."""
        return (self.scheduler, self.job_id) == (other.scheduler, other.job_id)


def current_attempt_key(
    environ: Mapping[str, str] = os.environ, process: int | None = None, *, ranks: int | None = None
) -> AttemptKey:
    """Return the key of the attempt that a process is part of; it is the same for all ranks.

    Args:
        environ: environment variables of the process.
        process: its pid; this process if None.
        ranks: how many ranks the attempt has; as the launcher states it if None.

    Raises:
        InvalidAttemptKey: a variable that determines it is invalid; the message names it.
    """
    if given := environ.get("TRAINWARDEN_ATTEMPT_KEY"):
        try:
            return AttemptKey.parse(given)
        except InvalidAttemptKey as error:
            raise InvalidAttemptKey(f"TRAINWARDEN_ATTEMPT_KEY: {error}") from error
    if submission := ray_submission_id(environ):
        return AttemptKey("ray", _as_job_id(submission), 0)
    if job_id := environ.get("SLURM_JOB_ID"):
        restarts = environ.get("SLURM_RESTART_COUNT") or "0"
        try:
            return AttemptKey.parse(f"slurm:{job_id}:{restarts}")
        except InvalidAttemptKey as error:
            raise InvalidAttemptKey(f"SLURM_JOB_ID and SLURM_RESTART_COUNT: {error}") from error
    if (flux_job := environ.get("FLUX_JOB_ID")) and "FLUX_TASK_RANK" in environ:
        return AttemptKey("flux", _as_job_id(flux_job), 0)
    return _key_without_scheduler(environ, os.getpid() if process is None else process, ranks)


def _key_without_scheduler(environ: Mapping[str, str], process: int, ranks: int | None) -> AttemptKey:
    if ray_job := ray_worker_job(environ):
        return AttemptKey("ray", _as_job_id(ray_job), 0)
    size, on_many_hosts = ranks or world_size(environ) or 1, _on_many_hosts(environ, ranks)
    # Ranks on different hosts share only the names of the job and of the rendezvous; those change with each start.
    if (job := indexed_job(environ)) and (on_many_hosts or _is_numbered_rank(environ)):
        return AttemptKey("kubernetes", _as_job_id(job), 0)
    if on_many_hosts and (shared := _key_of_hosts(environ)):
        return shared
    # The ranks of one local launcher share their parent process, and nothing else that identifies the start.
    pid = (process_parent(process) or process) if size > 1 else process
    ticks = process_start_ticks(pid) or 0
    if task := environ.get(_MODAL_TASK):
        # One container may start several trainings within a second; no function runs for the 248 days that fit.
        return AttemptKey("modal", _as_job_id(task), ticks % 2**31)
    if in_kubernetes(environ) and (name := pod(environ)):
        return AttemptKey("kubernetes", _as_job_id(name), ticks // os.sysconf("SC_CLK_TCK") % 2**31)
    return AttemptKey("local", f"{pid}-{ticks}", 0)


def _key_of_hosts(environ: Mapping[str, str]) -> AttemptKey | None:
    """Return the key that ranks on several hosts have in common; None where nothing names their start."""
    rendezvous = environ.get("TORCHELASTIC_RUN_ID")
    if rendezvous and rendezvous != "none":
        return AttemptKey("torchrun", _as_job_id(rendezvous), 0)
    for launcher, variable in _STARTS:
        if start := environ.get(variable):
            return AttemptKey(launcher, _as_job_id(start), 0)
    if address := environ.get("MASTER_ADDR"):
        # Without --rdzv-id this is all that torchrun's hosts have in common. Its rendezvous c10d chooses a port at each
        # start; one that a person has chosen is also that of the next start.
        place = _as_job_id(f"{address}-{environ.get('MASTER_PORT', '')}")
        return AttemptKey("torchrun" if rendezvous else "rendezvous", place, 0)
    return None


def unnamed_start(key: AttemptKey, environ: Mapping[str, str] = os.environ, *, ranks: int | None = None) -> str | None:
    """Return what is wrong with the key of ranks on several hosts, and what to set instead; None where it is unique."""
    if environ.get("TRAINWARDEN_ATTEMPT_KEY") or not _on_many_hosts(environ, ranks):
        return None
    chosen = (_first_number(environ, "MASTER_PORT") or 0) < _EPHEMERAL_PORT
    if key.scheduler == "torchrun" and environ.get("TORCHELASTIC_RUN_ID") == "none" and chosen:
        return "torchrun has no --rdzv-id: every start at this address and port counts as one attempt; pass a new id"
    if key.scheduler == "rendezvous":
        return "every start at this MASTER_ADDR and MASTER_PORT counts as one attempt; set TRAINWARDEN_ATTEMPT_KEY"
    if key.scheduler in {"local", "modal"}:
        return "each host counts as an attempt of its own: errors on others are ignored; set TRAINWARDEN_ATTEMPT_KEY"
    return None


def _on_many_hosts(environ: Mapping[str, str], ranks: int | None) -> bool:
    size = ranks or world_size(environ) or 1
    return size > (_first_number(environ, *_LOCAL_WORLD_SIZE) or size)


def _as_job_id(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._+-]", "-", text).lstrip("._+-")[:128] or "unnamed"


def rank(environ: Mapping[str, str] = os.environ) -> int:
    """Return this process's rank; 0 where no launcher sets one."""
    number = _first_number(environ, *_RANK)
    if number is None and _is_numbered_rank(environ):
        index = _first_number(environ, "JOB_COMPLETION_INDEX") or 0
        return index * (_first_number(environ, "LOCAL_WORLD_SIZE") or 1) + (local_rank(environ) or 0)
    # Launchers that set the local rank alone, as Lightning's own does, start one node each.
    return _first_number(environ, "LOCAL_RANK") or 0 if number is None else number


def local_rank(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return this process's rank among those of its host; None where no launcher sets one."""
    return _first_number(environ, *_LOCAL_RANK)


def world_size(environ: Mapping[str, str] = os.environ) -> int | None:
    """Return the number of ranks of the attempt; None where no launcher sets it."""
    return _first_number(environ, *_WORLD_SIZE)


def _is_numbered_rank(environ: Mapping[str, str]) -> bool:
    # The pods of an Indexed Job are ranks of one training only if they have a rendezvous; else each may train alone.
    rendezvous = environ.keys() & {"MASTER_ADDR", "WORLD_SIZE", "JAX_COORDINATOR_ADDRESS"}
    return in_kubernetes(environ) and bool(environ.get("JOB_COMPLETION_INDEX")) and bool(rendezvous)


def boot_id(procfs: str | os.PathLike[str] = "/proc") -> str:
    """Return the id of the kernel's boot, another after each; empty where procfs does not have it."""
    try:
        with open(os.path.join(procfs, "sys/kernel/random/boot_id"), "rb") as file:  # noqa: PTH118, PTH123  # pathlib is slow to import
            return file.read(64).decode("ascii").strip()
    except (OSError, ValueError):
        return ""


def host_name() -> str:
    """Return the host name, as records and the exporter use it; in Modal the container's id.

    Modal's containers all have the host name `modal`, and a pid of one means nothing in another.
    """
    task = os.environ.get(_MODAL_TASK)
    return _as_job_id(task) if task else os.uname().nodename


def process_start_ticks(pid: int) -> int | None:
    """Return when a process started, in clock ticks since boot; None if there is no such process.

    Pid and start together identify a process: pids are reused.
    """
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123  # pathlib is slow to import
            # The second field is the program's name, which may hold spaces and brackets.
            return int(stat.read().rpartition(b")")[2].split()[19])
    except (OSError, IndexError, ValueError):
        return None


def process_parent(pid: int) -> int | None:
    """Return the pid of the parent of a process; None if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123  # as above
            return int(stat.read().rpartition(b")")[2].split()[1])
    except (OSError, IndexError, ValueError):
        return None


def process_lives(pid: int) -> bool:
    """Whether a process of this host is alive; a zombie is not."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:  # noqa: PTH123  # as above
            return stat.read().rpartition(b")")[2].split()[0] not in (b"Z", b"X")
    except (OSError, IndexError):
        return False


def _first_number(environ: Mapping[str, str], *names: str) -> int | None:
    for name in names:
        value = environ.get(name, "")
        if value.isascii() and value.isdigit() and len(value) < 10:
            return int(value)
    return None
