"""Which SLURM job a control group belongs to: by the groups that slurmd, as root, makes in its own hierarchy."""

from __future__ import annotations

import re

# A group of the same name elsewhere proves nothing: systemd lets every user make groups below a service of his own.
# `/..` stands for what is above the reader's own namespace. A slurmd in a container has its groups in the container's.
_CONTAINER = r"(?:/(?:[a-z-]{2,16}-)?[0-9a-f]{64}(?:\.scope)?)?"
_ABOVE = rf"(?:/\.\.)*(?:/[\w.@:-]+\.slice)*{_CONTAINER}(?:/system\.slice)?"
_STEP = r"(?:/step_(?P<step>[A-Za-z0-9_-]{1,32}))?(?:/|\Z)"
_V2 = re.compile(rf"{_ABOVE}/(?:[\w.-]+_)?slurmstepd\.scope/job_(?P<job>\d{{1,20}}){_STEP}", re.ASCII)
_V1 = re.compile(
    rf"(?:/\.\.)*{_CONTAINER}/slurm(?:_[\w.-]+)?/uid_(?P<uid>\d{{1,10}})/job_(?P<job>\d{{1,20}}){_STEP}", re.ASCII
)


def job_of_group(path: str) -> str:
    """Return the id of the job of a control group, given its path in the hierarchy; empty if it is in none."""
    return job_and_step(path)[0]


def job_and_step(path: str) -> tuple[str, str]:
    """Return the job's id and the step of a control group, each empty where the path has none."""
    match = _V2.match(path) or _V1.match(path)
    return (match["job"], match["step"] or "") if match else ("", "")
