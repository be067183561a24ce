"""The digests of saved checkpoints, computed in a process of its own while the training goes on."""

from __future__ import annotations

import json
import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trainwarden
from trainwarden.checkpoint.paths import is_remote

# How long the end of a run that succeeded waits for digests that are under way.
END_SECONDS = 2.0
_STOP_SECONDS = 1.0
# The interpreter starts without the program's own modules: some of them load CUDA or a profiler at its start.
_PROGRAM = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); "
    "from trainwarden.checkpoint.digests import main; sys.exit(main(sys.argv[1:]))"
)

if TYPE_CHECKING:
    import subprocess

logger = logging.getLogger("trainwarden")


class DigestWriter:
    """Writes the manifest of one checkpoint after the other; of those that wait, of the newest alone.

    A process computes the digests: in a thread of this one it would hold the interpreter's lock while it waits for a
    processor. It runs at the lowest priority and ends with the training. The thread only waits for it.

    Args:
        on_end: called with the path and a JSON object: how it ended.
    """

    def __init__(self, on_end: Callable[[str, dict[str, Any]], None]) -> None:
        self._on_end = on_end
        self._changed = threading.Condition()
        self._waiting: str | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._path: str | None = None
        self._thread: threading.Thread | None = None
        self._closed = False

    def write(self, path: str) -> None:
        """Begin with a checkpoint, after the one that is under way; begin anew where that is the same."""
        if is_remote(path):
            logger.warning("no digests are computed of checkpoint %s: it is in S3", path)
            return
        with self._changed:
            if self._closed:
                return
            if self._waiting not in {None, path}:
                logger.warning("no digests are computed of checkpoint %s: a newer one is saved already", self._waiting)
            self._waiting = path
            if self._path == path and self._process is not None:
                self._process.terminate()
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="trainwarden-digests", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def close(self, seconds: float) -> None:
        """Wait up to `seconds` for what is under way, then stop it: its manifest is not written."""
        deadline = time.monotonic() + seconds
        with self._changed:
            if self._thread is None:
                return
            self._changed.wait_for(lambda: self._path is None and self._waiting is None, seconds)
            self._closed, self._waiting = True, None
            self._changed.notify_all()
            if self._process is not None:
                logger.warning("the digests of checkpoint %s are not finished: the run has ended", self._path)
                self._process.terminate()
        self._thread.join(max(0.0, deadline - time.monotonic()) + _STOP_SECONDS)
        if self._thread.is_alive() and self._process is not None:
            self._process.kill()

    def _run(self) -> None:
        while True:
            with self._changed:
                self._path = None
                self._changed.notify_all()
                self._changed.wait_for(lambda: self._waiting is not None or self._closed)
                if self._closed:
                    return
                path, self._waiting = self._waiting or "", None
                self._path = path
            try:
                result = self._compute(path)
            except Exception as error:  # noqa: BLE001  # the thread serves the next checkpoint as well
                result = {"problem": str(error)}
            if result is not None:
                if "problem" in result:
                    logger.warning("no digests of checkpoint %s: %s", path, result["problem"])
                self._on_end(path, result)

    def _compute(self, path: str) -> dict[str, Any] | None:
        """Return what the process printed; None where it was stopped."""
        import subprocess  # noqa: PLC0415  # slow to import, and for trainings with digests alone

        code = str(Path(trainwarden.__file__).parents[1])
        # Without the lock: the start of a program waits for its disk.
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-c", _PROGRAM, code, str(os.getpid()), path],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        with self._changed:
            self._process = process
            if self._closed or self._waiting == path:
                process.terminate()
        begin = time.monotonic()
        try:
            output, _ = process.communicate()
        finally:
            with self._changed:
                self._process = None
        if process.returncode not in {0, 1}:
            return None if process.returncode < 0 or process.returncode > 128 else {"problem": "the process failed"}
        return {**json.loads(output), "seconds": round(time.monotonic() - begin, 3)}
