"""What a call of `run.step()` costs the loop, against other ways to say the same."""

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from benchmarks.rounds import median_ratio, take_turns
from benchmarks.tables import Table, verdict

ROUNDS = 20
CALLS = 1_000_000
# A thousand calls each round are enough to know what takes forty times as long.
_FEWER = {"json": CALLS // 20}
_TITLES = {
    "folder": "`run.step()`, to a folder",
    "s3": "`run.step()`, to a folder and a black-holed S3",
    "gauge": "`prometheus_client`, one gauge set",
    "gauges": "`prometheus_client`, a gauge for each of the five values",
    "json": "a JSON file of the same values, replaced",
    "empty": "an empty function: what timing costs",
}
_MEDIAN_TARGET_NS = 5_000
_TAIL_TARGET_NS = 50_000


class Stepping:
    """A process that makes the calls of one case when asked."""

    def __init__(self, case: str, folder: Path, environment: dict[str, str]) -> None:
        self._calls = _FEWER.get(case, CALLS) // ROUNDS
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.stepping", case, str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **environment},
        )

    def turn(self) -> float:
        """Make one round's calls; the median of what one took, in nanoseconds."""
        assert self._process.stdin is not None  # noqa: S101  # it was asked for
        self._process.stdin.write(f"{self._calls}\n")
        self._process.stdin.flush()
        return float(self._answer()["median_ns"])

    def sum_up(self) -> dict[str, Any]:
        """What all calls took, once the process has ended."""
        assert self._process.stdin is not None  # noqa: S101  # it was asked for
        self._process.stdin.close()
        answer = self._answer()
        self._process.wait()
        return answer

    def kill(self) -> None:
        """Let nothing behind, whatever happened."""
        self._process.kill()
        self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None  # noqa: S101  # it was asked for
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer


@contextmanager
def black_hole() -> Iterator[dict[str, str]]:
    """The environment of a process whose S3 takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
        yield {
            "TRAINWARDEN_S3_URL": "s3://nowhere/runs",
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{server.getsockname()[1]}",
            "AWS_ACCESS_KEY_ID": "none",
            "AWS_SECRET_ACCESS_KEY": "none",
            "AWS_DEFAULT_REGION": "us-east-1",
        }


def measure() -> list[Table]:
    """All cases, in turns."""
    with ExitStack() as stack:
        hole = stack.enter_context(black_hole())
        processes = {}
        for case in _TITLES:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            processes[case] = Stepping(case, folder, hole if case == "s3" else {})
            stack.callback(processes[case].kill)
        medians = take_turns({case: process.turn for case, process in processes.items()}, ROUNDS)
        sums = {case: process.sum_up() for case, process in processes.items()}
    return [_table(medians, sums)]


def _table(medians: dict[str, list[float]], sums: dict[str, dict[str, Any]]) -> Table:
    rows = []
    for case, title in _TITLES.items():
        one = sums[case]
        times = [f"{one[name] / 1000:.2f}" for name in ("p50_ns", "p99_ns", "p999_ns", "max_ns")]
        ratio = f"{median_ratio(medians[case], medians['folder']):.2f}"
        target = verdict(_is_met(case, one)) if case in {"folder", "s3"} else ""
        rows.append([title, f"{one['calls']:,}", *times, ratio, target])
    columns = ["", "calls", "median µs", "p99 µs", "p99.9 µs", "longest µs", "ratio", "target"]
    return Table(columns, rows, _note(sums))


def _is_met(case: str, one: dict[str, Any]) -> bool:
    is_quick = one["p50_ns"] < _MEDIAN_TARGET_NS and one["p999_ns"] < _TAIL_TARGET_NS
    is_whole = (one["steps_completed"], one["status"]) == (one["calls"], "succeeded")
    # Without a copy that tries and fails, nothing was shown.
    return is_quick and is_whole and (case != "s3" or bool(one["s3"]))


def _note(sums: dict[str, dict[str, Any]]) -> str:
    kept = {case: f"{sums[case]['steps_completed']:,} of {sums[case]['calls']:,}" for case in ("folder", "s3")}
    s3 = sums["s3"]["s3"] or {}
    return (
        "Ratio: the median against `run.step()` to a folder. Steps in the record at the end: "
        f"{kept['folder']} (folder), {kept['s3']} (S3 black-holed; its record counts {s3.get('errors', 'no')} errors "
        f"of S3, and the run took {sums['s3']['end_seconds']:.1f} s to end)."
    )
