"""The log of the kernel that runs these tests, read by the command."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until
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
    assert [line.sequence for line in lines] == sorted({line.sequence for line in lines})
    assert all(line.logged >= 0 and line.text for line in lines[:1])
    assert log.lost == 0
    log.close()


def test_the_command_exports_this_kernels_events(readable: None) -> None:
    text = page()
    assert 'trainwarden_collector_success{collector="kernel"} 1.0' in text
    assert 'kernel_events_total{event="hung_task"}' in text
    assert 'kernel_log_info{source="kmsg"} 1.0' in text


def test_the_command_reads_a_log_elsewhere_and_goes_on_where_another_ended(tmp_path: Path) -> None:
    (tmp_path / "dev").mkdir()
    log = tmp_path / "dev/kmsg"
    log.write_text("6,4,1000000,-;Linux\n")
    flags = (f"--path.rootfs={tmp_path}", f"--path.state={tmp_path / 'state'}")
    port_file = tmp_path / "port"
    service = subprocess.Popen(
        [*COMMAND[:3], *COMMAND[4:], *flags, "--web.listen-address=127.0.0.1:0", f"--web.port-file={port_file}"]
    )
    try:
        wait_until(lambda: list(tmp_path.glob("state/node-*/kernel.json")), "the state")
    finally:
        service.terminate()
        service.wait(60)
    with log.open("a") as file:
        file.write(
            "3,5,2000000,-;NVRM: Xid (PCI:0000:18:00): 48, pid=12, DBE\n SUBSYSTEM=pci\n"
            "6,9,3000000,-;mlx5_core 0000:5e:00.0 ens1f0np0: Link down\n"
        )
    for _ in range(2):  # --once leaves the state of the service as it is
        text = page(*flags)
        assert 'kernel_events_total{event="xid"} 1.0' in text
        assert 'kernel_events_total{event="link_down"} 1.0' in text
        assert "kernel_log_lines_lost_total 3.0" in text
