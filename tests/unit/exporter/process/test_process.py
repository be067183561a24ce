"""What the exporter says of itself."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.waiting import wait_until
from trainwarden_exporter.collectors.process import ProcessCollector, parse_stat
from trainwarden_exporter.core.exposition import encode_text

BUSY = (
    "import time, sys\nend = time.process_time() + 0.2\nwhile time.process_time() < end: pass\nprint(1, flush=True)\n"
)


def page() -> dict[str, float]:
    lines = encode_text(ProcessCollector().collect()).decode().splitlines()
    return {name: float(value) for name, value in (each.rsplit(" ", 1) for each in lines if not each.startswith("#"))}


def test_this_process_is_exported_as_the_system_shows_it() -> None:
    before = time.process_time()
    seen = page()
    assert before - 0.05 <= seen["process_cpu_seconds_total"] <= time.process_time() + 0.05
    # Threads that tests before this one have left may end at any moment.
    wait_until(lambda: page()["process_threads"] == len(list(Path("/proc/self/task").iterdir())))
    wait_until(lambda: page()["process_open_fds"] == len(list(Path("/proc/self/fd").iterdir())) - 1)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    assert seen["process_resident_memory_bytes"] == pytest.approx(pages * os.sysconf("SC_PAGE_SIZE"), rel=0.2)
    assert 0 < time.time() - seen["process_start_time_seconds"] < 86400
    assert seen["process_max_fds"] > 0


@pytest.mark.process
def test_children_are_summed_whichever_thread_started_them_and_their_time_stays_when_they_end() -> None:
    before = page()
    started: list[subprocess.Popen[bytes]] = []
    done = threading.Event()

    def start() -> None:
        code = f"{BUSY}sys.stdin.read()"
        started.append(subprocess.Popen([sys.executable, "-c", code], stdin=-1, stdout=-1))
        done.wait(60)  # a thread that is gone would hand its child on

    thread = threading.Thread(target=start, daemon=True)
    thread.start()
    child = wait_until(lambda: started)[0]
    try:
        assert child.stdout is not None
        assert child.stdout.readline() == b"1\n"
        seen = page()
        assert seen["trainwarden_process_children"] == before["trainwarden_process_children"] + 1
        name = "trainwarden_process_children_resident_memory_bytes"
        assert seen[name] - before[name] > 2**20
    finally:
        child.communicate(b"")
        done.set()
        thread.join()
    after = page()
    name = "trainwarden_process_children_cpu_seconds_total"
    assert after["trainwarden_process_children"] == before["trainwarden_process_children"]
    assert after[name] - before[name] >= 0.19
    assert after[name] >= seen[name] - 0.02


def test_a_process_may_be_called_anything() -> None:
    fields = ["S", "1", *["0"] * 9, "150", "50", *["0"] * 4, "7", "0", "1000", "4096", "3"]
    usage = parse_stat(b"12 (a) b (c) R) " + " ".join(fields).encode())
    tick, size = os.sysconf("SC_CLK_TCK"), os.sysconf("SC_PAGE_SIZE")
    assert (usage.cpu, usage.threads, usage.start) == (200 / tick, 7, 1000 / tick)
    assert (usage.virtual, usage.resident) == (4096, 3 * size)
