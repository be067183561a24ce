"""How a job was submitted, as far as SLURM shows it, so that it can be submitted again."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from trainwarden.clients.slurm.fields import number, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Lines of `scontrol show job` that hold no text of users; such a text has no newline where the record was taken.
_TASKS = re.compile(r"^\s+NumNodes=\S+ NumCPUs=\S+ NumTasks=\S+ CPUs/Task=(\d+) ", re.M)
_SHARES = re.compile(r"^\s+OverSubscribe=(\S+) Contiguous=(\d) ", re.M)
_MAIL = re.compile(r"^\s+MailUser=(\S+) MailType=(\S+)\s*$", re.M)
_GPUS = re.compile(r"gres[:/]gpu(?::([\w.+-]+))??[:=](\d+)")
_SHARED = {"NO": "--exclusive", "USER": "--exclusive=user", "YES": "--oversubscribe"}
# What cannot be given again, or would not mean the same; by the names in the record.
_UNKEPT = (
    "burst_buffer",
    "container",
    "cpus_per_tres",
    "memory_per_tres",
    "mcs_label",
    "tres_bind",
    "tres_freq",
    "tres_per_socket",
    "network",
)
_TEXTS = {
    "partition": "partition",
    "account": "account",
    "qos": "qos",
    "name": "job-name",
    "features": "constraint",
    "prefer": "prefer",
    "licenses": "licenses",
    "required_nodes": "nodelist",
    "excluded_nodes": "exclude",
    "resv_name": "reservation",
    "wckey": "wckey",
    "current_working_directory": "chdir",
    "standard_output": "output",
    "standard_error": "error",
    "standard_input": "input",
}
_NUMBERS = {
    "node_count": "nodes",
    "tasks": "ntasks",
    "tasks_per_node": "ntasks-per-node",
    "time_limit": "time",
    "time_minimum": "time-min",
}


class CannotRepeat(Exception):
    """A job cannot be submitted again as it was; the message is the reason."""


@dataclass(frozen=True)
class Submitted:
    """A job as it can be submitted again.

    Attributes:
        job_id: of the job.
        run_id: the run that its comment marks it with.
        user_id, group_id: of its owner.
        script: its batch script; bytes that are no UTF-8 are kept as surrogates.
        options: of sbatch, which stand above those in the script.
        comment: as it stands.
    """

    job_id: str
    run_id: str
    user_id: int
    group_id: int
    script: str
    options: tuple[str, ...]
    comment: str

    def as_text(self) -> str:
        """Return it for a file."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, written: str) -> Submitted:
        """Return what `as_text` wrote; raises ValueError, KeyError or TypeError where it is something else."""
        values = json.loads(written)
        return cls(**{**values, "options": tuple(values["options"])})


def read_submitted(entry: Mapping[str, Any], described: str, script: str, run_id: str) -> Submitted:
    """Return how a job can be submitted again.

    Args:
        entry: its record in `squeue --json`.
        described: what `scontrol show job` prints of it: squeue leaves out the CPUs of a task before 23.02.
        script: its batch script.
        run_id: that it is marked with.

    Raises:
        CannotRepeat: it asks for something that cannot be given again, or is no plain text.
    """
    job_id, user, group = (number(entry.get(name)) for name in ("job_id", "user_id", "group_id"))
    if job_id is None or user is None or group is None:
        raise CannotRepeat("its record names no job, user or group")
    if number(entry.get("array_job_id")):
        raise CannotRepeat("it is a task of an array, whose other tasks a new job would not have")
    if number(entry.get("deadline")):
        raise CannotRepeat("it has a --deadline")
    if number(entry.get("het_job_id")):
        raise CannotRepeat("it is heterogeneous")
    if not script.startswith("#!"):
        raise CannotRepeat("it has no batch script")
    if " " in text(entry.get("command")):
        raise CannotRepeat(f"its script was submitted with arguments: {text(entry.get('command'))!r:.120}")
    for name in _UNKEPT:
        if text(entry.get(name)):
            raise CannotRepeat(f"what it has as {name} cannot be given again: {text(entry.get(name))!r:.80}")
    texts = [value for value in entry.values() if isinstance(value, str)]
    comment = entry.get("comment")
    comment = text(comment.get("job")) if isinstance(comment, dict) else text(comment)
    if not all(each.isprintable() for each in (*texts, comment)):
        raise CannotRepeat("its record holds a text that is no single line")
    tasks = _TASKS.search(described)
    if tasks is None:
        raise CannotRepeat("scontrol show job states no CPUs for a task")
    options = (*_of_record(entry), f"--cpus-per-task={tasks.group(1)}", *_of_description(described))
    return Submitted(str(job_id), run_id, user, group, script, options, comment)


def _of_record(entry: Mapping[str, Any]) -> Iterator[str]:
    for name, option in _TEXTS.items():
        if given := text(entry.get(name)):
            yield f"--{option}={given}"
    for name, option in (*_NUMBERS.items(), ("nice", "nice")):
        if value := number(entry.get(name)):
            yield f"--{option}={value}"
    if _is_infinite(entry.get("time_limit")):
        yield "--time=UNLIMITED"
    for name, option in (("memory_per_node", "mem"), ("memory_per_cpu", "mem-per-cpu")):
        if (value := number(entry.get(name))) is not None:
            yield f"--{option}={value}M"
    yield from _gres(entry)


def _gres(entry: Mapping[str, Any]) -> Iterator[str]:
    if per_node := text(entry.get("tres_per_node")):
        yield "--gres=" + ",".join(re.sub(r"^gres[:/]", "", each) for each in per_node.split(","))
    for name, option in (("tres_per_job", "gpus"), ("tres_per_task", "gpus-per-task")):
        asked = [each for each in text(entry.get(name)).split(",") if each and not each.startswith("cpu")]
        for each in asked:
            found = _GPUS.fullmatch(each)
            if found is None:
                raise CannotRepeat(f"what it has as {name} cannot be given again: {each!r:.80}")
            yield f"--{option}=" + (f"{found.group(1)}:" if found.group(1) else "") + found.group(2)


def _of_description(described: str) -> Iterator[str]:
    if shares := _SHARES.search(described):
        if shares.group(1) in _SHARED:
            yield _SHARED[shares.group(1)]
        if shares.group(2) != "0":
            yield "--contiguous"
    if mail := _MAIL.search(described):
        yield f"--mail-user={mail.group(1)}"
        yield f"--mail-type={mail.group(2)}"


def _is_infinite(value: object) -> bool:
    return bool(value.get("infinite")) if isinstance(value, dict) else value == 0xFFFFFFFF
