"""Exporters as processes, over one runs folder and one prefix."""

from __future__ import annotations

import os
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.exporter.s3.prefix import Prefix, Samples, metadata, of, progress
from tests.unit.exporter.runs_tree import samples_of
from tests.waiting import wait_until
from trainwarden.record.folder import write_json

Start = Callable[..., Callable[[], Samples]]


@pytest.fixture
def start(prefix: Prefix, tmp_path: Path) -> Iterator[Start]:
    """Starts an exporter of a host; returns what gets its page."""
    processes: list[subprocess.Popen[bytes]] = []
    prefix.runs.mkdir()

    def run(host: str, *flags: str) -> Callable[[], Samples]:
        port = tmp_path / f"port-{len(processes)}"
        command = [
            sys.executable, "-m", "trainwarden_exporter", "--collector.disable-defaults", "--collector.runs",
            "--collector.s3", f"--collector.s3.url={prefix.store.url}", "--collector.s3.interval=200ms",
            f"--collector.s3.cache={tmp_path / f'cache-{len(processes)}'}", f"--collector.runs.path={prefix.runs}",
            "--collector.runs.interval=100ms", f"--instance-host={host}", "--web.listen-address=127.0.0.1:0",
            f"--web.port-file={port}", "--collector.s3.read-timeout=2s", "--collector.s3.timeout=10s", *flags,
        ]  # fmt: skip
        processes.append(subprocess.Popen(command))
        wait_until(port.exists)
        return lambda: page(port.read_text().strip())

    yield run
    for process in processes:
        process.terminate()
    for process in processes:
        process.wait(30)


def page(address: str) -> Samples:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as answer:
        return samples_of(answer.read().decode())


def test_two_exporters_over_one_folder_and_one_prefix_export_no_series_twice(prefix: Prefix, start: Start) -> None:
    for run_id, host in (("both", "node1"), ("other", "node2")):
        prefix.run(run_id, host=host)
        (prefix.runs / run_id / "ranks").mkdir(parents=True)
        write_json(prefix.runs / run_id / "metadata.json", metadata(run_id, host=host))
        write_json(prefix.runs / run_id / "progress.json", progress(step=9))
    prefix.run("away", host="node2")
    first, second = start("node1"), start("node2")

    def looked(get: Callable[[], Samples]) -> bool:
        return any(dict(labels)["outcome"] == "copied" and found == 3 for labels, found in
                   get().get("trainwarden_s3_runs", {}).items())  # fmt: skip

    wait_until(lambda: looked(first) and looked(second))
    wait_until(lambda: of(first(), "training_step", run_id="both") is not None)
    wait_until(lambda: of(second(), "training_step", run_id="away") == 7)
    told = [
        {
            (name, labels)
            for name, found in get().items()
            if name.startswith("training_") and "_duration_" not in name
            for labels in found
        }
        for get in (first, second)
    ]
    assert {dict(labels)["run_id"] for _, labels in told[0]} == {"both"}
    assert {dict(labels)["run_id"] for _, labels in told[1]} == {"other", "away"}
    assert not told[0] & told[1]


def test_a_black_hole_costs_the_page_nothing(prefix: Prefix, start: Start) -> None:
    prefix.run()
    get = start("node1")
    wait_until(lambda: of(get(), "training_step", run_id="r") == 7)
    prefix.server.fault = "black hole"
    labels = {"bucket": prefix.store.bucket, "prefix": "training-runs"}
    wait_until(lambda: of(get(), "trainwarden_s3_up", **labels) == 0)
    wait_until(lambda: of(get(), "trainwarden_collector_success", collector="runs") == 1)
    found = get()
    assert of(found, "training_step", run_id="r") == 7
    assert of(found, "trainwarden_collector_success", collector="s3") == 1
    assert of(found, "trainwarden_s3_errors_total", **labels, reason="unreachable")


def test_the_bucket_of_the_environment_is_copied_without_any_flag(prefix: Prefix, tmp_path: Path) -> None:
    prefix.run()
    prefix.runs.mkdir()
    environment = {
        **os.environ, "MONITORING_BUCKET": prefix.store.bucket, "MONITORING_REGION": "us-east-1",
        "STATE_DIRECTORY": str(tmp_path / "state"),
    }  # fmt: skip
    command = [sys.executable, "-m", "trainwarden_exporter", f"--collector.runs.path={prefix.runs}", "--once"]
    command += ["--instance-host=node1", *(f"--no-collector.{name}" for name in ("nvidia", "amd", "logs", "kernel"))]
    ended = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60, env=environment)
    assert (ended.returncode, ended.stderr) == (0, "")
    labels = {"bucket": prefix.store.bucket, "prefix": "training-runs"}
    assert of(samples_of(ended.stdout), "trainwarden_s3_up", **labels) == 1
    assert of(samples_of(ended.stdout), "training_step", run_id="r") == 7
