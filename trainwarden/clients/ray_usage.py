"""What of a Ray cluster is in use and wanted, and which jobs hold GPUs, as its dashboard states it.

The sums are in the text that `ray status` prints, the one form in which both autoscalers of Ray state them; its
headings differ between minor versions. Which job holds what is in the lists of actors and tasks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden.clients.ray import answered_data

if TYPE_CHECKING:
    from collections.abc import Mapping

STATUS_PATH = "/api/cluster_status?format=1"
_STATE = "detail=1&limit=10000&filter_keys=state&filter_predicates=%3D&filter_values="
ACTORS_PATH = f"/api/v0/actors?{_STATE}ALIVE"
TASKS_PATH = f"/api/v0/tasks?{_STATE}RUNNING"

# The actor that runs a submitted job has this name, followed by the submission's id.
SUPERVISOR = "_ray_internal_job_actor_"
# The headings of each layout: as of Ray 2.44 (its older autoscaler, its newer one), of 2.48 and 2.49, of 2.60.
_LAYOUTS = (
    ("Usage", "Demands"),
    ("Total Usage", "Total Demands"),
    ("Total Usage", "Total Constraints", "Total Demands"),
    ("Total Usage", "From request_resources", "Pending Demands"),
)
_HEAD = re.compile(r"^=+ Autoscaler status: (?P<time>.+?) =+$", re.MULTILINE)
_RESOURCES = re.compile(r"^Resources\n-+\n", re.MULTILINE)
_HEADING = re.compile(r"^(?P<name>\S.*):$")
_AMOUNT = re.compile(
    r" *(?P<used>\d+(?:\.\d+)?)/(?P<total>\d+(?:\.\d+)?) (?P<name>CPU|GPU)"
    r"(?: \((?P<in_groups>[\d.]+) used of (?P<reserved>[\d.]+) reserved in placement groups\))?"
)
_NAMED = re.compile(r"(?<![\w:])(?:CPU|GPU)\b")
_DEMAND = re.compile(
    r" *(?P<shape>\{.*\}(?: \* \d+)?(?: \([A-Z_]+\))?): (?P<count>\d+)\+? "
    r"(?P<kind>pending tasks/actors|pending placement groups|from request_resources\(\))"
    r"(?: \(\d+\+? using placement groups\))?"
)
_NO_DEMAND = "(no resource demands)"
_BUNDLE = re.compile(r"\{(?P<resources>[^}]*)\}(?: \* (?P<count>\d+))?")
_GPU = re.compile(r"'GPU': (?P<gpus>\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class RayAmount:
    """Of one resource: how much there is, how much tasks and actors hold, how much idle placement groups reserve."""

    total: float
    used: float
    reserved: float


@dataclass(frozen=True)
class RayUsage:
    """What `ray status` prints.

    Attributes:
        time: as it is written there.
        cpus: of all nodes.
        gpus: of all nodes.
        gpus_wanted: GPUs that tasks, actors and placement groups wait for.
    """

    time: str
    cpus: RayAmount
    gpus: RayAmount
    gpus_wanted: float


@dataclass(frozen=True)
class RayHolders:
    """GPUs that actors or tasks hold.

    Attributes:
        gpus: by Ray's id of their job, or by the submission of which they are the entrypoint.
        complete: whether the list has all of them.
    """

    gpus: Mapping[str, float]
    complete: bool


def read_usage(document: object) -> RayUsage:
    """Read STATUS_PATH; raises ValueError if it is another document, or has another layout than those known."""
    text = answered_data(document).get("clusterStatus")
    head = _HEAD.search(text) if isinstance(text, str) else None
    resources = _RESOURCES.search(text) if isinstance(text, str) else None
    if not isinstance(text, str) or head is None or resources is None:
        raise ValueError("expected the text of ray status")
    sections = _sections(text[resources.end() :])
    if tuple(sections) not in _LAYOUTS:
        raise ValueError(f"expected the text of ray status: its headings are {', '.join(sections)!a:.200}")
    (_, usage), *_, (_, demands) = sections.items()
    if not demands:
        raise ValueError("expected the text of ray status: it ends before its demands")
    amounts = {}
    for line in usage:
        match = _AMOUNT.fullmatch(line)
        if match is None and _NAMED.search(line):
            raise ValueError("expected the text of ray status: its resources are written otherwise")
        if match is not None:
            amounts[match["name"]] = _amount(match)
    # A resource that no node has is not mentioned.
    cpus, gpus = (amounts.get(name, RayAmount(0.0, 0.0, 0.0)) for name in ("CPU", "GPU"))
    return RayUsage(head["time"], cpus, gpus, sum(map(_wanted, demands)))


def read_holders(document: object) -> RayHolders:
    """Read ACTORS_PATH or TASKS_PATH; raises ValueError if it is another document."""
    answer = answered_data(document).get("result")
    items = answer.get("result") if isinstance(answer, dict) else None
    if not isinstance(answer, dict) or not isinstance(items, list):
        raise ValueError("expected a list of actors or tasks")  # noqa: TRY004  # one exception for all documents
    gpus: dict[str, float] = {}
    for item in items:
        resources = item.get("required_resources") if isinstance(item, dict) else None
        # What an actor needs while it is created, its creation task has as well.
        if not isinstance(item, dict) or item.get("type") not in {None, "NORMAL_TASK"}:
            continue
        if not isinstance(resources, dict):
            raise ValueError("expected the resources of each actor and task")  # noqa: TRY004  # as above
        held = resources.get("GPU", 0)
        if not isinstance(held, (int, float)):
            raise ValueError("expected numbers of GPUs")  # noqa: TRY004  # as above
        holder = _holder(item)
        gpus[holder] = gpus.get(holder, 0.0) + held
    whole = answer.get("num_after_truncation") == answer.get("total") and not answer.get("partial_failure_warning")
    return RayHolders(gpus, whole)


def _sections(text: str) -> dict[str, list[str]]:
    """Return the lines below each heading, without blank ones, up to the usage of single nodes."""
    sections: dict[str, list[str]] = {}
    for line in text.splitlines():
        heading = _HEADING.fullmatch(line)
        if line.startswith("Node: "):
            break
        if heading is not None:
            sections[heading["name"]] = []
        elif line.strip():
            if not sections:
                raise ValueError("expected the text of ray status: it has lines without a heading")
            next(reversed(sections.values())).append(line)
    return sections


def _amount(match: re.Match[str]) -> RayAmount:
    idle = float(match["reserved"]) - float(match["in_groups"]) if match["reserved"] else 0.0
    return RayAmount(float(match["total"]), float(match["used"]), max(0.0, idle))


def _wanted(line: str) -> float:
    """Return the GPUs of one line of demands, as `{'GPU': 1.0} * 4 (PACK): 2+ pending placement groups`."""
    if line.strip() == _NO_DEMAND:
        return 0.0
    match = _DEMAND.fullmatch(line)
    if match is None:
        raise ValueError("expected the text of ray status: its demands are written otherwise")
    if match["kind"].startswith("from"):
        return 0.0  # a request for a size of the cluster: nothing waits for it
    shape = 0.0
    for bundle in _BUNDLE.finditer(match["shape"]):
        gpu = _GPU.search(bundle["resources"])
        shape += float(gpu["gpus"]) * int(bundle["count"] or 1) if gpu else 0.0
    return shape * int(match["count"])


def _holder(item: Mapping[str, Any]) -> str:
    name = item.get("name")
    if isinstance(name, str) and name.startswith(SUPERVISOR) and item.get("class_name") == "JobSupervisor":
        return name.removeprefix(SUPERVISOR)
    job_id = item.get("job_id")
    return job_id if isinstance(job_id, str) else ""
