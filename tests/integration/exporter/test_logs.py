"""A real exporter that follows real logs: killed at any time, it counts on exactly."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.exporter.runs_tree import samples_of
from tests.waiting import wait_until
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json

OOM = b"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 GiB.\n"
NOISE = b" iteration 10/ 100 | lm loss: 6.3E+00 |\n"


class Exporter:
    """An exporter of one runs folder, started again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.run = folder / "runs" / "r"
        self.log = self.run / "logs" / "training_log_latest.txt"
        self.log.parent.mkdir(parents=True)
        now = to_iso(time.time())
        document = {"run_id": "r", "status": "running", "phase": "idle", "last_update": now, "version": 1}
        write_json(
            self.run / "metadata.json", {**document, "attempt": 0, "attempt_key": "local:1:0", "start_time": now}
        )
        self.process: subprocess.Popen[bytes] | None = None
        self._port = folder / "port"

    def start(self, *flags: str) -> None:
        self._port.unlink(missing_ok=True)
        command = [
            sys.executable, "-m", "trainwarden_exporter", "--web.listen-address=127.0.0.1:0",
            f"--web.port-file={self._port}", f"--collector.runs.path={self.folder}/runs",
            "--collector.runs.scope=all", f"--collector.logs.state={self.folder}/state",
            "--collector.runs.interval=50ms", "--collector.logs.interval=20ms", *flags,
        ]  # fmt: skip
        with (self.folder / "exporter.log").open("ab") as output:
            self.process = subprocess.Popen(command, stderr=output)
        wait_until(self._port.exists)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def value(self, name: str, **labels: str) -> float | None:
        """The only sample of this name with these labels among others."""
        with urllib.request.urlopen(f"http://{self._port.read_text().strip()}/metrics", timeout=30) as response:
            samples = samples_of(response.read().decode()).get(name, {})
        found = [value for key, value in samples.items() if labels.items() <= dict(key).items()]
        assert len(found) <= 1
        return found[0] if found else None

    def count(self, signal: str) -> float | None:
        return self.value("training_log_signals_total", run_id="r", signal=signal)


@pytest.fixture
def exporter(tmp_path: Path) -> Iterator[Exporter]:
    exporter = Exporter(tmp_path)
    yield exporter
    exporter.kill()


class Training(threading.Thread):
    """Writes lines, each in two pieces, and now and then begins a new log."""

    def __init__(self, log: Path) -> None:
        super().__init__()
        self.log = log
        self.written = 0
        self.over = threading.Event()
        self.rotate = threading.Event()

    def run(self) -> None:
        while not self.over.wait(0.02):
            with self.log.open("ab", buffering=0) as log:
                for _ in range(20):
                    log.write(NOISE * 3 + OOM[:20])
                    log.write(OOM[20:])
                    self.written += 1
            if self.rotate.is_set():
                self.log.replace(self.log.with_name(f"training_log_{self.written}_0.txt"))
                self.rotate.clear()


@pytest.mark.nightly
@pytest.mark.process
def test_an_exporter_that_is_killed_again_and_again_counts_every_line_once(exporter: Exporter) -> None:
    training = Training(exporter.log)
    training.start()

    def catch_up() -> None:
        # A log that is put aside twice between two looks is not read in the middle.
        mark = training.written
        wait_until(lambda: (exporter.count("cuda_oom") or 0) > mark)

    try:
        for turn in range(5):
            exporter.start()
            catch_up()
            if turn % 2:
                training.rotate.set()
            catch_up()
            exporter.kill()
            if not turn % 2:
                training.rotate.set()
    finally:
        training.over.set()
        training.join()
    exporter.start()
    wait_until(lambda: exporter.value("trainwarden_log_lag_bytes", run_id="r") == 0)
    wait_until(lambda: (exporter.count("cuda_oom") or 0) >= training.written)
    assert exporter.count("cuda_oom") == training.written
    assert training.written > 1000


def test_a_pattern_that_never_ends_loses_its_own_signal_and_no_other(exporter: Exporter, tmp_path: Path) -> None:
    pack = tmp_path / "mine.yaml"
    pack.write_text(
        "log_signals:\n- {name: catastrophe, pattern: 'held (a|aa)+$'}\n- {name: luck, pattern: 'out of luck'}\n"
    )
    exporter.log.write_bytes(b"".join(b"held " + b"a" * 60 + b"!%d\nout of luck\n" % number for number in range(20)))
    exporter.start(f"--collector.logs.signals={pack}")
    wait_until(lambda: exporter.count("luck") == 20)
    wait_until(lambda: exporter.value("trainwarden_log_signal_off", signal="catastrophe") == 1)
    wait_until(lambda: exporter.value("trainwarden_collector_success", collector="logs") == 1)
    assert "catastrophe" in (tmp_path / "exporter.log").read_text()


def test_a_wrong_pack_or_template_ends_the_exporter_with_a_line_that_names_it(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "trainwarden_exporter", "--once", f"--collector.runs.path={tmp_path}"]
    for flag, what in (
        ("--collector.logs.signals=nonsense", "nonsense"),
        ("--collector.logs.path=/logs/*.txt", "names no run"),
        ("--collector.logs.path=logs/{run_id}", "absolute"),
        ("--collector.logs.first-read=much", "64MiB"),
        (f"--collector.logs.state={os.devnull}/x", "folder of its own"),
    ):
        ended = subprocess.run([*command, flag], check=False, capture_output=True, text=True, timeout=60)
        assert ended.returncode == 2, ended
        assert what in ended.stderr
        assert len(ended.stderr.splitlines()) == 1


def test_without_the_collector_neither_yaml_nor_the_engine_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from trainwarden_exporter.cli import main;"
        f"main(['--once', '--collector.runs.path={tmp_path}', '--no-collector.logs']);"
        "costly = {'yaml', 'regex', 'ahocorasick_rs', 'trainwarden.signals.scanner'};"
        "print(*(costly & set(sys.modules)), file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert ended.stderr.strip() == ""
    assert "training_log" not in ended.stdout
