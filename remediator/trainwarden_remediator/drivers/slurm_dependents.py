"""Jobs of the same user that wait for a job which is submitted again under another id.

`scancel` fulfils `afterany` and `afternotok`, and ends what a `singleton` waits for: such a job would begin beside the
new one. It makes `afterok` impossible: SLURM leaves such a job waiting for good, and it is pointed at the new job.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from trainwarden.clients.slurm.client import SlurmClient
from trainwarden.clients.slurm.jobs import SlurmJob
from trainwarden_remediator.incidents.incident import clean

# A condition as SLURM shows it, `afterok:17(unfulfilled)`; several stand with `,`, or with `?` where one is enough.
_CONDITION = re.compile(r"([a-z]+)(?::(\d+)((?:_(?:\d+|\*))?(?:\+\d+)?))?(?:\([a-z]+\))?")
_NEEDS_SUCCESS = frozenset({"afterok", "aftercorr"})
_BEGINS = frozenset({"afterany", "afternotok"})


def dependents_objection(job: SlurmJob, jobs: Sequence[SlurmJob], *, cancels: bool) -> str | None:
    """Return why a job that runs must not be ended to be submitted again; None where no job depends on its end.

    Args:
        job: the job.
        jobs: all that SLURM lists.
        cancels: SLURM cancels a job whose dependency cannot be fulfilled any more (`kill_invalid_depend`), unless that
            job says otherwise.
    """
    for other in jobs:
        if other.state != "pending" or other.user_id != job.user_id or other.job_id == job.job_id:
            continue
        kinds = set(_kinds(other.dependency, job.job_id))
        begins = kinds & _BEGINS | (kinds & {"singleton"} if other.name == job.name else set())
        cancelled = cancels if other.invalid_dependency_cancels is None else other.invalid_dependency_cancels
        if begins and not other.held:
            return (
                f"job {other.queue_id} waits for the end of job {job.job_id} ({', '.join(sorted(begins))}) and would "
                "begin beside the job that comes back: hold it or change its dependency, and end job "
                f"{job.job_id} by hand"
            )
        if kinds & _NEEDS_SUCCESS and cancelled:
            return (
                f"job {other.queue_id} waits for the success of job {job.job_id} (afterok), and SLURM would cancel it "
                "with that one (kill_invalid_depend, --kill-on-invalid-dep): change its dependency, and end job "
                f"{job.job_id} by hand"
            )
    return None


def point_dependents(client: SlurmClient, old: str, new: SlurmJob, jobs: Sequence[SlurmJob]) -> list[str]:
    """Let jobs that wait for the success of `old` wait for that of `new`; return what was done, for the decision log.

    Those of other users are left, and named.
    """
    told = []
    for other in jobs:
        if other.state != "pending" or not _NEEDS_SUCCESS & set(_kinds(other.dependency, old)):
            continue
        waits = f"job {other.queue_id} waits for the success of job {old}"
        if other.user_id != new.user_id:
            told.append(f"{waits} and belongs to uid {other.user_id}: it is left")
        elif other.target is None:
            told.append(f"{waits} and stands for several tasks: point it at job {new.job_id} by hand")
        else:
            answer = client.update(other.target, Dependency=repointed(other.dependency, old, new.job_id))
            told.append(f"{waits}, and is pointed at job {new.job_id}: {answer.detail}")
    return [clean(each, 300) for each in told]


def repointed(dependency: str, old: str, new: str) -> str:
    """Return a dependency for `scontrol update`, with another job in the conditions that need the success of `old`."""

    def condition(match: re.Match[str]) -> str:
        kind, job, rest = match.groups()
        if job is None:
            return kind
        return f"{kind}:{new if job == old and kind in _NEEDS_SUCCESS else job}{rest}"

    return _CONDITION.sub(condition, dependency)


def _kinds(dependency: str, job_id: str) -> Iterator[str]:
    """Yield the kinds of the conditions that name a job, and `singleton`."""
    for kind, job, _ in _CONDITION.findall(dependency):
        if job == job_id or kind == "singleton":
            yield kind
