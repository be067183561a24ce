"""The real command beside scripted GPUs."""

from __future__ import annotations

import signal
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Protocol

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.devices.nvml import FakeNvml
from tests.integration.exporter.running import children
from tests.waiting import wait_until

COMMAND = (sys.executable, "-m", "trainwarden_exporter")
QUICK = ("--collector.nvidia.interval=200ms", "--collector.nvidia.timeout=2s", "--collector.nvidia.slow-interval=300ms")
Page = dict[str, float]


def parsed(text: str) -> Page:
    """Return the series of a page, each written `name{label=value,…}` without the uuid."""
    found: Page = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            labels = ",".join(f"{name}={value}" for name, value in sample.labels.items() if name != "uuid")
            found[f"{sample.name}{{{labels}}}"] = sample.value
    return found


def once(node: FakeNvml, *flags: str) -> Page:
    """Return the page of `--once`."""
    ended = subprocess.run(
        [*COMMAND, "--once", *node.flags(), *flags],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
        env=node.environment(),
    )
    assert ended.returncode == 0, ended.stderr
    return parsed(ended.stdout)


class Node(Protocol):
    """Where an exporter finds GPUs."""

    def flags(self) -> list[str]: ...

    def environment(self) -> dict[str, str]: ...


class Exporter:
    """One that serves, until `end`."""

    def __init__(self, node: Node, folder: Path, *flags: str) -> None:
        port_file = folder / "port"
        where = ("--web.listen-address=127.0.0.1:0", f"--web.port-file={port_file}")
        self.process = subprocess.Popen(
            [*COMMAND, *node.flags(), *QUICK, *flags, *where],
            stderr=subprocess.PIPE,
            text=True,
            env=node.environment(),
        )
        wait_until(lambda: port_file.exists() or self.process.poll() is not None)
        assert self.process.poll() is None, self.process.communicate()[1]
        self.address = port_file.read_text().strip()

    def text(self) -> str:
        with urllib.request.urlopen(f"http://{self.address}/metrics", timeout=30) as response:
            return str(response.read().decode())

    def page(self) -> Page:
        return parsed(self.text())

    def children(self) -> list[int]:
        return children(self.process.pid)

    def end(self) -> tuple[int, str]:
        """Tell it to end; returns its status and what it logged."""
        self.process.send_signal(signal.SIGTERM)
        _, errors = self.process.communicate(timeout=60)
        return self.process.returncode, errors


@pytest.fixture
def node(tmp_path: Path) -> FakeNvml:
    """A node without GPUs yet."""
    return FakeNvml(tmp_path / "node")


@pytest.fixture
def serve(tmp_path: Path) -> Iterator[Callable[..., Exporter]]:
    """Starts an exporter beside a node; it is ended after the test, and must not hang."""
    started: list[Exporter] = []

    def run(node: FakeNvml, *flags: str) -> Exporter:
        started.append(Exporter(node, tmp_path, *flags))
        return started[-1]

    yield run
    for exporter in started:
        if exporter.process.poll() is None:
            exporter.end()
