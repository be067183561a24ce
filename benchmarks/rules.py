"""What the rules take of a real Prometheus, calm and while many runs stall at once.

RUNS: the sizes, such as 64,256,1024, with a node for each run, or head:1024, where one exporter shows all runs and no
node has one; SECONDS: how long each is watched; VALUES: a values file to make the rules with.
They are measured one after the other. A size that a machine cannot bring up within `_PATIENCE_SECONDS` is reported as
such and ends nothing.

Processor time counts, for the machine may be busy with other things. Each rule is a query at one moment of a Prometheus
that by then does nothing else. What an evaluation takes beyond its queries (samples that are recorded, texts of alerts)
is known of all together: what the process took while it scraped and evaluated, less the scrapes, by what the queries of
as many evaluations take.
"""

import csv
import json
import os
import re
import signal
import sys
import tempfile
import time
import urllib.parse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.rules_fleet import ROOT, STALL_SECONDS, Fleet, serving
from benchmarks.tables import Table, verdict
from trainwarden.clients.http import HttpClient
from trainwarden.rules.build import Rules, write
from trainwarden.stack import service
from trainwarden.stack.binaries import find_tools
from trainwarden.stack.ports import free_port

_SIZES = os.environ.get("RUNS", "64,256,1024,head:1024").split(",")
_SECONDS = float(os.environ.get("SECONDS", "62"))
_VALUES = Path(os.environ["VALUES"]) if os.environ.get("VALUES") else None
_SCRAPE_SECONDS = 30.0
_STALLED = 500
_CALM_SHARE, _STORM_SHARE = 0.10, 0.30
_DEAREST = 20
_CORES = 2
# Of every rule; the tables have the dearest.
_EVERY_RULE = ROOT / "docs/rules-cost.csv"
_PATIENCE_SECONDS = 240.0  # until all series of a size, or all alerts of its storm, are there
# Of so many times the median counts, or of a query the least: neighbours of a virtual machine move all of them.
_TIMES = 3
# Of one core: a process that takes less does nothing.
_AT_REST = 0.02
_RULES = re.compile(r'^prometheus_rule_group_rules\{rule_group="[^"]*;([^"]+)"\} (\S+)$', re.MULTILINE)
_EVALUATIONS = re.compile(r'^prometheus_rule_evaluations_total\{rule_group="[^"]*;([^"]+)"\} (\S+)$', re.MULTILINE)
# What is recorded last, in groups that stand on others: of runs, and of those whose nodes have exporters.
_LAST = ("run:training_goodput:ratio", "run:training_step_seconds:typical")
_LAST_OF_NODES = ("run:gpu_power_watts:avg",)
_PAGE = os.sysconf("SC_PAGE_SIZE")
# First in the queue where that is allowed: what a busy machine delays is evaluated later, or not at all.
_COMMAND = ["nice", "-n", "-12"] if os.geteuid() == 0 else []


@dataclass
class Costs:
    """What the rules take at `moment`; `processor` is what the process took for so many evaluations of each group."""

    moment: float
    processor: float
    evaluations: dict[str, float]
    rules: list[dict[str, Any]] = field(default_factory=list)

    def factor(self) -> float:
        """Return how many times what its queries take an evaluation takes."""
        return self.processor / sum(times * self.queries(group) for group, times in self.evaluations.items())

    def queries(self, group: str) -> float:
        """Return the processor seconds of the queries of a group."""
        return sum(float(rule["seconds"]) for rule in self.rules if rule["group"] == group)

    def seconds(self, group: str) -> float:
        """Return the processor seconds of an evaluation of a group."""
        return self.factor() * self.queries(group)

    def dearest(self) -> float:
        """Return the share of its interval that an evaluation of the dearest group takes."""
        groups = {str(rule["group"]): float(rule["interval"]) for rule in self.rules}
        return max(self.seconds(group) / interval for group, interval in groups.items())

    def is_within(self, share: float) -> bool:
        """Return whether all groups together take no more than a share of the cores, and each of its own interval."""
        return self.share() <= _CORES * share and self.dearest() <= share

    def share(self) -> float:
        """Return the processor seconds that all groups take in a second."""
        factor = self.factor()
        return sum(factor * float(rule["seconds"]) / float(rule["interval"]) for rule in self.rules)


@dataclass
class Measured:
    """A size with its costs; `idle` is what scrapes take of a second. None: not seen in time."""

    runs: int
    has_nodes: bool
    series: int
    idle: float = 0.0
    calm: Costs | None = None
    storm: Costs | None = None
    memory: int = 0
    reading: float = 0.0  # of one series, seconds

    def __str__(self) -> str:
        return f"{self.runs:,} nodes and runs" if self.has_nodes else f"{self.runs:,} runs on one exporter"


class Prometheus:
    """A running one, without rules at first."""

    def __init__(self, url: str, pid: int, folder: Path, jobs: list[dict[str, Any]]) -> None:
        self._url, self._pid, self._folder, self._jobs = url, pid, folder, jobs

    def load(self, *, rules: bool, scrapes: bool) -> None:
        """Begin or cease to evaluate the rules of the bundle and to scrape."""
        files = ["rules/recording/*.yml", "rules/alerts/*.yml"] if rules else []
        configuration = {"rule_files": files, "scrape_configs": self._jobs if scrapes else []}
        (self._folder / "prometheus.yml").write_text(json.dumps(configuration))
        os.kill(self._pid, signal.SIGHUP)

    def costs(self, idle: float) -> Costs:
        """Watch the evaluations of some time, again and again; return the median."""
        found = [self._costs(idle) for _ in range(_TIMES)]
        return sorted(found, key=lambda each: each.processor / sum(each.evaluations.values()))[_TIMES // 2]

    def _costs(self, idle: float) -> Costs:
        began, processor, before = time.monotonic(), self.processor_seconds(), self._evaluations()
        time.sleep(_SECONDS)
        lasted, processor = time.monotonic() - began, self.processor_seconds() - processor
        evaluations = {group: times - before[group] for group, times in self._evaluations().items()}
        return Costs(time.time() - 1, processor - idle * lasted, evaluations)

    def idle(self) -> float:
        """Return the processor time that is taken in a second."""
        began, processor = time.monotonic(), self.processor_seconds()
        time.sleep(_SCRAPE_SECONDS)
        return (self.processor_seconds() - processor) / (time.monotonic() - began)

    def come_to_rest(self) -> None:
        """Wait until nothing is left to do: series that are no longer scraped are marked as stale minutes later."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while time.monotonic() < deadline:
            began, processor = time.monotonic(), self.processor_seconds()
            time.sleep(10)
            if (self.processor_seconds() - processor) / (time.monotonic() - began) < _AT_REST:
                return

    def rules(self) -> list[dict[str, Any]]:
        """Return all rules, each with the name and interval of its group."""
        groups = json.loads(self._text("/api/v1/rules"))["data"]["groups"]
        return [
            {**rule, "group": group["name"], "interval": group["interval"]}
            for group in groups
            for rule in group["rules"]
        ]

    def ask(self, rules: list[dict[str, Any]], moment: float) -> list[dict[str, Any]]:
        """Return the rules with the samples that each reads at a moment, and the processor seconds that it takes."""
        found = []
        for rule in rules:
            samples, seconds = self.query_costs(rule["query"], moment)
            found.append({**rule, "samples": samples, "seconds": seconds})
        return found

    def query_costs(self, query: str, moment: float) -> tuple[int, float]:
        """Return the samples that a query reads at a moment, and the processor seconds that it takes."""
        taken = []
        for _ in range(_TIMES):
            before = self.processor_seconds()
            samples = self._query(f"count({query}\n)", moment)["stats"]["samples"]["totalQueryableSamples"]
            taken.append(self.processor_seconds() - before)
        return samples, min(taken)

    def _evaluations(self) -> dict[str, float]:
        text = self._text("/metrics")
        rules = {group: float(count) for group, count in _RULES.findall(text)}
        return {group: float(count) / rules[group] for group, count in _EVALUATIONS.findall(text) if rules.get(group)}

    def processor_seconds(self) -> float:
        """Return the processor time that the process has taken."""
        tasks = Path(f"/proc/{self._pid}/task").glob("*/schedstat")
        return sum(int(task.read_text().split()[0]) for task in tasks) / 1e9

    def memory(self) -> int:
        """Return its resident memory in bytes."""
        return int(Path(f"/proc/{self._pid}/statm").read_text().split()[1]) * _PAGE

    def count(self, expression: str) -> int:
        """Return how many series an expression has."""
        found = self._query(f"count({expression})")["result"]
        return int(found[0]["value"][1]) if found else 0

    def _query(self, expression: str, moment: float | None = None) -> Any:
        at = {} if moment is None else {"time": f"{moment:.3f}"}
        query = urllib.parse.urlencode({"query": expression, "stats": "all", **at})
        return json.loads(self._text(f"/api/v1/query?{query}"))["data"]

    def _text(self, path: str) -> str:
        return HttpClient(self._url, timeout=120, max_body=2**29).get(path).body.decode()


def measure() -> list[Table]:
    """Measure one size after the other, calm and in a storm."""
    found = [_measure(int(size.removeprefix("head:")), has_nodes=not size.startswith("head:")) for size in _SIZES]
    tables = [_shares(found)]
    whole = sorted((each for each in found if each.calm is not None), key=lambda each: (each.has_nodes, each.runs))
    if whole and whole[-1].has_nodes:
        _write_every_rule(whole[-1])
    return [*tables, _groups(whole[-1]), _rules(whole[-1])] if whole else tables


def _measure(runs: int, *, has_nodes: bool) -> Measured:
    fleet = Fleet(runs, has_nodes)
    found = Measured(runs, has_nodes, fleet.series())
    with serving(fleet) as address, prometheus(address) as server:
        try:
            _wait_for(server, *(("gpu_up", 8 * runs) if has_nodes else ("training_run_info", runs)))
            found.idle = server.idle()
            server.load(rules=True, scrapes=True)
            for recording in (*_LAST, *(_LAST_OF_NODES if has_nodes else ())):
                _wait_for(server, recording, runs)
            found.calm = server.costs(found.idle)
            found.memory, rules = server.memory(), server.rules()
            stalled = min(_STALLED, runs)
            fleet.stall(stalled)
            time.sleep(STALL_SECONDS)
            _wait_for(server, 'ALERTS{alertname="TrainRunStalled",alertstate="firing"}', stalled)
            time.sleep(_SCRAPE_SECONDS)
            found.storm = server.costs(found.idle)
        except TimeoutError as error:
            print(f"{found}: {error}", file=sys.stderr)
        server.load(rules=False, scrapes=False)
        server.come_to_rest()
        if found.calm is not None:
            samples, seconds = server.query_costs("training_step", found.calm.moment)
            found.reading = seconds / samples
        for costs in (found.calm, found.storm):
            if costs is not None:
                costs.rules = server.ask(rules, costs.moment)
    return found


def _shares(found: list[Measured]) -> Table:
    columns = [
        "fleet",
        "series",
        f"calm, all groups, of {_CORES} cores",
        "of each run",
        "dearest group",
        "target",
        f"{_STALLED} stalled, all groups, of {_CORES} cores",
        "dearest group",
        "target",
        "scrapes, of a core",
        "reading a series",
        "memory",
    ]
    rows = []
    for each in found:
        row = [str(each), f"{each.series:,}"]
        if each.calm is None:
            rows.append([*row, "not finished", *[""] * (len(columns) - 3)])
            continue
        row += [f"{each.calm.share() / _CORES:.1%}", f"{1e6 * each.calm.share() / each.runs:.0f} µs/s"]
        row += [f"{each.calm.dearest():.1%}", verdict(each.calm.is_within(_CALM_SHARE))]
        if each.storm is None:
            row += ["not finished", "", ""]
        else:
            row += [f"{each.storm.share() / _CORES:.1%}", f"{each.storm.dearest():.1%}"]
            row.append(verdict(each.storm.is_within(_STORM_SHARE)))
        rows.append([*row, f"{each.idle:.1%}", f"{1e6 * each.reading:.1f} µs", f"{each.memory / 2**20:,.0f} MiB"])
    note = (
        f"All groups: their processor time, the sum of their shares of their intervals, as a share of {_CORES} cores. "
        f"Targets: all groups together, and each of its own interval, at most {_CALM_SHARE:.0%} in calm and "
        f"{_STORM_SHARE:.0%} while {_STALLED} runs (or all) stall. Scrapes: what Prometheus takes without rules for "
        f"the series that the rules read. The median of {_TIMES} times {_SECONDS:.0f} s. Reading a series: what a "
        "query of a metric takes for each, to compare machines by."
    )
    return Table(columns, rows, note)


def _groups(largest: Measured) -> Table:
    watched = [costs for costs in (largest.calm, largest.storm) if costs is not None]
    rules = watched[0].rules
    rows = []
    groups = {rule["group"]: rule["interval"] for rule in rules}
    for group, interval in sorted(groups.items(), key=lambda each: (each[1], each[0])):
        samples = sum(rule["samples"] for rule in rules if rule["group"] == group)
        row = [f"`{group}`", f"{interval:.0f} s", f"{samples:,}"]
        for costs in watched:
            seconds = costs.seconds(group)
            row += [f"{1e3 * seconds:.0f} ms", f"{seconds / interval:.1%}"]
        rows.append(row)
    columns = ["group", "every", "samples", "calm", "share", f"{_STALLED} stalled", "share"][: 3 + 2 * len(watched)]
    factors = " and ".join(f"{costs.factor():.2f}" for costs in watched)
    note = (
        f"Of {largest}: samples that its queries read, and processor time of one evaluation, "
        f"{factors} times that of its queries."
    )
    return Table(columns, rows, note)


def _rules(largest: Measured) -> Table:
    rules = [] if largest.calm is None else largest.calm.rules
    dearest = sorted(rules, key=lambda rule: -rule["seconds"] / rule["interval"])[:_DEAREST]
    rows = []
    for rule in dearest:
        kinds = rule["labels"].values() if rule["type"] == "recording" and "labels" in rule else []
        name = " ".join([f"`{rule['name']}`", *kinds])
        rows.append([name, f"{rule['interval']:.0f} s", f"{rule['samples']:,}", f"{1e3 * rule['seconds']:.0f} ms"])
    note = f"The dearest of {len(rules)} rules, calm, with {largest}: samples and processor time of one query."
    return Table(["rule", "every", "samples", "query"], rows, note)


def _write_every_rule(largest: Measured) -> None:
    """Write what one query of each rule reads and takes, in the order of the rule files."""
    columns = ["nodes and runs", "group", "interval (s)", "rule", "labels", "samples", "query (ms)"]
    with _EVERY_RULE.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file, lineterminator="\n")
        lines.writerow(columns)
        for rule in [] if largest.calm is None else largest.calm.rules:
            fixed = rule["labels"] if rule["type"] == "recording" and "labels" in rule else {}
            labels = " ".join(f"{name}={text}" for name, text in sorted(fixed.items()))
            row = [largest.runs, rule["group"], f"{rule['interval']:.0f}", rule["name"], labels, rule["samples"]]
            lines.writerow([*row, f"{1e3 * rule['seconds']:.2f}"])


def _wait_for(server: Prometheus, expression: str, series: int) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while (found := server.count(expression)) < series:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{expression} has {found} series and not {series} after {_PATIENCE_SECONDS:.0f} s")
        time.sleep(2)


@contextmanager
def prometheus(address: str) -> Iterator[Prometheus]:
    """Run Prometheus; it scrapes runs every 5 s, all else every 30 s."""
    port = free_port()
    jobs = [
        {
            "job_name": name, "metrics_path": f"/{name}", "honor_labels": True,
            "scrape_interval": f"{seconds}s", "scrape_timeout": f"{seconds}s",
            "static_configs": [{"targets": [address]}],
        }
        for name, seconds in (("runs", 5), ("rest", int(_SCRAPE_SECONDS)))
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write(Rules(_VALUES), "prometheus", folder / "rules")
        (folder / "prometheus.yml").write_text(json.dumps({"scrape_configs": jobs}))
        command = [
            *_COMMAND,
            str(find_tools().prometheus),
            f"--config.file={folder / 'prometheus.yml'}",
            f"--storage.tsdb.path={folder / 'data'}",
            f"--web.listen-address=127.0.0.1:{port}",
        ]
        log = folder / "prometheus.log"
        process = service.start("prometheus", command, log=log, environment=dict(os.environ), folder=folder)
        try:
            process.wait_for(f"http://127.0.0.1:{port}/-/ready")
            yield Prometheus(f"http://127.0.0.1:{port}", process.process.pid, folder, jobs)
        finally:
            process.stop()
