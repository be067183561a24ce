"""A node with AMD GPUs that do as they are told: a tree of sysfs, and a script for the stand-in of amdsmi."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

PACKAGE = Path(__file__).with_name("amdsmi")


class AmdMachine:
    """Eight MI300X, all well.

    Args:
        folder: where its files are put.
        gpus: how many it has.
    """

    def __init__(self, folder: Path, gpus: int = 8) -> None:
        self.sysfs = folder / "sys"
        self._script_path = folder / "amdsmi.json"
        self.addresses = [f"0000:{5 + 0x20 * index:02x}:00.0" for index in range(gpus)]
        found = [{"bdf": bus, "uuid": uuid(index)} for index, bus in enumerate(self.addresses)]
        self._script: dict[str, Any] = {"gpus": found, "library": "ok", "missing": [], "faults": [], "answers": []}
        (self.sysfs / "bus/pci/devices").mkdir(parents=True)
        for bus in self.addresses:
            self.plug_in(bus)
        self._write()

    def environment(self) -> dict[str, str]:
        """Return what the exporter's environment must be for its child to call the stand-in."""
        path = os.pathsep.join([str(PACKAGE), *filter(None, [os.environ.get("PYTHONPATH")])])
        return {**os.environ, "PYTHONPATH": path, "FAKE_AMDSMI_SCRIPT": str(self._script_path)}

    def flags(self) -> list[str]:
        """Return the flags with which the exporter sees this node."""
        return [f"--path.sysfs={self.sysfs}", f"--path.state={self.sysfs.parent / 'state'}"]

    def page(self, *flags: str) -> str:
        """Return what the exporter's process prints once, with only the collectors that `flags` name and `amd`."""
        collectors = ("--collector.disable-defaults", "--collector.amd")
        ended = subprocess.run(
            [sys.executable, "-m", "trainwarden_exporter", "--once", *self.flags(), *collectors, *flags],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
            env=self.environment(),
        )
        assert ended.returncode == 0, ended.stderr
        return ended.stdout

    def asked(self) -> list[str]:
        """Return what the stand-in was asked: function and index of the GPU, `-` where it is about none."""
        path = self._script_path.with_suffix(".asked")
        # The stand-in may be writing the next line.
        return path.read_text().rpartition("\n")[0].splitlines() if path.exists() else []

    def library(self, does: str | int) -> None:
        """Let amdsmi_init be ok, hang ("hangs"), fail with a code; or the library be "absent"."""
        self._script["library"] = does
        self._write()

    def fault(self, function: str, do: str | int, gpu: int | None = None) -> None:
        """Let a function ("*": all) of a GPU (None: of all) "hang", "wait", "raise", or fail with a code."""
        self._script["faults"].append({"gpu": gpu, "function": function, "do": do})
        self._write()

    def heal(self) -> None:
        """Let all GPUs be well again, and say what such say."""
        self._script["faults"], self._script["answers"] = [], []
        self._write()

    def answer(self, function: str, answer: Any, gpu: int | None = None) -> None:
        """Let a function answer something else."""
        self._script["answers"].append({"gpu": gpu, "function": function, "answer": answer})
        self._write()

    def without(self, *functions: str) -> None:
        """Be a version that does not have these functions."""
        self._script["missing"].extend(functions)
        self._write()

    def hide(self, gpu: int) -> None:
        """Let amdsmi not find a GPU that is on the bus."""
        self._script["gpus"][gpu]["found"] = False
        self._write()

    def partition(self, gpu: int, count: int) -> None:
        """Split a GPU: the partitions after the first are on the bus for amdsmi alone."""
        whole = self._script["gpus"][gpu]
        base = whole["bdf"].rpartition(".")[0]
        split = [{**whole, "bdf": f"{base}.{part}", "uuid": f"{part:x}{whole['uuid'][1:]}"} for part in range(count)]
        self._script["gpus"][gpu : gpu + 1] = split
        self._write()

    def add(self, bus: str) -> None:
        """Put one more GPU on the bus, that amdsmi finds as well."""
        self.plug_in(bus)
        self._script["gpus"].append({"bdf": bus, "uuid": uuid(len(self._script["gpus"]))})
        self._write()

    def plug_in(self, bus: str) -> None:
        """Put a GPU on the PCI bus."""
        device = self.sysfs / "bus/pci/devices" / bus
        (device / "power").mkdir(parents=True)
        (device / "vendor").write_text("0x1002\n")
        (device / "class").write_text("0x120000\n")
        self.power(bus, "active")

    def power(self, bus: str, status: str) -> None:
        """Let the kernel say "active" or "suspended" of a GPU."""
        (self.sysfs / "bus/pci/devices" / bus / "power/runtime_status").write_text(f"{status}\n")

    def _write(self) -> None:
        # Read by another process meanwhile.
        draft = self._script_path.with_suffix(".draft")
        draft.write_text(json.dumps(self._script))
        draft.replace(self._script_path)


def uuid(index: int) -> str:
    """Return what the GPU of this index keeps for ever."""
    return f"{0xA1 + index:02x}ff74a1-0000-1000-80e9-1c2d3e4f5a{index:02x}"
