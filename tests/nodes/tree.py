"""A node's sysfs, procfs and root as folders and links, laid out as the kernel does it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

EFA_DRIVER = "module/efa/version"


class NodeTree:
    """`sysfs`, `procfs` and `rootfs` below a folder, empty at first."""

    def __init__(self, root: Path) -> None:
        self.sysfs = root / "sys"
        self.procfs = root / "proc"
        self.rootfs = root / "root"
        for folder in ("bus/pci/devices", "class/infiniband"):
            (self.sysfs / folder).mkdir(parents=True)
        self.procfs.mkdir()
        self.rootfs.mkdir()

    @property
    def flags(self) -> list[str]:
        """The flags by which the exporter looks here."""
        folders = {
            "sysfs": self.sysfs,
            "procfs": self.procfs,
            "rootfs": self.rootfs,
            "state": self.sysfs.parent / "state",
        }
        return [f"--path.{name}={folder}" for name, folder in folders.items()]

    def write(self, path: str, text: str | bytes) -> Path:
        """Write a file of sysfs."""
        file = self.sysfs / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(text if isinstance(text, bytes) else f"{text}\n".encode())
        return file

    def product(self, name: str) -> None:
        """What the firmware calls the machine."""
        self.write("class/dmi/id/product_name", name)
        self.write("class/dmi/id/sys_vendor", "Amazon EC2" if ".48xlarge" in name or ".24xlarge" in name else "Maker")

    def kernel_log(self, *lines: str) -> None:
        """Records of /dev/kmsg: priority, number, microseconds, text."""
        (self.rootfs / "dev").mkdir(exist_ok=True)
        records = [f"{3 if 'Xid' in line else 6},{10 + n},{5_000_000 + n},-;{line}\n" for n, line in enumerate(lines)]
        (self.rootfs / "dev/kmsg").write_text("".join(records))

    def pci(self, address: str, vendor: str, device: str, kind: str, numa: int) -> Path:
        """A function on the PCI bus; `kind` is its class."""
        place = f"devices/pci0000:00/{address}"
        for name, text in (("vendor", vendor), ("device", device), ("class", kind), ("numa_node", str(numa))):
            self.write(f"{place}/{name}", text)
        _link(self.sysfs / "bus/pci/devices" / address, self.sysfs / place)
        return self.sysfs / place

    def rdma(
        self, name: str, address: str, *, firmware: str, ports: int = 1, rate: str = "100 Gb/sec (4X EDR)"
    ) -> Path:
        """An RDMA device of a PCI function, with ports that are up and no counters; returns its folder."""
        behind = self.sysfs / f"devices/pci0000:00/{address}"
        folder = behind / "infiniband" / name
        place = str(folder.relative_to(self.sysfs))
        self.write(f"{place}/fw_ver", firmware)
        for port in range(1, ports + 1):
            for file, text in (("state", "4: ACTIVE"), ("phys_state", "5: LinkUp"), ("rate", rate)):
                self.write(f"{place}/ports/{port}/{file}", text)
        _link(folder / "device", behind)
        _link(self.sysfs / "class/infiniband" / name, folder)
        return folder

    def counters(self, folder: Path, values: dict[str, int]) -> None:
        """Write counters into a folder."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, value in values.items():
            (folder / name).write_text(f"{value}\n")

    def remove_rdma(self, name: str) -> None:
        """Take an RDMA device away, as a driver does that lets go of it."""
        link = self.sysfs / "class/infiniband" / name
        folder = link.resolve()
        link.unlink()
        shutil.rmtree(folder)

    def remove_pci(self, address: str) -> None:
        """Take a function off the bus."""
        link = self.sysfs / "bus/pci/devices" / address
        folder = link.resolve()
        link.unlink()
        shutil.rmtree(folder)


def _link(link: Path, target: Path) -> None:
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(target, link.parent))
