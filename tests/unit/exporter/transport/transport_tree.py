"""A node with runs whose logs say what NCCL uses, and the collectors that look at it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.nodes.tree import NodeTree
from tests.unit.exporter.runs_tree import HOST, RunsTree, samples_of
from trainwarden_exporter.collectors.logs.collector import LogsCollector, LogSettings
from trainwarden_exporter.collectors.transport.collector import TransportCollector
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.core.node import Node
from trainwarden_exporter.core.shared_state import SharedState

if TYPE_CHECKING:
    from pathlib import Path

    from trainwarden.signals.tailing.template import Template

LATEST = "logs/training_log_latest.txt"
KEY = "local:77-1:0"


def nccl(text: str, pid: int = 100, host: str = HOST) -> str:
    """A line as NCCL prints it."""
    return f"{host}:{pid}:{pid + 7} [{pid % 8}] NCCL INFO {text}\n"


def efa(pid: int = 100, host: str = HOST) -> str:
    return nccl("NET/OFI Selected Provider is efa (found 32 nics)", pid, host) + nccl(
        "Using network AWS Libfabric", pid, host
    )


def socket(pid: int = 100, host: str = HOST) -> str:
    return (
        nccl("NET/IB : No device found.", pid, host)
        + nccl("NET/Socket : Using [0]eth0:10.0.0.1<0>", pid, host)
        + nccl("Using network Socket", pid, host)
    )


class TransportTree:
    """`look` samples all three collectors; `samples` are those of the collector of networks."""

    def __init__(self, folder: Path, templates: tuple[Template, ...] = (), **settings: Any) -> None:
        self.node = NodeTree(folder / "node")
        self.shared = SharedState()
        self.runs = RunsTree(folder / "runs", self.shared, logs_followed=True)
        pack = folder / "pack.yaml"
        pack.write_text("log_signals: [{name: never, pattern: never}]\n")
        roots = (str(folder / "runs"), *(template.root for template in templates))
        self.settings = LogSettings(
            **{"pack": str(pack), "templates": templates, "roots": roots, "host": HOST, **settings}
        )
        self.logs = LogsCollector(
            self.shared, self.settings, None, now=self.runs.wall, monotonic=lambda: self.runs.now, timeout=1.0
        )
        self.collector = self.new_collector()
        self.samples: dict[str, dict[frozenset[tuple[str, str]], float]] = {}

    def new_collector(self, **options: Any) -> TransportCollector:
        node = Node(HOST, self.node.sysfs, self.node.procfs, self.node.rootfs)
        return TransportCollector(self.shared, node, now=lambda: self.runs.now, **options)

    def add_efa(self) -> None:
        self.node.pci("0000:4f:00.0", "0x1d0f", "0xefa2", "0x020000", 0)
        self.node.rdma("rdmap79s0", "0000:4f:00.0", firmware="1")

    def add_ib(self) -> None:
        self.node.pci("0000:50:00.0", "0x15b3", "0x1021", "0x020700", 0)
        self.node.rdma("mlx5_0", "0000:50:00.0", firmware="1")

    def write(self, run_id: str, text: str | bytes, name: str = LATEST) -> Path:
        """Append to a log."""
        path = self.runs.path / run_id / name
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("ab") as file:
            file.write(text.encode() if isinstance(text, str) else text)
        return path

    def environ(self, pid: int, *variables: str) -> None:
        """The environment of a process, as procfs shows it."""
        folder = self.node.procfs / str(pid)
        folder.mkdir(exist_ok=True)
        (folder / "environ").write_bytes("\0".join((*variables, "")).encode())

    def look(self, seconds: float = 15.0) -> None:
        self.runs.now += seconds
        list(self.runs.collector.collect())
        list(self.logs.collect())
        self.samples = samples_of(encode_text(self.collector.collect()).decode())

    def used(self, run_id: str = "r") -> dict[tuple[str, str], float]:
        """How many processes use (transport, provider)."""
        found = {tuple(sorted(key)): n for key, n in self.samples.get("training_nccl_transport", {}).items()}
        return {
            (transport, provider): count
            for ((_, provider), (_, run), (_, transport)), count in found.items()
            if run == run_id
        }

    def ok(self, run_id: str = "r") -> float | None:
        return self.samples.get("training_nccl_transport_ok", {}).get(frozenset({("run_id", run_id)}))

    def requested(self) -> dict[str, float]:
        found = self.samples.get("training_nccl_transport_requested", {})
        return {dict(key)["transport"]: value for key, value in found.items()}

    def files(self, outcome: str) -> float:
        return self.samples["trainwarden_transport_files"][frozenset({("outcome", outcome)})]
