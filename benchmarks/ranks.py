"""What the signs of life of a thousand ranks ask of a metadata server, with a file for each rank and for each host."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path

from benchmarks.beating import Operations
from benchmarks.tables import Table, verdict
from trainwarden.record.folder import write_json
from trainwarden.record.rank import HostBeats, RankBeat, host_file, rank_file, read_ranks

HOSTS = 125
RANKS = 8
SECONDS = 60.0
# As Prometheus asks an exporter of each node.
_SCRAPE_SECONDS = 15.0
_KINDS = {"create": "opens that create", "open": "opens to read", "rename": "renames", "list": "lists", "stat": "stats"}
# Seconds of one metadata server for an operation: see the page.
_COST = {"create": 1 / 15_000, "rename": 1 / 15_000, "open": 1 / 400_000, "list": 1 / 400_000, "stat": 1 / 400_000}
_TARGET = RANKS * 0.8


def measure() -> list[Table]:
    """Both ways, on one host that is not rank 0's, multiplied by the hosts; and what reading them takes."""
    writing = [_of_all_hosts(_write({"TRAINWARDEN_NODE_DIR": ""})), _of_all_hosts(_write({}))]
    reading = [_of_all_exporters(_read(shared=False)), _of_all_exporters(_read(shared=True))]
    columns = [f"{HOSTS * RANKS:,} ranks on {HOSTS} hosts, a second", "a file for each rank", "for each host", "ratio"]
    note = (
        f"Written: counted in {RANKS} processes for {SECONDS:.0f} s, times {HOSTS}. Read: its own ranks, by an "
        f"exporter on each host, every {_SCRAPE_SECONDS:.0f} s. Target: a ratio of {_TARGET:.1f} in what "
        "writing takes of the server."
    )
    return [
        Table([*columns, "target"], _rows("written", *writing, target=_TARGET) + _rows("read", *reading), note),
    ]


def _write(environment: dict[str, str]) -> Counter[str]:
    """Return the operations of one host's ranks in a second."""
    launcher = {"WORLD_SIZE": str(HOSTS * RANKS), "TRAINWARDEN_ATTEMPT_KEY": "local:1:0", **environment}
    with ExitStack() as stack:
        runs = stack.enter_context(tempfile.TemporaryDirectory())
        processes = []
        for rank in range(RANKS, 2 * RANKS):
            process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.beating", runs, str(SECONDS)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, **launcher, "RANK": str(rank)},
            )
            stack.callback(process.wait)
            stack.callback(process.kill)
            processes.append(process)
        # All begin to count before any of them ends.
        for expected in ("trains", None):
            answers = [process.stdout.readline() for process in processes if process.stdout]
            if expected:
                for process in processes:
                    print(file=process.stdin, flush=True)
        total: Counter[str] = Counter()
        for answer in answers:
            total.update(json.loads(answer))
    return Counter({kind: count / SECONDS for kind, count in total.items()})


def _read(*, shared: bool) -> Counter[str]:
    """Return the operations by which the exporter of one host reads its ranks once."""
    beats = [
        RankBeat(rank=rank, step=1, phase="train", status="running", time=time.time(), host=f"host{rank // RANKS}")
        for rank in range(HOSTS * RANKS)
    ]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "ranks").mkdir()
        for number in range(HOSTS):
            mine = tuple(beats[number * RANKS : (number + 1) * RANKS])
            if shared:
                write_json(Path(folder, host_file(f"host{number}", f"{number:08x}")), HostBeats(ranks=mine).to_json())
            for beat in () if shared else mine:
                write_json(Path(folder, rank_file(beat.rank)), beat.to_json())
        operations = Operations(folder)
        found = read_ranks(folder, host="host0")
        assert len(found) == (RANKS if shared else len(beats))  # noqa: S101  # else it is no measurement
        return Counter(operations.counts)


def _of_all_hosts(counts: Mapping[str, float]) -> dict[str, float]:
    return {kind: count * HOSTS for kind, count in counts.items()}


def _of_all_exporters(counts: Mapping[str, float]) -> dict[str, float]:
    return {kind: count * HOSTS / _SCRAPE_SECONDS for kind, count in counts.items()}


def _rows(
    done: str, before: Mapping[str, float], after: Mapping[str, float], *, target: float | None = None
) -> list[list[str]]:
    rows = []
    for kind, title in _KINDS.items():
        if before.get(kind) or after.get(kind):
            rows.append(_row(f"{done}: {title}", before.get(kind, 0.0), after.get(kind, 0.0), "{:,.0f}"))
    busy, less = _share(before), _share(after)
    last = _row(f"{done}: of one server's time", 100 * busy, 100 * less, "{:.3g} %")
    if target:
        last[-1] = verdict(busy >= target * less)
    return [*rows, last]


def _share(counts: Mapping[str, float]) -> float:
    return sum(_COST.get(kind, 0.0) * count for kind, count in counts.items())


def _row(title: str, before: float, after: float, form: str) -> list[str]:
    ratio = f"{before / after:.1f}" if after else ""
    return [title, form.format(before), form.format(after), ratio, ""]
