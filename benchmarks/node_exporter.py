"""Debian's node_exporter, serving a page of ours out of a file."""

import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.scrapes_client import is_listening
from trainwarden.stack.debian import PackagesUnavailable, unpack
from trainwarden.stack.ports import free_port

_FOLDER = Path(__file__).resolve().parents[1] / ".tools" / "benchmarks"
_START_SECONDS = 20.0


def node_exporter() -> Path | None:
    """The program out of Debian's package; None where that can't be had."""
    try:
        root = unpack(["prometheus-node-exporter"], _FOLDER, dependencies=False)
    except PackagesUnavailable:
        return None
    return root / "usr" / "bin" / "prometheus-node-exporter"


@contextmanager
def serving(program: Path, folder: Path, page: bytes) -> Iterator[tuple[int, int]]:
    """Serve `page` through the textfile collector and nothing else; yields the process and its port on loopback."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "page.prom").write_bytes(page)
    port = free_port()
    process = subprocess.Popen(
        [
            str(program),
            "--collector.disable-defaults",
            "--collector.textfile",
            f"--collector.textfile.directory={folder}",
            "--web.disable-exporter-metrics",
            f"--web.listen-address=127.0.0.1:{port}",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        deadline = time.monotonic() + _START_SECONDS
        while not is_listening(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError("node_exporter did not start")
            time.sleep(0.05)
        yield process.pid, port
    finally:
        process.terminate()
        process.wait()
