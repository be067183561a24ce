"""Verify the last checkpoint of each run, once, in a thread of its own."""

from __future__ import annotations

import logging
import threading
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from trainwarden.checkpoint.verdict import CheckpointVerdict
    from trainwarden.record.progress import Checkpoint
    from trainwarden_exporter.collectors.runs.record import RunRecord

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 30.0
# A walk over a file system that never answers leaves a thread behind.
MAX_HUNG = 4
_WALK_THREAD = "trainwarden-checkpoint"


def verify_checkpoint(checkpoint: Checkpoint) -> CheckpointVerdict | None:
    """Verify a checkpoint by its listing and the ends of its files; return None if this node does not see its path."""
    if not Path(checkpoint.path).parent.is_dir():
        return None
    from trainwarden.checkpoint.verify import verify  # noqa: PLC0415  # large; for nodes that see checkpoints

    return verify(checkpoint.path, checkpoint.size_bytes, seconds=TIMEOUT_SECONDS)


class CheckpointVerifier:
    """Knows whether the last checkpoint of each run is complete.

    Args:
        verify: verifies one checkpoint; may take long, and may raise.
    """

    def __init__(self, verify: Callable[[Checkpoint], CheckpointVerdict | None] = verify_checkpoint) -> None:
        self._verify = verify
        self._queue: SimpleQueue[tuple[str, Checkpoint]] = SimpleQueue()
        self._wanted: dict[str, Checkpoint] = {}
        self._results: dict[str, tuple[Checkpoint, bool | None]] = {}
        self._thread: threading.Thread | None = None

    @property
    def idle(self) -> bool:
        """No checkpoint waits to be verified."""
        return self._queue.empty()

    def is_complete(self, record: RunRecord) -> bool | None:
        """Return whether a run can resume from its last checkpoint; None while, or where, that is not known."""
        checkpoint = record.progress.checkpoint if record.progress else None
        if checkpoint is None or not checkpoint.path.startswith("/"):  # in S3, or relative to an unknown folder
            return None
        if self._wanted.get(record.run_id) != checkpoint:
            self._wanted[record.run_id] = checkpoint
            self._queue.put((record.run_id, checkpoint))
            self._start()
        known = self._results.get(record.run_id)
        return known[1] if known is not None and known[0] == checkpoint else None

    def keep_only(self, run_ids: set[str]) -> None:
        """Forget all other runs."""
        for run_id in self._wanted.keys() - run_ids:
            del self._wanted[run_id]
            self._results.pop(run_id, None)

    def _start(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="checkpoint-verifier", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            run_id, checkpoint = self._queue.get()
            if self._wanted.get(run_id) != checkpoint:
                continue  # superseded by a newer one
            if sum(thread.name == _WALK_THREAD for thread in threading.enumerate()) >= MAX_HUNG:
                log.warning("checkpoint %s is not verified: others hang in their file systems", checkpoint.path)
                continue
            self._results[run_id] = (checkpoint, self._result(run_id, checkpoint))

    def _result(self, run_id: str, checkpoint: Checkpoint) -> bool | None:
        try:
            verdict = self._verify(checkpoint)
        except OSError as error:
            log.warning("run %s: its checkpoint cannot be looked at: %s", run_id, error)
            return None
        except Exception as error:
            log.warning("run %s: its checkpoint could not be judged: %s", run_id, error, exc_info=True)
            return None
        if verdict is not None and verdict.answer == "incomplete":
            log.warning("run %s: checkpoint %s is %s", run_id, checkpoint.path, verdict)
        return {"complete": True, "incomplete": False}.get(verdict.answer) if verdict else None
