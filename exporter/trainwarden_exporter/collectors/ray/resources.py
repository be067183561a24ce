"""What Ray's dashboard says of the cluster's resources: `ray status`, the list of nodes, the GPUs of each node."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from trainwarden_exporter.core.redaction import plain, truncate

NODE_STATES = ("alive", "dead")
MAX_GPUS = 8192

_HEAD = re.compile(r"^=+ Autoscaler status: (?P<time>.+?) =+$", re.MULTILINE)
_USAGE = re.compile(
    r"^ *(?P<used>\d+(?:\.\d+)?)/(?P<total>\d+(?:\.\d+)?) (?P<name>CPU|GPU)"
    r"(?: \((?P<in_groups>[\d.]+) used of (?P<reserved>[\d.]+) reserved in placement groups\))?$",
    re.MULTILINE,
)
_NAMED = re.compile(r"(?<![\w:])(?P<name>CPU|GPU)\b")
_DEMAND = re.compile(r"^ *(?P<shape>\{.*?): (?P<count>\d+)\+ pending", re.MULTILINE)
_BUNDLE = re.compile(r"\{(?P<resources>[^}]*)\}(?: \* (?P<count>\d+))?")
_GPU = re.compile(r"'GPU': (?P<gpus>\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Amount:
    """Of one resource: all there is, what tasks and actors hold, what placement groups reserve and nobody holds."""

    total: float
    used: float
    reserved: float


@dataclass(frozen=True)
class Usage:
    """What `ray status` says: `time` as it was written; the GPUs that tasks, actors and placement groups wait for."""

    time: str
    cpus: Amount
    gpus: Amount
    gpus_wanted: float


@dataclass(frozen=True)
class NodeGpus:
    """One node as its agent last reported it, at `reported` by its own clock; GPU index → busy, 0 to 1."""

    node: str
    reported: float
    busy: dict[str, float]


def read_usage(document: object) -> Usage:
    """Read `GET /api/cluster_status?format=1`; raises `ValueError` if it is another document.

    This text is the one form in which the old and the new autoscaler of Ray tell it.
    """
    text = _data(document).get("clusterStatus")
    head = _HEAD.search(text) if isinstance(text, str) else None
    if not isinstance(text, str) or head is None or "Total Usage:" not in text:
        raise ValueError("expected the text of ray status")
    usage, _, rest = text.partition("Total Usage:")[2].partition("From request_resources:")
    demands = rest.partition("Pending Demands:")[2]
    amounts = {match["name"]: _amount(match) for match in _USAGE.finditer(usage)}
    if {match["name"] for match in _NAMED.finditer(usage)} != amounts.keys():
        raise ValueError("expected the text of ray status: its resources are written otherwise")
    # A resource that no node has, or has any longer, is not mentioned.
    cpus, gpus = (amounts.get(name, Amount(0.0, 0.0, 0.0)) for name in ("CPU", "GPU"))
    return Usage(head["time"], cpus, gpus, sum(map(_wanted, _DEMAND.finditer(demands))))


def read_nodes(document: object) -> dict[str, int]:
    """Read `GET /api/v0/nodes`: how many nodes are in which state; raises `ValueError` if it is another document."""
    found = _data(document).get("result")
    nodes = found.get("result") if isinstance(found, dict) else None
    if not isinstance(nodes, list):
        raise ValueError("expected a list of nodes")  # noqa: TRY004  # the callers' one exception
    states = Counter(str(node.get("state")).lower() for node in nodes if isinstance(node, dict))
    return {state: states[state] for state in NODE_STATES}


def read_gpus(document: object) -> list[NodeGpus]:
    """Read `GET /nodes?view=summary`, nodes alive alone; raises `ValueError` if it is another document."""
    nodes = _data(document).get("summary")
    if not isinstance(nodes, list):
        raise ValueError("expected a summary of nodes")  # noqa: TRY004  # the callers' one exception
    found: dict[str, NodeGpus] = {}
    left = MAX_GPUS
    for node in nodes:
        read = _node_gpus(node) if isinstance(node, dict) else None
        if read is not None and read.node not in found and len(read.busy) <= left:
            found[read.node] = read
            left -= len(read.busy)
    return list(found.values())


def _data(document: object) -> dict[str, Any]:
    data = document.get("data") if isinstance(document, dict) and document.get("result") is True else None
    if not isinstance(data, dict):
        raise ValueError("expected an answer with data")  # noqa: TRY004  # the callers' one exception
    return data


def _amount(match: re.Match[str]) -> Amount:
    idle = float(match["reserved"]) - float(match["in_groups"]) if match["reserved"] else 0.0
    return Amount(float(match["total"]), float(match["used"]), max(0.0, idle))


def _wanted(match: re.Match[str]) -> float:
    """GPUs of one line of demands, such as `{'GPU': 1.0} * 4 (PACK): 2+ pending placement groups`."""
    shape = 0.0
    for bundle in _BUNDLE.finditer(match["shape"]):
        gpu = _GPU.search(bundle["resources"])
        shape += float(gpu["gpus"]) * int(bundle["count"] or 1) if gpu else 0.0
    return shape * int(match["count"])


def _node_gpus(node: dict[str, Any]) -> NodeGpus | None:
    raylet, name, now, gpus = node.get("raylet"), node.get("hostname"), node.get("now"), node.get("gpus")
    alive = isinstance(raylet, dict) and raylet.get("state") == "ALIVE"
    if not alive or not isinstance(name, str) or not isinstance(now, (int, float)) or not isinstance(gpus, list):
        return None
    busy = {}
    for gpu in gpus:
        index, percent = (gpu.get("index"), gpu.get("utilizationGpu")) if isinstance(gpu, dict) else (None, None)
        if isinstance(index, int) and isinstance(percent, (int, float)) and 0 <= percent <= 100:
            busy[str(index)] = percent / 100
    return NodeGpus(truncate(plain(name[:1024]), 128), float(now), busy)
