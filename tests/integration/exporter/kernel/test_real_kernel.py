"""The log of the kernel that runs these tests, read by the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from trainwarden_exporter.collectors.kernel.log import Kmsg

KMSG = Path("/dev/kmsg")
COMMAND = (sys.executable, "-m", "trainwarden_exporter", "--once", "--collector.disable-defaults", "--collector.kernel")


@pytest.fixture
def readable() -> None:
    try:
        os.close(os.open(KMSG, os.O_RDONLY | os.O_NONBLOCK))
    except OSError as error:
        pytest.skip(f"{KMSG}: {error}")


def page(*flags: str) -> str:
    return subprocess.run([*COMMAND, *flags], capture_output=True, text=True, check=True, timeout=60).stdout


def test_the_ring_of_this_kernel_is_read_to_its_end_and_in_order(readable: None) -> None:
    log = Kmsg(KMSG)
    lines = log.read()
    assert lines, "a kernel that boots says something"
    assert [line.sequence for line in lines] == list(range(lines[0].sequence, lines[-1].sequence + 1))
    assert all(line.boot_seconds >= 0 and line.text for line in lines[:1])
    assert log.lost == 0
    log.close()


def test_the_command_exports_this_kernels_events(readable: None) -> None:
    text = page()
    assert 'trainwarden_collector_success{collector="kernel"} 1.0' in text
    assert 'kernel_events_total{event="hung_task"}' in text
    assert 'kernel_log_info{source="kmsg"} 1.0' in text


def test_the_command_reads_a_log_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    # Said in the far future, which is now at most: new.
    late = 10**16
    (tmp_path / "dev/kmsg").write_text(
        f"3,5,{late},-;NVRM: Xid (PCI:0000:18:00): 48, pid=12, DBE\n SUBSYSTEM=pci\n"
        f"6,9,{late},-;mlx5_core 0000:5e:00.0 ens1f0np0: Link down\n"
    )
    text = page(f"--path.rootfs={tmp_path}")
    assert 'kernel_events_total{event="xid"} 1.0' in text
    assert 'kernel_events_total{event="link_down"} 1.0' in text
    assert "kernel_log_lines_lost_total 3.0" in text
