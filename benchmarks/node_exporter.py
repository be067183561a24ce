"""Debian's node_exporter, serving a page of ours out of a file, or what its own collectors read."""

import subprocess
import time
from collections.abc import Iterator, Sequence
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
    flags = ["--collector.disable-defaults", "--collector.textfile", f"--collector.textfile.directory={folder}"]
    with _started(program, [*flags, "--web.disable-exporter-metrics"]) as started:
        yield started


@contextmanager
def serving_its_own(program: Path) -> Iterator[tuple[int, int]]:
    """Serve what its default collectors read of this machine; yields as `serving`."""
    with _started(program, []) as started:
        yield started


@contextmanager
def _started(program: Path, flags: Sequence[str]) -> Iterator[tuple[int, int]]:
    port = free_port()
    command = [str(program), *flags, f"--web.listen-address=127.0.0.1:{port}"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
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
