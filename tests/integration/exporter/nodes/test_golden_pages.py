"""The pages of whole nodes by the real command: two byte for byte, the others by their numbers of series.

`make golden` writes pages and numbers anew.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.nodes.drivers import environment
from tests.nodes.fixtures import NODES
from tests.unit.exporter.runs_tree import samples_of
from trainwarden.stack.binaries import Tools

GOLDEN = Path(__file__).parent / "golden"
COUNTS = GOLDEN / "series.json"
BYTE_FOR_BYTE = ("p5", "half_dead")
# What tells of the machine on which the test runs, or of runs, has golden pages and tests of its own.
OTHERS = ("runs", "logs", "transport", "process", "clock")
# Times, and what differs from one run of the same program to the next.
VOLATILE = re.compile(r"\w*(_timestamp_seconds|_age_seconds|_duration_seconds|driver_seconds_total)")
_LABELS = re.compile(r'((?:version|python)=")[^"]*')


def normalised(page: str) -> str:
    """The page with the series of each family in order, and 0 for what is never twice the same."""
    heads: list[str] = []
    families: dict[str, list[str]] = {}
    for line in page.splitlines():
        if line.startswith("#"):
            heads.append(line)
            families.setdefault(line.split()[2], [])
        else:
            name = re.split(r"[{ ]", line, maxsplit=1)[0]
            if VOLATILE.fullmatch(name):
                line = line.rpartition(" ")[0] + " 0"  # noqa: PLW2901  # the line as it is kept
            elif name == "trainwarden_build_info":
                line = _LABELS.sub(r"\1-", line)  # noqa: PLW2901  # as above
            families[heads[-1].split()[2]].append(line)
    lines = []
    for name, series in families.items():
        lines += [head for head in heads if head.split()[2] == name] + sorted(series)
    return "\n".join(lines) + "\n"


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What the command prints of each node, all asked at once."""
    roots = {name: tmp_path_factory.mktemp(name) for name in NODES}
    environments = {name: environment(name, root / "drivers") for name, root in roots.items()}
    running: dict[str, subprocess.Popen[str]] = {}
    try:
        for name, make in NODES.items():
            flags = [*make(roots[name] / "node").flags, *(f"--no-collector.{other}" for other in OTHERS)]
            command = [sys.executable, "-m", "trainwarden_exporter", "--once", "--instance-host=node1", *flags]
            pipe = subprocess.PIPE
            running[name] = subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, env=environments[name])
        return {name: _printed(process) for name, process in running.items()}
    finally:
        for process in running.values():
            process.kill()
            process.communicate()


def _printed(process: subprocess.Popen[str]) -> str:
    page, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    return page


@pytest.mark.parametrize("node", BYTE_FOR_BYTE)
def test_the_page_of_a_node_is_the_golden_one(pages: dict[str, str], node: str) -> None:
    golden = GOLDEN / f"{node}.prom"
    page = normalised(pages[node])
    if os.environ.get("UPDATE_GOLDEN"):
        golden.write_text(page, encoding="utf-8")
    assert page == golden.read_text(encoding="utf-8")


def test_the_other_nodes_have_as_many_series_of_each_metric_as_before(pages: dict[str, str]) -> None:
    counts = {node: series_of_each_metric(page) for node, page in pages.items() if node not in BYTE_FOR_BYTE}
    if os.environ.get("UPDATE_GOLDEN"):
        COUNTS.write_text(json.dumps(counts, indent=1, sort_keys=True) + "\n", encoding="utf-8")
    assert counts == json.loads(COUNTS.read_text(encoding="utf-8"))


def series_of_each_metric(page: str) -> dict[str, int]:
    return {name: len(samples) for name, samples in samples_of(page).items()}


@pytest.mark.parametrize("node", NODES)
def test_promtool_finds_nothing_wrong_with_the_page(pages: dict[str, str], tools: Tools, node: str) -> None:
    command = [str(tools.promtool), "check", "metrics"]
    checked = subprocess.run(command, check=False, input=pages[node], capture_output=True, text=True)
    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")


@pytest.mark.parametrize(
    ("node", "gpus", "efa", "infiniband"),
    [("p5", 8, 32, 0), ("p5en", 8, 16, 0), ("p4d", 8, 4, 0), ("mi300x", 8, 0, 8), ("no_gpu", 0, 0, 0)],
)
def test_a_healthy_node_shows_all_it_has(
    pages: dict[str, str], node: str, gpus: int, efa: int, infiniband: int
) -> None:
    samples = samples_of(pages[node])
    assert list(samples.get("gpu_up", {}).values()) == [1] * gpus
    assert list(samples.get("efa_port_up", {}).values()) == [1] * efa
    assert list(samples.get("infiniband_port_up", {}).values()) == [1] * infiniband
    assert set(samples["trainwarden_collector_success"].values()) == {1}
    assert samples.keys().isdisjoint({"trainwarden_collector_stuck"})


def test_a_half_dead_node_shows_what_is_wrong_and_all_that_is_not(pages: dict[str, str]) -> None:
    samples = samples_of(pages["half_dead"])

    def only(name: str) -> float:
        (value,) = samples[name].values()
        return value

    assert (only("efa_devices"), only("efa_devices_expected"), only("efa_node_ports_down")) == (29, 32, 1)
    assert sorted(samples["efa_read_errors_total"].values()) == [0] * 27 + [1, 1]
    assert len(samples["efa_tx_bytes_total"]) == 29
    assert (len(samples["efa_tx_packets_total"]), len(samples["efa_rx_bytes_total"])) == (28, 28)
    assert sorted(samples["gpu_up"].values()) == [0, 1, 1, 1, 1, 1, 1]
    assert (only("gpu_devices_visible"), only("gpu_devices_expected")) == (6, 8)
    assert len(samples["gpu_power_watts"]) == 6
