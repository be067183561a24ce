"""The nodes whose pages are kept: what hardware they have and what is wrong with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.nodes.efa_devices import add_efa
from tests.nodes.tree import EFA_DRIVER, NodeTree

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

NVIDIA, AMD, MELLANOX = "0x10de", "0x1002", "0x15b3"
P5_GPUS = tuple(f"0000:{bus}:00.0" for bus in ("53", "64", "75", "86", "97", "a8", "b9", "ca"))
P4D_GPUS = tuple(f"0000:{bus}:{slot}.0" for bus in ("10", "20", "90", "a0") for slot in ("1c", "1d"))
MI300X_GPUS = tuple(f"0000:{5 + 0x20 * place:02x}:00.0" for place in range(8))


def p5(root: Path) -> NodeTree:
    """p5.48xlarge: 8 H100, 32 EFA, four to a GPU, a driver that tells of retransmits."""
    return _hopper(root, "p5.48xlarge", gpu="0x2330", per_gpu=4, efa="0xefa2", driver="2.17.2g")


def p5en(root: Path) -> NodeTree:
    """p5en.48xlarge: 8 H200, 16 EFA."""
    return _hopper(root, "p5en.48xlarge", gpu="0x2335", per_gpu=2, efa="0xefa3", driver="2.13.0g")


def p4d(root: Path) -> NodeTree:
    """p4d.24xlarge: 8 A100, 4 EFA whose driver keeps all counters in one folder and knows of no RDMA writes."""
    tree = NodeTree(root)
    tree.product("p4d.24xlarge")
    tree.write(EFA_DRIVER, "1.13.0")
    for place, address in enumerate(P4D_GPUS):
        tree.pci(address, NVIDIA, "0x20b0", "0x030200", place // 4)
    for place, bus in enumerate(("10", "20", "90", "a0")):
        add_efa(tree, f"0000:{bus}:1b.0", place, device_id="0xefa0", numa=place // 2, driver="1.13.0")
    tree.kernel_log("efa 0000:10:1b.0: Setup irq:63 name:efa-mgmnt@pci:0000:10:1b.0")
    return tree


def mi300x(root: Path) -> NodeTree:
    """8 MI300X, a ConnectX-7 beside each."""
    tree = NodeTree(root)
    tree.product("AS -8125GS-TNMR2")
    for place, address in enumerate(MI300X_GPUS):
        tree.pci(address, AMD, "0x74a1", "0x120000", place // 4)
        nic = f"0000:{int(address[5:7], 16) + 4:02x}:00.0"
        tree.pci(nic, MELLANOX, "0x1021", "0x020700", place // 4)
        folder = tree.rdma(f"mlx5_{place}", nic, firmware="28.39.1002", rate="400 Gb/sec (4X NDR)")
        (folder / "hca_type").write_text("MT4129\n")
        tree.counters(folder / "ports/1/counters", _mellanox(place))
    tree.kernel_log("amdgpu 0000:05:00.0: amdgpu: SMU is initialized successfully!")
    return tree


def no_gpu(root: Path) -> NodeTree:
    """A node with a network card and a disk, as a head node has them."""
    tree = NodeTree(root)
    tree.product("m7i.4xlarge")
    tree.pci("0000:00:04.0", "0x1d0f", "0x8061", "0x010802", 0)
    tree.pci("0000:00:05.0", "0x1d0f", "0xec20", "0x020000", 0)
    tree.kernel_log("ena 0000:00:05.0: Elastic Network Adapter (ENA) found")
    return tree


def half_dead(root: Path) -> NodeTree:
    """The p5 with a GPU off the bus, three EFA devices missing, a port down, a counter unreadable and one garbage.

    The GPU that is lost and still on the bus is lost to its driver alone: see the device list of the fake driver.
    """
    tree = p5(root)
    tree.remove_pci(P5_GPUS[6])
    names = sorted(path.name for path in (tree.sysfs / "class/infiniband").iterdir())
    for name in names[3:6]:
        tree.remove_rdma(name)
    down, unreadable, garbage = (tree.sysfs / "class/infiniband" / name / "ports/1" for name in names[:3])
    (down / "state").write_text("1: DOWN\n")
    (down / "phys_state").write_text("3: Disabled\n")
    (unreadable / "hw_counters/tx_pkts").unlink()
    (unreadable / "hw_counters/tx_pkts").mkdir()
    (garbage / "hw_counters/rx_bytes").write_bytes(b"\xff\xfe\x00junk")
    tree.kernel_log(
        "NVRM: Xid (PCI:0000:b9:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
        "infiniband rdmap79s0: port 1 is down",
    )
    return tree


NODES: dict[str, Callable[[Path], NodeTree]] = {
    node.__name__: node for node in (p5, p5en, p4d, mi300x, no_gpu, half_dead)
}


def _hopper(root: Path, product: str, *, gpu: str, per_gpu: int, efa: str, driver: str) -> NodeTree:
    tree = NodeTree(root)
    tree.product(product)
    tree.write(EFA_DRIVER, driver)
    for place, address in enumerate(P5_GPUS):
        tree.pci(address, NVIDIA, gpu, "0x030200", place // 4)
        first = int(address[5:7], 16) - per_gpu
        for number in range(per_gpu):
            add_efa(
                tree,
                f"0000:{first + number:02x}:00.0",
                place * per_gpu + number,
                device_id=efa,
                numa=place // 4,
                driver=driver,
            )
    for number in range(4):  # NVSwitches are no GPUs
        tree.pci(f"0000:0{number + 1}:00.0", NVIDIA, "0x22a3", "0x068000", 0)
    tree.pci("0000:00:05.0", "0x1d0f", "0xec20", "0x020000", 0)
    tree.kernel_log("NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.124.06")
    return tree


def _mellanox(place: int) -> dict[str, int]:
    names = [
        "port_xmit_data",
        "port_rcv_data",
        "port_xmit_packets",
        "port_rcv_packets",
        "symbol_error",
        "link_downed",
        "link_error_recovery",
        "port_rcv_errors",
        "port_xmit_discards",
        "port_xmit_wait",
        "multicast_rcv_packets",
    ]
    return {
        name: 10**9 * (place + 1) + number if "xmit_" in name or "rcv_" in name else place
        for number, name in enumerate(names)
    }
