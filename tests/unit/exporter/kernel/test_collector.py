"""What the kernel's log becomes on the page."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from trainwarden_exporter.collectors.kernel.collector import KEPT_KILLS, RECENT_SECONDS, KernelCollector
from trainwarden_exporter.collectors.kernel.log import KernelLine, Kmsg
from trainwarden_exporter.core.exposition import encode_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

XID = "NVRM: Xid (PCI:0000:18:00): 48, pid=12, Double Bit ECC Error"


class Said:
    """A log that is told what it holds next."""

    def __init__(self, lost: int | None = 0) -> None:
        self.lost = lost
        self.next: Sequence[KernelLine] = ()

    def read(self) -> Sequence[KernelLine]:
        lines, self.next = self.next, ()
        return lines


def line(text: str, ago: float = 0.0) -> KernelLine:
    return KernelLine(1, time.monotonic() - ago, 3, text)


def page(collector: KernelCollector) -> dict[str, float]:
    text = encode_text(collector.collect()).decode()
    pairs = [each.rsplit(" ", 1) for each in text.splitlines() if not each.startswith("#")]
    return {name: float(value) for name, value in pairs}


def test_what_did_not_happen_is_zero_and_has_no_time() -> None:
    seen = page(KernelCollector(Said(), "kmsg"))
    assert seen['kernel_events_total{event="xid"}'] == 0
    assert not [name for name in seen if name.startswith("kernel_event_last")]
    assert seen['kernel_log_info{source="kmsg"}'] == 1


def test_each_event_is_counted_once_and_has_the_time_of_its_last() -> None:
    said = Said()
    collector = KernelCollector(said, "kmsg")
    said.next = [line(XID, ago=20), line("noise"), line(XID, ago=10)]
    page(collector)
    seen = page(collector)
    assert seen['kernel_events_total{event="xid"}'] == 2
    assert seen['kernel_event_last_timestamp_seconds{event="xid"}'] == pytest.approx(time.time() - 10, abs=9)


def test_what_happened_long_before_the_start_has_its_time_and_is_not_counted() -> None:
    """Else an exporter that is restarted after the ring lost some would seem to see new faults."""
    said = Said()
    collector = KernelCollector(said, "kmsg")
    said.next = [line(XID, ago=RECENT_SECONDS + 60)]
    seen = page(collector)
    assert seen['kernel_events_total{event="xid"}'] == 0
    assert seen['kernel_event_last_timestamp_seconds{event="xid"}'] < time.time() - RECENT_SECONDS


def test_an_oom_kill_names_its_process_and_job_and_only_so_many_are_kept() -> None:
    said = Said()
    collector = KernelCollector(said, "kmsg")
    said.next = [
        line("oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg=/job_9/step_0,task=train,pid=5,uid=1"),
        line("Memory cgroup out of memory: Killed process 5 (train) total-vm:1kB"),
        line("Memory cgroup out of memory: Killed process 6 (other) total-vm:1kB"),
    ]
    seen = page(collector)
    assert 'kernel_oom_kill_timestamp_seconds{process="train",job_id="9"}' in seen
    assert 'kernel_oom_kill_timestamp_seconds{process="other",job_id=""}' in seen
    assert seen['kernel_events_total{event="cgroup_oom_kill"}'] == 2
    said.next = [line(f"Out of memory: Killed process 7 (p{number}) total-vm:1kB") for number in range(20)]
    kills = [name for name in page(collector) if name.startswith("kernel_oom_kill_timestamp")]
    assert len(kills) == KEPT_KILLS
    assert 'kernel_oom_kill_timestamp_seconds{process="p19",job_id=""}' in kills


def test_a_process_whose_name_is_hostile_makes_one_quiet_label() -> None:
    said = Said()
    collector = KernelCollector(said, "kmsg")
    said.next = [line('Out of memory: Killed process 7 (a"\nb\x1b[31m) total-vm:1kB')]
    assert 'kernel_oom_kill_timestamp_seconds{process="a\\" b",job_id=""}' in page(collector)


def test_a_ring_that_is_not_given_all_at_once_is_read_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden_exporter.collectors.kernel.log.MAX_LINES", 2)
    path = tmp_path / "kmsg"
    path.write_text("".join(f"3,{number},{10**16},-;{XID}\n" for number in range(9)))
    monkeypatch.setattr("trainwarden_exporter.collectors.kernel.log._READ_BYTES", 100)
    assert page(KernelCollector(Kmsg(path), "kmsg"))['kernel_events_total{event="xid"}'] == 9


@pytest.mark.parametrize("lost", [None, 3])
def test_lost_lines_are_said_only_where_they_are_known(lost: int | None) -> None:
    assert page(KernelCollector(Said(lost), "journal")).get("kernel_log_lines_lost_total") == lost
