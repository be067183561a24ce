"""Every collector there is. What belongs to one is in a room of its own, whose `wiring` says how it is set up."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, cast

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from trainwarden_exporter.logs.board import Board
    from trainwarden_exporter.node import Node
    from trainwarden_exporter.sampling.part import Member


@dataclass(frozen=True)
class Kind:
    """One collector: what it exports, by default its cadence and its deadline, and what has to be there for it."""

    name: str
    help: str
    interval: str
    timeout: str
    needs: str = ""  # empty: nothing, or somebody who asks for it by name

    @property
    def flag(self) -> str:
        """The flag that switches it on; those that only it has begin with it."""
        return f"--collector.{self.name.replace('_', '-')}"

    @property
    def wiring(self) -> Wiring:
        """How it is set up."""
        return cast("Wiring", importlib.import_module(f"trainwarden_exporter.{self.name}.wiring"))


class Wiring(Protocol):
    """The module `wiring` of a collector's room. It imports the collector itself only when it is asked for a member."""

    def add_flags(self, parser: argparse.ArgumentParser) -> None:
        """Add the flags that only this collector has, each named `--collector.NAME.…`."""

    def present(self, node: Node, flags: Mapping[str, Any]) -> bool:
        """Tell whether there is something here for it: then it is on unless switched off. Quick, and never raises."""

    def member(self, node: Node, flags: Mapping[str, Any], board: Board | None) -> Member:
        """Return what samples it; raises `UsageError` if what the flags say cannot be done."""


# In this order they are set up and stand on the page.
KINDS = (
    Kind("s3", "the records of runs in S3", "20s", "60s"),
    Kind("runs", "the records of runs", "2s", "10s"),
    Kind("logs", "the logs of runs", "2s", "30s", "the collector runs, and PyYAML"),
    Kind("transport", "which network NCCL uses for each run", "15s", "30s", "the collectors runs and logs"),
    Kind("nvidia", "NVIDIA GPUs", "5s", "10s", "an NVIDIA GPU on the PCI bus, or --expect.gpus"),
    Kind("amd", "AMD GPUs", "5s", "10s", "an AMD GPU on the PCI bus, or /dev/kfd"),
    Kind("gpu_jobs", "which job each GPU works for", "5s", "10s", "a GPU"),
    Kind("efa", "EFA devices", "5s", "5s", "an EFA device, or --expect.efa-devices"),
    Kind("infiniband", "RDMA devices other than EFA", "15s", "5s", "an RDMA device other than EFA"),
    Kind("kernel", "what the kernel says of faults", "5s", "5s", "/dev/kmsg or the journal, readable"),
    Kind("clock", "how far the clock is off", "15s", "5s"),
    Kind("slurm", "jobs and nodes of a SLURM cluster", "30s", "20s"),
    Kind("ray", "jobs and resources of a Ray cluster", "15s", "10s"),
    Kind("process", "what the exporter itself costs", "15s", "5s"),
)
