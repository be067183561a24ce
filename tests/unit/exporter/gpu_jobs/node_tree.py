"""A node with GPUs, made of folders."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from trainwarden_exporter.collectors.gpu.roster import NodeRoster
from trainwarden_exporter.collectors.gpu_jobs.collector import GpuJobsCollector
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.core.node import Node

# In the order of the PCI bus; the device files are numbered otherwise, as on some machines they are.
MINORS = (2, 3, 0, 1)


def uuid(index: int) -> str:
    """The UUID of the GPU that NVML counts as `index`."""
    return f"GPU-{index}0000000-1111-2222-3333-444444444444"


class NodeTree:
    """Its /proc and /sys, and the collector that looks at them."""

    def __init__(self, folder: Path, gpus: int = 4) -> None:
        self.procfs, self.sysfs, self.files = folder / "proc", folder / "sys", folder / "files"
        self.rootfs = folder / "root"
        for path in (self.procfs, self.sysfs, self.files, self.rootfs / "etc"):
            path.mkdir(parents=True)
        (self.rootfs / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nalice:x:1000:1000::/home/alice:/bin/sh\n")
        for index in range(gpus):
            self.gpu(index)

    def gpu(self, index: int) -> Path:
        """Let there be a GPU; its folder."""
        folder = self.procfs / f"driver/nvidia/gpus/0000:{index + 0x9D:02x}:00.0"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "information").write_text(
            f"Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 20\nGPU UUID: \t {uuid(index)}\n"
            f"Video BIOS: \t 96.00.30.00.01\nBus Location: \t {folder.name}\nDevice Minor: \t {MINORS[index]}\n"
        )
        return folder

    def process(
        self,
        pid: int,
        cgroup: str = "/",
        devices: tuple[int, ...] = (),
        *,
        uid: int = 1000,
        parent: int = 1,
        title: str = "python",
        **environment: str,
    ) -> Path:
        """Let there be a process with these GPUs open; its folder."""
        folder = self.procfs / str(pid)
        (folder / "fd").mkdir(parents=True)
        (folder / "cgroup").write_text(f"0::{cgroup}\n")
        (folder / "cmdline").write_text(f"{title}\0")
        (folder / "status").write_text(f"Name:\tx\nPPid:\t{parent}\nUid:\t{uid}\t0\t0\t0\n")
        (folder / "environ").write_bytes(b"".join(f"{key}={text}\0".encode() for key, text in environment.items()))
        for number, minor in enumerate(devices):
            (folder / "fd" / str(number)).symlink_to(f"/dev/nvidia{minor}")
        return folder

    def slurmstepd(self, pid: int, step: str, *, uid: int = 0) -> None:
        """Let there be the process by which slurmd runs a step, such as `4711.0`."""
        self.process(pid, "/system.slice/slurmd.service", uid=uid, title=f"slurmstepd: [{step}]")

    def device_group(self, path: str, minors: tuple[int, ...]) -> Path:
        """Let there be a device control group of version 1; its list."""
        file = self.sysfs / "fs/cgroup/devices/slurm" / path / "devices.list"
        file.parent.mkdir(parents=True)
        file.write_text("c 1:3 rwm\nc 195:255 rw\n" + "".join(f"c 195:{minor} rwm\n" for minor in minors))
        return file

    def collector(self, files: bool = True, owners: Mapping[str, int] | None = None) -> GpuJobsCollector:
        """A collector that looks here; `owners`: the users of the runs that have a record."""
        node = Node("n1", self.sysfs, self.procfs, self.rootfs)
        folder = self.files if files else None
        return GpuJobsCollector(node, folder, NodeRoster(), NodeRoster(), lambda: owners or {})

    def page(self, owners: Mapping[str, int] | None = None) -> set[str]:
        """The samples of a new collector."""
        return samples(self.collector(owners=owners))


def samples(collector: GpuJobsCollector) -> set[str]:
    """The samples of a collector, without their values where these are 1."""
    page = encode_text(collector.collect()).decode()
    return {line.removesuffix(" 1.0") for line in page.splitlines() if not line.startswith("#")}


def job(index: int, job_id: str, step: str = "", user: str = "", *, partition: str = "", run: str = "") -> str:
    """The sample that says that the GPU `index` works for a job."""
    return (
        f'slurm_gpu_job_info{{gpu="{index}",uuid="{uuid(index)}",job_id="{job_id}",step_id="{step}",'
        f'user="{user}",partition="{partition}",run_id="{run}"}}'
    )


def training(index: int, run: str) -> str:
    """The sample that says that the GPU `index` works for a run."""
    return f'training_gpu_info{{run_id="{run}",gpu="{index}",uuid="{uuid(index)}"}}'


def jobs_of(page: set[str]) -> set[str]:
    """What a page says of jobs and runs."""
    return {line for line in page if not line.startswith("trainwarden_")}
