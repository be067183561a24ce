"""Which GPUs are on the bus."""

from __future__ import annotations

from pathlib import Path

from tests.cases import cases
from trainwarden_exporter.collectors.gpu.bus import AMD, NVIDIA, bus_address, gpus_on_bus


def put(sysfs: Path, address: str, vendor: str, kind: str, driver: str | None = None) -> None:
    device = sysfs / "bus/pci/devices" / address
    device.mkdir(parents=True)
    (device / "vendor").write_text(f"{vendor}\n")
    (device / "class").write_text(f"{kind}\n")
    if driver is not None:
        (device / "driver").symlink_to(f"../../drivers/{driver}")


def test_gpus_of_the_vendor_are_found_in_the_order_of_the_bus(tmp_path: Path) -> None:
    put(tmp_path, "0000:9b:00.0", "0x10de", "0x030200", "nvidia")
    put(tmp_path, "0000:3b:00.0", "0x10de", "0x030000")
    put(tmp_path, "0000:05:00.0", "0x10de", "0x068000")  # an NVSwitch
    put(tmp_path, "0000:06:00.0", "0x1d0f", "0x020000")
    put(tmp_path, "0000:07:00.0", "0x1002", "0x120000")
    assert gpus_on_bus(tmp_path, NVIDIA) == ["0000:3b:00.0", "0000:9b:00.0"]
    assert gpus_on_bus(tmp_path, AMD) == ["0000:07:00.0"]


def test_a_gpu_that_was_given_to_a_virtual_machine_is_not_ours(tmp_path: Path) -> None:
    put(tmp_path, "0000:3b:00.0", "0x10de", "0x030200", "vfio-pci")
    assert gpus_on_bus(tmp_path, NVIDIA) == []


def test_a_device_that_cannot_be_read_costs_no_other(tmp_path: Path) -> None:
    put(tmp_path, "0000:3b:00.0", "rubbish", "0x030200")
    (tmp_path / "bus/pci/devices/0000:3c:00.0").mkdir()
    put(tmp_path, "0000:3d:00.0", "0x10de", "0x030200")
    assert gpus_on_bus(tmp_path, NVIDIA) == ["0000:3d:00.0"]
    assert gpus_on_bus(tmp_path / "nothing", NVIDIA) == []


@cases(
    ("text", "address"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00", "0000:3b:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
        ("nonsense", None),
        ("", None),
    ],
)
def test_an_address_is_written_as_in_sysfs(text: str, address: str | None) -> None:
    assert bus_address(text) == address
