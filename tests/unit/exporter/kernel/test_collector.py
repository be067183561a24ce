"""What the kernel's log becomes on the page."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from tests.cases import cases
from tests.nodes.kmsg import KmsgFile
from trainwarden_exporter.collectors.kernel.collector import KEPT_KILLS, KernelCollector
from trainwarden_exporter.collectors.kernel.log import Journal, Kmsg
from trainwarden_exporter.core.exposition import encode_text
from trainwarden_exporter.core.state_file import StateFile

if TYPE_CHECKING:
    from pathlib import Path

XID = "NVRM: Xid (PCI:0000:18:00): 48, pid=12, Double Bit ECC Error"
SLURM = "/system.slice/slurmstepd.scope"


class Log(KmsgFile):
    """A kernel's log, and the collectors of one exporter after another that read it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.state = StateFile(folder / "state" / "kernel.json")

    def collector(self, boot_id: str = "boot-1") -> KernelCollector:
        return KernelCollector(Kmsg(self.path), "kmsg", self.state, boot_id)


@pytest.fixture
def log(tmp_path: Path) -> Log:
    return Log(tmp_path)


def page(collector: KernelCollector) -> dict[str, float]:
    text = encode_text(collector.collect()).decode()
    pairs = [each.rsplit(" ", 1) for each in text.splitlines() if not each.startswith("#")]
    return {name: float(value) for name, value in pairs}


def xids(collector: KernelCollector) -> float:
    return page(collector)['kernel_events_total{event="xid"}']


def test_what_did_not_happen_is_zero_and_has_no_time(log: Log) -> None:
    seen = page(log.collector())
    assert seen['kernel_events_total{event="xid"}'] == 0
    assert not [name for name in seen if name.startswith("kernel_event_last")]
    assert seen['kernel_log_info{source="kmsg"}'] == 1


def test_each_event_is_counted_once_and_has_the_time_of_its_last(log: Log) -> None:
    collector = log.collector()
    page(collector)
    for text in (XID, "noise", XID):
        log.append(text)
    page(collector)
    seen = page(collector)
    assert seen['kernel_events_total{event="xid"}'] == 2
    assert seen['kernel_event_last_timestamp_seconds{event="xid"}'] == pytest.approx(time.time(), abs=60)


@pytest.mark.parametrize("ago", [0.0, 100.0])
def test_what_the_log_held_at_the_first_start_has_its_time_and_is_not_counted(log: Log, ago: float) -> None:
    """However short ago: `increase` cannot tell a counter that begins at 13 from one that fell back to it."""
    log.append(XID, ago=ago)
    begun = time.time()
    seen = page(log.collector())
    assert seen['kernel_events_total{event="xid"}'] == 0
    assert seen['kernel_event_last_timestamp_seconds{event="xid"}'] == pytest.approx(begun - ago, abs=60)
    assert seen["kernel_events_since_timestamp_seconds"] >= begun


def test_a_restarted_exporter_goes_on_counting_and_counts_nothing_twice(log: Log) -> None:
    first = log.collector()
    page(first)
    for _ in range(13):
        log.append(XID)
    before = page(first)
    assert before['kernel_events_total{event="xid"}'] == 13
    log.append(XID)  # while no exporter runs; the one before was killed
    after = page(log.collector())
    assert after['kernel_events_total{event="xid"}'] == 14
    assert after["kernel_events_since_timestamp_seconds"] == before["kernel_events_since_timestamp_seconds"]
    assert after["kernel_log_lines_lost_total"] == 0


def test_lines_that_the_ring_dropped_while_no_exporter_ran_are_lost_and_the_counts_stay(log: Log) -> None:
    log.append("noise")
    first = log.collector()
    page(first)
    log.append(XID)
    page(first)
    log.sequence += 5
    log.path.write_text("")
    log.append(XID)
    after = page(log.collector())
    assert after['kernel_events_total{event="xid"}'] == 2
    assert after["kernel_log_lines_lost_total"] == 5


def test_after_a_reboot_every_line_is_new_and_the_counts_go_on(log: Log) -> None:
    first = log.collector()
    page(first)
    for _ in range(3):
        log.append(XID)
    page(first)
    log.path.write_text("")
    log.sequence = 0
    log.append(XID)
    assert xids(log.collector("boot-2")) == 4


def test_an_exporter_that_ends_knows_at_its_next_start_up_to_where_it_read(log: Log) -> None:
    first = log.collector()
    page(first)
    log.append(XID)
    page(first)
    for _ in range(4):
        log.append("noise")
    page(first)
    first.close()
    log.path.write_text("")  # the ring has dropped all of it
    log.append(XID)
    assert page(log.collector())["kernel_log_lines_lost_total"] == 0


def test_a_log_whose_numbers_are_behind_those_of_the_state_is_another_one(log: Log) -> None:
    """A machine that was restored from a snapshot has the same boot: its lines must not be taken for read ones."""
    first = log.collector()
    page(first)
    for _ in range(5):
        log.append("noise")
    log.append(XID)
    page(first)
    log.path.write_text("")
    log.sequence = 2
    log.append(XID)
    assert xids(log.collector()) == 2


INFINITE = (
    '{"version":1,"boot_id":"boot-1","since":1,"counts":{"xid":1e999},"last":{},"kills":[],"lost":0,"position":{}}'
)


@cases("stored", ["", "{", '{"version":1}', '{"version":1,"since":"x"}', '{"version":7}', "[]", INFINITE], log=Log)
def test_a_state_that_cannot_be_used_costs_the_counts_of_before_alone(log: Log, stored: str) -> None:
    assert log.state.path is not None
    log.state.path.parent.mkdir()
    log.state.path.write_text(stored)
    log.append(XID)
    collector = log.collector()
    assert xids(collector) == 0
    log.append(XID)
    assert xids(collector) == 1
    assert xids(log.collector()) == 1


def test_without_a_state_that_can_be_written_the_counts_begin_at_zero(log: Log, tmp_path: Path) -> None:
    (tmp_path / "state").write_text("a file where the folder should be")
    first = log.collector()
    since = page(first)["kernel_events_since_timestamp_seconds"]
    log.append(XID)
    assert xids(first) == 1
    again = page(log.collector())
    assert again['kernel_events_total{event="xid"}'] == 0
    assert again["kernel_events_since_timestamp_seconds"] > since


def test_a_clock_that_is_set_back_hides_no_event(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    collector = log.collector()
    page(collector)
    real = time.time
    monkeypatch.setattr(time, "time", lambda: real() - 7200)
    log.append(XID)
    seen = page(collector)
    assert seen['kernel_events_total{event="xid"}'] == 1
    assert seen['kernel_event_last_timestamp_seconds{event="xid"}'] == pytest.approx(real() - 7200, abs=60)


def test_what_a_process_wrote_to_the_log_is_no_event(log: Log) -> None:
    collector = log.collector()
    page(collector)
    log.append(XID, priority=1 * 8 + 3)  # facility user, as the kernel has it for whoever writes to /dev/kmsg
    log.append(XID, priority=3 * 8 + 3)
    assert page(collector)['kernel_events_total{event="xid"}'] == 0


def test_an_oom_kill_names_its_process_and_job_and_only_so_many_are_kept(log: Log) -> None:
    collector = log.collector()
    page(collector)
    for text in (
        f"oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg={SLURM}/job_9/step_0,task=train,pid=5,uid=1",
        "Memory cgroup out of memory: Killed process 5 (train) total-vm:1kB",
        "Memory cgroup out of memory: Killed process 6 (other) total-vm:1kB",
    ):
        log.append(text)
    seen = page(collector)
    assert 'kernel_oom_kill_timestamp_seconds{process="train",job_id="9"}' in seen
    assert 'kernel_oom_kill_timestamp_seconds{process="other",job_id=""}' in seen
    assert seen['kernel_events_total{event="cgroup_oom_kill"}'] == 2
    for number in range(20):
        log.append(f"Out of memory: Killed process 7 (p{number}) total-vm:1kB")
    kills = [name for name in page(collector) if name.startswith("kernel_oom_kill_timestamp")]
    assert [name for name in page(log.collector()) if name in kills] == kills, "and after a restart"
    assert len(kills) == KEPT_KILLS
    assert 'kernel_oom_kill_timestamp_seconds{process="p19",job_id=""}' in kills


def test_a_job_whose_processes_are_killed_again_and_again_hides_no_kill_of_another(log: Log) -> None:
    collector = log.collector()
    for number, job in enumerate([9, *[666] * 20]):
        group = f"{SLURM}/job_{job}/step_0"
        log.append(f"oom-kill:constraint=CONSTRAINT_MEMCG,task_memcg={group},task=p{number},pid={number},uid=1")
        log.append(f"Memory cgroup out of memory: Killed process {number} (p{number}) total-vm:1kB")
    kills = [name for name in page(collector) if name.startswith("kernel_oom_kill_timestamp")]
    assert len(kills) == KEPT_KILLS
    assert 'kernel_oom_kill_timestamp_seconds{process="p0",job_id="9"}' in kills
    assert 'kernel_oom_kill_timestamp_seconds{process="p20",job_id="666"}' in kills


def test_a_process_whose_name_is_hostile_makes_one_quiet_label(log: Log) -> None:
    log.append('Out of memory: Killed process 7 (a"\\x0ab\\x1b[31m) total-vm:1kB')
    assert 'kernel_oom_kill_timestamp_seconds{process="a\\" b",job_id=""}' in page(log.collector())


def test_a_ring_that_is_not_given_all_at_once_is_read_to_its_end(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainwarden_exporter.collectors.kernel.log.MAX_LINES", 2)
    monkeypatch.setattr("trainwarden_exporter.collectors.kernel.log._READ_BYTES", 100)
    collector = log.collector()
    page(collector)
    for _ in range(9):
        log.append(XID)
    assert xids(collector) == 9


def test_lines_of_the_journal_that_were_lost_are_unknown(tmp_path: Path) -> None:
    journal = Journal(tmp_path, monotonic=lambda: 0.0)
    assert journal.lost is None
