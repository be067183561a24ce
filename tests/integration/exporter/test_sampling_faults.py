"""What blocks, fills up or is killed costs the exporter that one thing: its page goes on, and it comes to its end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.devices.nvml import FakeNvml
from tests.integration.exporter.running import Started, children, is_alive
from tests.waiting import wait_until
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json
from trainwarden.stack.ports import free_port

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.\n"
STUCK = 'trainwarden_collector_stuck{collector="ray",device="",call="'
NEVER = ("--collector.ray", "--collector.ray.timeout=500ms", "--collector.ray.interval=100ms")


@pytest.fixture
def black_hole() -> Iterator[str]:
    """The URL of a server that sends the head of its answer byte by byte, for ever: no timeout of a socket expires."""
    listening = socket.create_server(("127.0.0.1", 0))
    listening.settimeout(0.05)
    over = threading.Event()

    def serve() -> None:
        taken: list[socket.socket] = []
        while not over.is_set():
            # Who is accepted may have hung up already.
            with contextlib.suppress(TimeoutError, ConnectionError):
                taken.append(listening.accept()[0])
                taken[-1].sendall(b"HTTP/1.1 200 OK\r\nX-Never: ")
            for each in taken:
                with contextlib.suppress(OSError):
                    each.sendall(b"x")
        for each in taken:
            each.close()

    thread = threading.Thread(target=serve)
    thread.start()
    yield f"http://127.0.0.1:{listening.getsockname()[1]}"
    over.set()
    thread.join()
    listening.close()


def test_a_server_that_never_finishes_its_answer_fails_its_collector_alone_and_leaves_nothing_stuck(
    start_exporter: Callable[..., Started], runs: Path, black_hole: str
) -> None:
    exporter = start_exporter(f"--collector.runs.path={runs}", *NEVER, f"--collector.ray.url={black_hole}")
    wait_until(lambda: exporter.value('trainwarden_collector_success{collector="ray"}') == 0)
    wait_until(lambda: exporter.value('trainwarden_collector_success{collector="runs"}') == 1)
    # The deadline of the request covers the whole answer, so no thread is left waiting.
    assert STUCK not in exporter.page()
    write_json(runs / "one" / "progress.json", {"step": 4, "last_updated": to_iso(time.time())})
    wait_until(lambda: exporter.value('training_step{run_id="one"}') == 4)
    assert "Traceback" not in exporter.end()


def test_one_sample_ends_with_status_0_though_a_server_never_finishes_its_answer(runs: Path, black_hole: str) -> None:
    ended = subprocess.run(
        [*Started.COMMAND, "--once", f"--collector.runs.path={runs}", *NEVER, f"--collector.ray.url={black_hole}"],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 0, ended.stderr
    assert 'training_step{run_id="one"} 3.0' in ended.stdout
    assert 'trainwarden_collector_success{collector="ray"} 0.0' in ended.stdout
    assert "ray_cluster_" not in ended.stdout


def test_a_pipe_in_place_of_a_record_or_a_log_blocks_nothing(
    start_exporter: Callable[..., Started], runs: Path, tmp_path: Path
) -> None:
    (runs / "pipe").mkdir()
    os.mkfifo(runs / "pipe" / "metadata.json")
    (runs / "one" / "logs").mkdir()
    os.mkfifo(runs / "one" / "logs" / "training_log_latest.txt")
    state = f"--collector.logs.state={tmp_path / 'state'}"
    exporter = start_exporter(f"--collector.runs.path={runs}", state, "--collector.runs.interval=50ms")
    wait_until(lambda: exporter.value('trainwarden_log_errors_total{reason="no_plain_file"}'))
    wait_until(lambda: exporter.value('training_step{run_id="one"}') == 3)
    wait_until(lambda: exporter.value('trainwarden_collector_success{collector="runs"}') == 1)
    assert "trainwarden_collector_stuck" not in exporter.page()
    exporter.end()


@pytest.mark.parametrize("hangs", [False, True])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_leaves_no_process_behind(
    start_exporter: Callable[..., Started],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: signal.Signals,
    hangs: bool,
) -> None:
    """Killed, it has no moment to tell its children: they see that their input has ended, though a driver hangs."""
    node = FakeNvml(tmp_path / "node").gpus(2)
    if hangs:
        node.hang(0, "nvmlDeviceGetTemperature")
    for name, value in node.environment().items():
        monkeypatch.setenv(name, value)
    exporter = start_exporter(*node.flags(), "--collector.nvidia.timeout=500ms")
    wait_until(lambda: 'gpu_up{gpu="1"' in exporter.page())
    if hangs:
        wait_until(lambda: 'trainwarden_collector_stuck{collector="nvidia"' in exporter.page())
    wait_until(lambda: children(exporter.process.pid))
    started = children(exporter.process.pid)
    exporter.process.send_signal(number)
    assert exporter.process.wait(30) == (0 if number == signal.SIGTERM else -number)
    wait_until(lambda: not any(map(is_alive, started)))


def test_on_a_full_disk_logs_are_read_all_the_same_and_each_write_that_fails_is_counted(
    runs: Path, tmp_path: Path
) -> None:
    logs, state = runs / "one" / "logs", tmp_path / "state"
    logs.mkdir()
    (logs / "training_log_latest.txt").write_text(OOM)
    address = f"127.0.0.1:{free_port()}"
    command = [
        *Started.COMMAND, f"--web.listen-address={address}", f"--collector.runs.path={runs}",
        "--collector.runs.interval=50ms", "--collector.logs.interval=20ms", f"--collector.logs.state={state}",
    ]  # fmt: skip
    # A file may be made and takes not one byte, as on a full disk.
    full = "import os, resource as r, sys; r.setrlimit(r.RLIMIT_FSIZE, (0, 0)); os.execv(sys.argv[1], sys.argv[1:])"
    process = subprocess.Popen([command[0], "-c", full, *command], stderr=subprocess.PIPE, text=True)
    exporter = Started(process, address)
    try:
        wait_until(lambda: answers(address))
        wait_until(lambda: (exporter.value('trainwarden_log_errors_total{reason="state"}') or 0) > 2)
        wait_until(lambda: _counted(exporter, "cuda_oom") == ["1.0"])
        wait_until(lambda: exporter.value('trainwarden_collector_success{collector="logs"}') == 1)
        log = exporter.end()
    finally:
        process.kill()
        process.communicate()
    assert log.count(f"{state}/one.json cannot be written: File too large") == 1
    assert [path.name for path in state.iterdir() if path.name != ".lock"] == []


def _counted(exporter: Started, signal: str) -> list[str]:
    lines = [line for line in exporter.page().splitlines() if line.startswith("training_log_signals_total{")]
    return [line.rpartition(" ")[2] for line in lines if f'signal="{signal}"' in line]


def answers(address: str) -> bool:
    try:
        with urllib.request.urlopen(f"http://{address}/-/healthy", timeout=30):
            return True
    except OSError:
        return False
