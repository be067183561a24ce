"""EFA devices as drivers of several versions show them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from tests.nodes.tree import NodeTree

_BASE = [
    "tx_bytes",
    "tx_pkts",
    "rx_bytes",
    "rx_pkts",
    "rx_drops",
    "send_bytes",
    "send_wrs",
    "recv_bytes",
    "recv_wrs",
    "rdma_read_wrs",
    "rdma_read_bytes",
    "rdma_read_wr_err",
    "rdma_read_resp_bytes",
]
_WRITES = ["rdma_write_wrs", "rdma_write_bytes", "rdma_write_wr_err", "rdma_write_recv_bytes"]
_RETRANSMITS = [
    "retrans_bytes",
    "retrans_pkts",
    "retrans_timeout_events",
    "unresponsive_remote_events",
    "impaired_remote_conn_events",
]
_DEVICE = [
    "submitted_cmds",
    "completed_cmds",
    "cmds_err",
    "no_completion_cmds",
    "keep_alive_rcvd",
    "alloc_pd_err",
    "create_qp_err",
    "create_cq_err",
    "reg_mr_err",
    "alloc_ucontext_err",
    "create_ah_err",
    "mmap_err",
]
# What only a broken device counts, or hardly more.
_RARE = ("_err", "drops", "retrans", "_events", "no_completion")


def add_efa(tree: NodeTree, address: str, place: int, *, device_id: str, numa: int, driver: str) -> Path:
    """Add the EFA device of a PCI address, named as systemd names it; returns its folder."""
    bus, slot = int(address[5:7], 16), int(address[8:10], 16)
    tree.pci(address, "0x1d0f", device_id, "0x020000", numa)
    folder = tree.rdma(f"rdmap{bus}s{slot}", address, firmware="0.0.0.0")
    version = tuple(int(part) for part in driver.rstrip("g").split("."))
    port = [*_BASE, *(_WRITES if version >= (2, 5) else []), *(_RETRANSMITS if version >= (2, 17) else [])]
    own = _values(_DEVICE, place, 1000)
    if version < (1, 14):  # one folder for all
        tree.counters(folder / "ports/1/hw_counters", {**_values(port, place, 10**9), **own, "lifespan": 12})
    else:
        tree.counters(folder / "ports/1/hw_counters", {**_values(port, place, 10**9), "lifespan": 12})
        tree.counters(folder / "hw_counters", {**own, "lifespan": 12})
    return folder


def _values(names: list[str], place: int, scale: int) -> dict[str, int]:
    """Another number for each counter of each device, so that none can be taken for another."""
    return {
        name: (place if any(part in name for part in _RARE) else scale * (place + 1) + 7 * number)
        for number, name in enumerate(names)
    }
