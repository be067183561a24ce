"""A node with scripted NVIDIA GPUs: the stand-in library, what it is to say, and the file systems around."""

from __future__ import annotations

import os
from pathlib import Path

from tests.devices.compiler import build_library

SOURCE = Path(__file__).with_name("nvml.c")
GIB = 2**30
Value = int | float | str
_built: dict[tuple[str, ...], Path] = {}

_COMMON: dict[str, Value] = {
    "serial": "1650923012345",
    "vbios": "96.00.89.00.01",
    "utilization": 98,
    "memory_busy": 41,
    "temperature": 52,
    "power": 512_345,
    "energy": 123_456_789,
    "reasons": 0x4,
    "clock.0": 1755,
    "clock.1": 1755,
    "clock.2": 2619,
    "clock.3": 1320,
    "replays": 0,
    "width": 16,
    "rows.corrected": 0,
    "mig": 0,
    "field.3": 0,
    "field.4": 0,
    "field.5": 2,
    "field.6": 0,
    "field.74": 1_500_000_000,
    "field.76": 0,
    "field.82": 61,
    "field.138": 4096,
    "field.139": 2048,
}
_HOPPER: dict[str, Value] = {
    **_COMMON,
    "driver": "570.133.20",
    "power_limit": 700_000,
    "margin": 35,
    "generation": 5,
    "links": 18,
    "field.161": 1,
    "field.162": 0,
    "field.163": 0,
    "field.230": 0,
    "field.269": 0,
    "field.270": 0,
    "field.271": 0,
    "fabric.state": 3,
    "fabric.status": 0,
    "memory_reserved": 600 * 2**20,
    "gpm": 1,
    "gpm.1": 97,
    "gpm.2": 91.5,
    "gpm.3": 40,
    "gpm.5": 62.5,
    "gpm.10": 55,
    "gpm.11": 0,
    "gpm.12": 7.5,
    "gpm.13": "nan",
    "gpm.20": 100,
    "gpm.21": 50,
    "gpm.60": 2048,
    "gpm.61": 4096,
}
_BLACKWELL: dict[str, Value] = {
    **{key: value for key, value in _HOPPER.items() if key not in ("field.138", "field.139")},
    **{f"field.{field}": 0 for field in (161, 162, 163, *range(206, 213), 214, 215, 219, 221)},
    "field.202": 1_000_000,
    "field.204": 500_000,
    "field.220": 15 << 8 | 255,
    "field.222": 15 << 8 | 255,
    "field.197": 7_000,
    "field.198": 9_000,
    "sram_exceeded": 0,
    "fabric.mask": 0x51AA,
    "fabric.summary": 1,
}
PRESETS: dict[str, dict[str, Value]] = {
    "h100": {**_HOPPER, "model": "NVIDIA H100 80GB HBM3", "memory": 80 * GIB, "memory_used": 71 * GIB},
    "h200": {**_HOPPER, "model": "NVIDIA H200", "memory": 140 * GIB, "memory_used": 120 * GIB},
    "b200": {**_BLACKWELL, "model": "NVIDIA B200", "memory": 180 * GIB, "memory_used": 150 * GIB},
    "a100": {
        **_COMMON,
        "driver": "550.144.03",
        "model": "NVIDIA A100-SXM4-40GB",
        "power": 312_000,
        "power_limit": 400_000,
        "generation": 4,
        "links": 12,
        "field.38": 0,
        "field.45": 0,
        "field.52": 0,
        "field.59": 0,
        "memory": 40 * GIB,
        "memory_used": 33 * GIB,
        "memory_reserved": 500 * 2**20,
    },
}


class FakeNvml:
    """GPUs that do what is said here, also while somebody asks them.

    Args:
        folder: an empty one, for all of it.
        absent: symbols that the library lacks, as one of an old driver does.
    """

    def __init__(self, folder: Path, *, absent: tuple[str, ...] = ()) -> None:
        self.folder = folder
        self.sysfs, self.procfs, self.rootfs = folder / "sys", folder / "proc", folder / "root"
        for path in (self.sysfs / "bus/pci/devices", self.procfs, self.rootfs / "dev"):
            path.mkdir(parents=True)
        self._script = folder / "nvml.script"
        self._log = folder / "nvml.log"
        self._lines: dict[str, Value] = {"count": 0}
        self._xids = 0
        self._library = _library(folder, absent)
        self._write()

    def gpus(self, count: int, preset: str = "h100", **values: Value) -> FakeNvml:
        """Put so many GPUs of a preset on the bus."""
        self._lines = {key: value for key, value in self._lines.items() if not key[0].isdigit()}
        self._lines |= {**PRESETS[preset], **values, "count": count}
        for gpu in range(count):
            self._lines[f"{gpu}.bus"] = self.bus(gpu)
            self._lines[f"{gpu}.uuid"] = self.uuid(gpu)
            self._lines[f"{gpu}.index"] = self._lines[f"{gpu}.minor"] = gpu
            self.on_bus(gpu)
        return self._write()

    def set(self, gpu: int | None = None, /, **values: Value | None) -> FakeNvml:
        """Say something of one GPU, or of all; None takes it back. Dots in keys are written `__`."""
        for name, value in values.items():
            key = name.replace("__", ".") if gpu is None else f"{gpu}.{name.replace('__', '.')}"
            if value is None:
                self._lines.pop(key, None)
            else:
                self._lines[key] = value
        return self._write()

    def unplug(self, gpu: int) -> FakeNvml:
        """Take a GPU from the bus and from the driver."""
        return self.on_bus(gpu, there=False).set(gpu, bus=None, lost=1)

    def plug_in(self, gpu: int, **values: Value) -> FakeNvml:
        """Put a GPU back to its slot, or another one that has other values."""
        return self.on_bus(gpu).set(gpu, **{"bus": self.bus(gpu), "lost": None, **values})

    def lose(self, gpu: int) -> FakeNvml:
        """Let a GPU answer everything with GPU_IS_LOST."""
        return self.set(gpu, lost=1)

    def hang(self, gpu: int | None, call: str) -> FakeNvml:
        """Let a call never return."""
        return self.set(gpu, **{f"hang.{call}": 1})

    def slow(self, gpu: int | None, call: str, milliseconds: int) -> FakeNvml:
        """Let a call take its time."""
        return self.set(gpu, **{f"slow.{call}": milliseconds})

    def returns(self, gpu: int | None, call: str, code: int | None) -> FakeNvml:
        """Let a call return a code; None: as before."""
        return self.set(gpu, **{f"return.{call}": code})

    def xid(self, gpu: int, code: int) -> FakeNvml:
        """Tell whoever listens of an error."""
        self._xids += 1
        return self.set(**{f"xid.{self._xids}": f"{gpu} {code}"})

    def mig(self, gpu: int, *profiles: str) -> FakeNvml:
        """Divide a GPU."""
        self.set(gpu, mig=1)
        for place, profile in enumerate(profiles):
            name = f"{self._lines['model']} MIG {profile}"
            uuid = f"MIG-{gpu:04x}{place:04x}-0000-4000-8000-000000000000"
            memory = {"memory": 10 * GIB, "memory_used": (place + 1) * GIB, "memory_reserved": GIB // 4}
            activity: dict[str, Value] = {"gpm.2": 20 * (place + 1), "gpm.3": 10, "gpm.5": 5 * (place + 1)}
            activity["gpm.10"] = "nan"
            values: dict[str, Value] = {"name": name, "uuid": uuid, **memory, **activity}
            self.set(gpu, **{f"mig.{place}.{key}": value for key, value in values.items()})
        return self

    def on_bus(self, gpu: int, *, there: bool = True) -> FakeNvml:
        """Show a GPU on the PCI bus, or take it from there."""
        device = self.sysfs / "bus/pci/devices" / self.bus(gpu)
        if there:
            device.mkdir(exist_ok=True)
            (device / "vendor").write_text("0x10de\n")
            (device / "class").write_text("0x030200\n")
        else:
            for file in device.iterdir():
                file.unlink()
            device.rmdir()
        return self

    def instance_type(self, name: str) -> FakeNvml:
        """Say what the firmware calls the machine."""
        folder = self.sysfs / "class/dmi/id"
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "product_name").write_text(f"{name}\n")
        return self

    def kernel_says(self, *lines: str, boot_seconds: float = 1.0) -> FakeNvml:
        """Append lines to the kernel's log, as /dev/kmsg gives them."""
        path = self.rootfs / "dev/kmsg"
        first = len(path.read_text().splitlines()) if path.exists() else 0
        with path.open("a") as file:
            for number, line in enumerate(lines, first):
                file.write(f"3,{number},{int(boot_seconds * 1e6)},-;{line}\n")
        return self

    @staticmethod
    def bus(gpu: int) -> str:
        return f"0000:{0x3B + gpu:02x}:00.0"

    @staticmethod
    def uuid(gpu: int) -> str:
        return f"GPU-{gpu:08x}-0000-4000-8000-000000000000"

    def environment(self) -> dict[str, str]:
        """Return the environment in which the real wrapper finds the stand-in."""
        return {
            **os.environ,
            "LD_LIBRARY_PATH": str(self._library.parent),
            "FAKE_NVML_SCRIPT": str(self._script),
            "FAKE_NVML_LOG": str(self._log),
        }

    def flags(self) -> list[str]:
        """Return the flags that make an exporter look at this node, and at its NVIDIA GPUs alone."""
        return [
            f"--path.sysfs={self.sysfs}",
            f"--path.procfs={self.procfs}",
            f"--path.rootfs={self.rootfs}",
            f"--path.state={self.folder / 'state'}",
            "--collector.disable-defaults",
            "--collector.nvidia",
        ]

    def calls(self) -> list[tuple[int, str]]:
        """Return what was done with the library: process and init, shutdown, open, events, no events."""
        if not self._log.exists():
            return []
        complete = self._log.read_text().rpartition("\n")[0]  # the library may be writing the next line
        lines = (line.partition(" ") for line in complete.splitlines())
        return [(int(process), what) for process, _, what in lines]

    def _write(self) -> FakeNvml:
        new = self._script.with_suffix(".new")
        new.write_text("".join(f"{key} {value}\n" for key, value in self._lines.items()))
        new.replace(self._script)
        return self


def _library(folder: Path, absent: tuple[str, ...]) -> Path:
    """Build the library once for all tests of this process."""
    library = _built.get(absent)
    if library is None or not library.exists():
        definitions = [f"{symbol}=absent_{symbol}" for symbol in absent]
        library = _built[absent] = build_library(SOURCE, folder / "lib/libnvidia-ml.so.1", *definitions)
    return library
