"""Where the ranks run and what their processes do: by procfs, where it leaves no doubt whose process it is."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.unit.exporter.runs_tree import HOST, RunsTree
from tests.waiting import wait_until
from trainwarden.identity import process_start_ticks
from trainwarden.record.rank import RankBeat
from trainwarden_exporter.collectors.runs.rank_processes import (
    ALIVE,
    DISK_SLEEP,
    GONE,
    MAX_READS,
    STOPPED,
    ZOMBIE,
    RankProcesses,
    pid_namespace,
)

UUID = "GPU-8932f937-d72c-4106-c12f-20bd9faed9f6"
START = 7000


class Procfs:
    """A procfs that shows all processes of its namespace."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "self/ns").mkdir(parents=True)
        (path / "self/ns/pid").touch()
        (path / "self/status").write_text("Name:\tx\nNSpid:\t77\n")
        self.process(1, "S")
        self.namespace = (path / "self/ns/pid").stat().st_ino

    def process(self, pid: int, state: str, start: int = START, name: str = "python) R 1 (x") -> None:
        (self.path / str(pid)).mkdir(exist_ok=True)
        between = " ".join(["1"] * 18)
        (self.path / f"{pid}/stat").write_text(f"{pid} ({name}) {state} {between} {start} 1 1\n")

    def state(self, **keys: Any) -> str | None:
        beat = self.beat(**keys)
        processes = RankProcesses(self.path, HOST)
        processes.look([beat])
        return processes.state(beat)

    def beat(self, **keys: Any) -> RankBeat:
        known: dict[str, Any] = {
            "rank": 0,
            "status": "running",
            "host": HOST,
            "pid": 500,
            "process_start": START,
            "pid_namespace": self.namespace,
            "owner": os.geteuid(),
            **keys,
        }
        return RankBeat(**known)


def procfs_in(tmp_path: Path) -> Procfs:
    return Procfs(tmp_path / "proc")


@pytest.fixture
def procfs(tmp_path: Path) -> Procfs:
    return procfs_in(tmp_path)


@cases(
    ("letter", "state"),
    [("R", ALIVE), ("S", ALIVE), ("D", DISK_SLEEP), ("T", STOPPED), ("t", STOPPED), ("Z", ZOMBIE), ("X", GONE)],
    procfs=procfs_in,
)
def test_the_state_is_the_kernels(procfs: Procfs, letter: str, state: str) -> None:
    procfs.process(500, letter)
    assert procfs.state() == state


def test_a_process_that_is_not_there_is_gone(procfs: Procfs) -> None:
    assert procfs.state() == GONE


def test_another_process_of_the_same_pid_is_not_taken_for_the_rank(procfs: Procfs) -> None:
    procfs.process(500, "R", start=START + 1)
    assert procfs.state() == GONE


def test_where_procfs_hides_the_processes_of_others_one_that_is_not_seen_is_unknown(procfs: Procfs) -> None:
    (procfs.path / "1/stat").unlink()
    assert procfs.state(owner=os.geteuid() + 1) is None
    assert procfs.state() == GONE


def test_the_owner_of_a_record_learns_nothing_of_the_processes_of_others(procfs: Procfs) -> None:
    procfs.process(500, "D")
    assert procfs.state(owner=os.geteuid() + 1) is None


@cases(
    "keys",
    [
        {"host": "node2"},
        {"status": "succeeded"},
        {"status": "failed"},
        {"pid": None},
        {"pid": 0},
        {"process_start": None},
        {"pid_namespace": None},
        {"pid_namespace": 4026531836},
    ],
    procfs=procfs_in,
)
def test_a_rank_whose_process_cannot_be_known_here_has_no_state(procfs: Procfs, keys: dict[str, Any]) -> None:
    procfs.process(500, "S")
    assert procfs.state(**keys) is None


@cases("content", ["", "500 (python", "500 (python) S", "500 (python) S " + "x " * 30], procfs=procfs_in)
def test_a_file_of_another_form_is_no_evidence(procfs: Procfs, content: str) -> None:
    procfs.process(500, "S")
    (procfs.path / "500/stat").write_text(content)
    assert procfs.state() is None


def test_the_hosts_procfs_in_a_container_shows_the_pids_of_the_host(procfs: Procfs) -> None:
    (procfs.path / "self/status").write_text("NSpid:\t4711\t7\n")
    (procfs.path / "2").mkdir()
    (procfs.path / "2/comm").write_text("kthreadd\n")
    assert pid_namespace(procfs.path) == 4026531836
    procfs.process(500, "T")
    assert procfs.state(pid_namespace=4026531836) == STOPPED
    assert procfs.state() is None


def test_of_many_ranks_a_part_is_looked_at_in_each_sample_and_all_in_turn(procfs: Procfs) -> None:
    beats = [procfs.beat(rank=rank, pid=1000 + rank) for rank in range(2 * MAX_READS + 10)]
    processes = RankProcesses(procfs.path, HOST)
    known = []
    for _ in range(3):
        processes.look(beats)
        known.append(sum(processes.state(beat) is not None for beat in beats))
    assert known == [MAX_READS, 2 * MAX_READS, len(beats)]


def test_a_user_whose_ranks_are_others_in_each_sample_hides_no_process_of_another(procfs: Procfs) -> None:
    procfs.process(500, "S")
    watched, processes = procfs.beat(), RankProcesses(procfs.path, HOST)

    def state(sample: int) -> str | None:
        pids = range(1000 * sample, 1000 * sample + MAX_READS + 10)
        other = os.geteuid() + 1
        processes.look([watched, *(procfs.beat(rank=pid, pid=pid, owner=other) for pid in pids)])
        return processes.state(watched)

    assert state(1) == ALIVE
    procfs.process(500, "Z")
    assert state(2) == ZOMBIE


@pytest.mark.process
def test_a_real_process_is_seen_to_stop_and_to_end() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        beat = RankBeat(
            rank=0,
            host=HOST,
            pid=process.pid,
            process_start=process_start_ticks(process.pid),
            pid_namespace=Path("/proc/self/ns/pid").stat().st_ino,
            owner=os.geteuid(),
        )
        processes = RankProcesses(Path("/proc"), HOST)

        def is_seen(state: str) -> bool:
            processes.look([beat])
            return processes.state(beat) == state

        wait_until(lambda: is_seen(ALIVE))
        process.send_signal(signal.SIGSTOP)
        wait_until(lambda: is_seen(STOPPED))
        process.kill()
        wait_until(lambda: is_seen(ZOMBIE))
        process.wait()
        assert is_seen(GONE)


def test_a_gpu_that_others_used_is_shown_and_the_type_of_the_run_s_gpus(tmp_path: Path) -> None:
    runs = RunsTree(tmp_path / "runs", all_hosts=True)
    runs.metadata("r", gpu_type="NVIDIA H100", gpu_count=8)
    runs.rank("r", 0, gpu=0)
    runs.rank("r", 1, gpu=1, gpu_taken_bytes=62_914_560_000)

    def shown() -> list[str]:
        return [
            line for line in runs.text().splitlines() if line.startswith(("training_run_gpus{", "training_rank_gpu_"))
        ]

    assert shown() == [
        'training_rank_gpu_taken_bytes{run_id="r",rank="1"} 62914560000.0',
        'training_run_gpus{run_id="r",gpu_type="NVIDIA H100"} 8.0',
    ]
    # It is measured in the middle of an attempt: what is kept between scrapes must not hide it.
    runs.rank("r", 0, gpu=0, gpu_taken_bytes=5)
    assert 'training_rank_gpu_taken_bytes{run_id="r",rank="0"} 5.0' in shown()


def test_each_rank_is_shown_with_its_host_gpu_and_process(tmp_path: Path, procfs: Procfs) -> None:
    runs = RunsTree(tmp_path / "runs", all_hosts=True, procfs=procfs.path)
    runs.metadata("r")
    known = {"status": "running", "process_start": START, "pid_namespace": procfs.namespace}
    runs.rank("r", 0, pid=500, gpu=3, uuid=UUID, **known)
    runs.rank("r", 1, pid=500, uuid=UUID + 300 * "x", host="node2", **known)
    runs.rank("r", 2)
    procfs.process(500, "D")
    page = runs.text().splitlines()
    assert [line for line in page if line.startswith("training_rank_info{")] == [
        f'training_rank_info{{run_id="r",rank="0",host="node1",gpu="3",uuid="{UUID}",pid="500"}} 1.0',
        f'training_rank_info{{run_id="r",rank="1",host="node2",gpu="",uuid="{UUID}{24 * "x"}",pid="500"}} 1.0',
        'training_rank_info{run_id="r",rank="2",host="node1",gpu="",uuid="",pid=""} 1.0',
    ]
    # Of the other hosts' ranks nothing is known here.
    assert [line for line in page if line.startswith("training_rank_process_state{")] == [
        'training_rank_process_state{run_id="r",rank="0",state="disk_sleep"} 1.0'
    ]
    procfs.process(500, "R")
    assert 'training_rank_process_state{run_id="r",rank="0",state="alive"} 1.0' in runs.text()
    assert 'state="disk_sleep"' not in runs.text()
