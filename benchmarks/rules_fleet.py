"""A fleet as Prometheus scrapes it: nodes that each work for one run, with every series that the rules read.

Or the same runs as one exporter shows them that reads their folders, where no node has an exporter.

What a node, its run and the head node show is taken from the page of a whole node that the tests compare (p5.prom), and
from the healthy cluster of rules/tests/healthy.yml; GPUs, ranks, ports and sections of a step are as many as they are.
"""

import re
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import NamedTuple

import yaml

from tests.rules import promql
from trainwarden.rules.files import read_rule_files

ROOT = Path(__file__).resolve().parents[1]
GPUS = 8
STALL_SECONDS = 30.0
HISTORY_SECONDS = 7 * 3600.0

_NODE, _HEAD = "n@:9745", "head:9745"
_HEALTHY = ROOT / "rules/tests/healthy.yml"
_NODE_PAGE = ROOT / "tests/integration/exporter/nodes/golden/p5.prom"
_SERIES = re.compile(r"(?P<name>[a-zA-Z_:][\w:]*)(?:\{(?P<labels>.*)\})?$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_VALUES = re.compile(r"(?P<first>-?[\d.e]+)(?P<slope>[+-][\d.]+)?")
# Of the healthy cluster: the first GPU of its first node, the rank there, and one of each kind.
_FIRST = {"gpu": "0", "rank": "0", "device": "mlx5_0", "section": "forward", "phase": "checkpoint"}
_MANY = {
    "gpu": [str(gpu) for gpu in range(GPUS)],
    "rank": [str(rank) for rank in range(GPUS)],
    "device": [f"mlx5_{device}" for device in range(GPUS)],
    "section": ["data", "forward", "backward", "optimizer", "collective"],
    "phase": ["init", "compile", "eval", "checkpoint", "load", "idle", "done"],
}
# Steps, the loop's heartbeats and the log stand still in a stalled run; its processes live on.
_STANDS_STILL = re.compile(
    r'training_(?:step|motion|advance|log|tokens|loss|rank_step|host_rank_steps)(?:_|{)|.*source="progress"'
)
# What an exporter shows of a record that it reads in S3, not of one in a folder.
_OF_S3 = {"training_run_observed_timestamp_seconds", "training_run_s3_info"}
_BEGAN = re.compile(r"(?:training_(?:attempt|phase)|slurm_job)_start_")


class Sample(NamedTuple):
    """A series and its value, `first` when the fleet began and `rate` more each second; a time counts from then."""

    name: str
    labels: tuple[tuple[str, str], ...]
    first: float
    rate: float


@dataclass
class Fleet:
    """So many nodes, of which each works for one run, and a head node; the first `stalled` runs stand still.

    `has_nodes`: whether nodes have exporters; else that of the head node shows all runs, and nothing of the nodes.
    """

    nodes: int
    has_nodes: bool = True
    began: float = field(default_factory=lambda: time.time() - HISTORY_SECONDS)
    stalled: int = 0
    stalled_since: float = 0.0

    def __post_init__(self) -> None:
        self._parts: dict[str, list[tuple[str, float, float, int]]] = defaultdict(list)
        shown = samples() if self.has_nodes else map(_on_head, filter(_is_of_run, samples()))
        for sample in {(sample.name, frozenset(sample.labels)): sample for sample in shown}.values():
            page = "/runs" if sample.name.startswith("training_") or ("collector", "runs") in sample.labels else "/rest"
            text = "".join(f',{label}="{value}"' for label, value in sample.labels if label != "cluster")
            line = f'{sample.name}{{cluster="east"{text}}} '
            first = sample.first + (self.began if "_timestamp_seconds" in sample.name else 0)
            still = bool(_STANDS_STILL.match(line))
            for number in range(self.nodes) if "@" in line else (0,):
                numbered = line.replace("@", f"{number:05d}")
                self._parts[page].append((numbered, first, sample.rate, number if still else -1))

    def series(self) -> int:
        """Return how many series all pages have."""
        return sum(map(len, self._parts.values()))

    def stall(self, runs: int) -> None:
        """Let so many runs stand still from now on."""
        self.stalled_since, self.stalled = time.time(), runs

    def at(self, path: str) -> bytes:
        """Return the page as it is now."""
        now = time.time()
        lines = []
        for line, first, rate, number in self._parts[path]:
            moment = self.stalled_since if 0 <= number < self.stalled else now
            lines.append(f"{line}{first + rate * (moment - self.began):.3f}\n" if rate else f"{line}{first}\n")
        return "".join(lines).encode()


def _is_of_run(sample: Sample) -> bool:
    """Return whether an exporter shows it that has no node of its own to look at."""
    place = dict(sample.labels)
    return sample.name not in _OF_S3 and (
        place.get("instance") != _NODE
        or sample.name.startswith(("training_", "slurm_", "trainwarden_remediator_"))
        or place.get("collector") == "runs"
    )


def _on_head(sample: Sample) -> Sample:
    labels = tuple((label, _HEAD if (label, value) == ("instance", _NODE) else value) for label, value in sample.labels)
    return sample._replace(labels=labels)


def samples() -> Iterator[Sample]:
    """Yield what a node with its run shows (`@` stands for its number), and what a head node shows."""
    healthy, node = defaultdict(list), defaultdict(list)
    for sample in _healthy():
        healthy[sample.name].append(sample)
    for sample in _node_page():
        node[sample.name].append(sample)
    for name in _read_by_rules() & (healthy.keys() | node.keys()):
        yield from healthy[name]
        yield from node[name]


def _read_by_rules() -> set[str]:
    rules = [rule for file in read_rule_files(ROOT / "rules") for group in file.groups for rule in group["rules"]]
    return {name for rule in rules for name in promql.metrics(promql.parse(str(rule["expr"])))}


def _healthy() -> Iterator[Sample]:
    """Yield the samples of the healthy cluster: its run and its first node stand for all, its second is left out."""
    found = dict.fromkeys(
        Sample(found["name"], _labels(found["labels"]), *_first_and_rate(str(each["values"])))
        for test in yaml.safe_load(_HEALTHY.read_text(encoding="utf-8"))["tests"]
        for each in test["input_series"]
        if (found := _SERIES.match(each["series"]))
    )
    for sample in found:
        labels = dict(sample.labels)
        if _is_left_out(sample.name, labels):
            continue
        if labels.get("run_id") == "r1" and sample.name.startswith(("training_", "trainwarden_")):
            labels["instance"] = _NODE
        is_budget = sample.name == "training_stall_budget_seconds"
        yield from _many(sample._replace(first=STALL_SECONDS) if is_budget else sample, labels)


def _is_left_out(name: str, labels: dict[str, str]) -> bool:
    is_other = any(labels.get(key, "0") != "0" for key in ("gpu", "rank"))
    is_double = (name == "slurm_job_info" and "queue_id" not in labels) or labels.get("instance_id") == ""
    return (
        is_other
        or (is_double and name != "training_attempt_info")
        or any(each.startswith("n2") for each in labels.values())
    )


def _first_and_rate(values: str) -> tuple[float, float]:
    """Return the first value and its change in a second; what changes in stages counts as what goes on with time."""
    found = _VALUES.match(values)
    if found is None:
        raise ValueError(f"{values} are no values of a series")
    stages = len(values.replace("stale", "").split()) > 1
    return float(found["first"]), 1.0 if stages else float(found["slope"] or 0) / 30


def _many(sample: Sample, labels: dict[str, str]) -> Iterator[Sample]:
    """Yield a sample of one GPU, rank, device, section and phase as one of each."""
    combinations = [labels]
    for key, values in _MANY.items():
        if labels.get(key) == _FIRST[key] and not (key == "gpu" and "rank" in labels):
            combinations = [{**each, key: value} for each in combinations for value in values]
    for each in combinations:
        gpu = each.get("rank", each.get("gpu", "0"))
        shown = {key: _OWN[value] if value in _OWN else value.replace("n1", "n@") for key, value in each.items()}
        if "uuid" in shown:
            shown |= {"gpu": gpu, "uuid": f"GPU-@-{gpu}"}
        yield sample._replace(labels=tuple(shown.items()))


_OWN = {"r1": "r@", "41": "@", "0-3": "0-7"}


def _node_page() -> Iterator[Sample]:
    for line in _NODE_PAGE.read_text(encoding="utf-8").splitlines():
        found = None if line.startswith("#") else _SERIES.match(line.rpartition(" ")[0])
        if found and not found["name"].startswith(("training_", "trainwarden_node_info")):
            labels = dict(_labels(found["labels"] or ""))
            if "uuid" in labels:
                labels["uuid"] = f"GPU-@-{labels['gpu']}"
            value = 0.0 if "_timestamp_seconds" in found["name"] else float(line.rpartition(" ")[2])
            place = {"instance": _NODE, "job": "trainwarden-exporter"}
            yield Sample(found["name"], (*place.items(), *labels.items()), value, float("_timestamp_seconds" in line))


def _labels(text: str) -> tuple[tuple[str, str], ...]:
    return tuple(_LABEL.findall(text or ""))


@contextmanager
def serving(fleet: Fleet) -> Iterator[str]:
    """Serve the pages on loopback; yields the address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Handler, fleet))
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Handler(BaseHTTPRequestHandler):
    def __init__(self, fleet: Fleet, *arguments: object) -> None:
        self._fleet = fleet
        super().__init__(*arguments)  # type: ignore[arg-type]  # what the server gives each handler

    def do_GET(self) -> None:
        body = self._fleet.at(self.path)
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the name is the base class's
        """Requests are no news."""
