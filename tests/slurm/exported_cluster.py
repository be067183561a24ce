"""A real cluster and an exporter beside it, and what its page says."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.slurm.cluster import Cluster, OwnCluster
from tests.waiting import wait_until


class Exporter:
    """An exporter in a process of its own."""

    def __init__(self, folder: Path, arguments: Sequence[str]) -> None:
        self._log = folder / "exporter.log"
        port_file = folder / "port"
        command = [sys.executable, "-m", "trainwarden_exporter", "--collector.disable-defaults", *arguments]
        command += ["--web.listen-address=127.0.0.1:0", f"--web.port-file={port_file}"]
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(command, stderr=log)
        try:
            wait_until(lambda: port_file.exists() or self._process.poll() is not None, "the exporter listens")
            self._url = f"http://{port_file.read_text().strip()}/metrics"
        except (OSError, AssertionError):
            self.stop()
            raise AssertionError(self.log()) from None

    def page(self) -> str:
        """The page as it is now."""
        with urllib.request.urlopen(self._url, timeout=30) as answer:
            return str(answer.read().decode())

    def wait_for(self, *samples: str, seconds: float = 90.0) -> str:
        """Wait until the page has all of these lines; return the page. A failure shows what it has instead."""
        page = ""

        def there() -> bool:
            nonlocal page
            page = self.page()
            return set(samples) <= set(page.splitlines())

        def message() -> str:
            names = tuple(re.split(r"[{ ]", sample)[0] for sample in samples)
            found = "\n".join(line for line in page.splitlines() if line.startswith(names))
            return "\n".join([*samples, "the page has:", found, self.log()])

        wait_until(there, message, timeout=seconds)
        return page

    def log(self) -> str:
        """What it has logged so far."""
        return self._log.read_text(encoding="utf-8")

    def stop(self) -> None:
        """End it."""
        self._process.terminate()
        self._process.wait(60)


@contextmanager
def exporter(folder: Path, *arguments: str) -> Iterator[Exporter]:
    """An exporter that runs while the block does."""
    folder.mkdir(parents=True, exist_ok=True)
    started = Exporter(folder, arguments)
    try:
        yield started
    finally:
        started.stop()


@contextmanager
def stopped(cluster: OwnCluster) -> Iterator[None]:
    """slurmctld stands still while the block runs."""
    os.kill(cluster.slurmctld, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(cluster.slurmctld, signal.SIGCONT)


def without_munge(cluster: Cluster, folder: Path) -> Path:
    """Client commands of the same cluster that find no munged; their folder."""
    text = (cluster.folder / "slurm.conf").read_text(encoding="utf-8")
    (folder / "slurm.conf").write_text(text.replace("/munge.sock", "/no-munge.sock"), encoding="utf-8")
    for name in ("squeue", "scontrol", "sinfo"):
        script = (cluster.bin / name).read_text(encoding="utf-8")
        (folder / name).write_text(script.replace(f"{cluster.folder}/slurm.conf", f"{folder}/slurm.conf"))
        (folder / name).chmod(0o755)
    return folder
