"""Whether the last checkpoint of each run is complete: looked at once, in a thread of its own."""

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
    from trainwarden_exporter.collectors.runs.view import RunRecord

log = logging.getLogger(__name__)

PATIENCE_SECONDS = 30.0
# A walk over a file system that never answers leaves a thread behind.
MAX_HUNG = 4
_THREAD = "trainwarden-checkpoint"


def verified(checkpoint: Checkpoint) -> CheckpointVerdict | None:
    """Judge a checkpoint by its listing and by the ends of its files; None where this node does not see the place."""
    if not Path(checkpoint.path).parent.is_dir():
        return None
    from trainwarden.checkpoint.verify import verify  # noqa: PLC0415  # large; for nodes that see checkpoints

    return verify(checkpoint.path, checkpoint.size_bytes, seconds=PATIENCE_SECONDS)


class Proofs:
    """What is known of the last checkpoint of each run."""

    def __init__(self, judge: Callable[[Checkpoint], CheckpointVerdict | None] = verified) -> None:
        self._judge = judge
        self._queue: SimpleQueue[tuple[str, Checkpoint]] = SimpleQueue()
        self._wanted: dict[str, Checkpoint] = {}
        self._answers: dict[str, tuple[Checkpoint, bool | None]] = {}
        self._thread: threading.Thread | None = None

    def complete(self, record: RunRecord) -> bool | None:
        """Return whether a run's last checkpoint can be resumed from; None while that is not known, or cannot be."""
        checkpoint = record.progress.checkpoint if record.progress else None
        if checkpoint is None or not checkpoint.path.startswith("/"):  # in S3, or nobody knows below which folder
            return None
        if self._wanted.get(record.run_id) != checkpoint:
            self._wanted[record.run_id] = checkpoint
            self._queue.put((record.run_id, checkpoint))
            self._begin()
        known = self._answers.get(record.run_id)
        return known[1] if known is not None and known[0] == checkpoint else None

    def forget_others(self, run_ids: set[str]) -> None:
        """Keep nothing of runs that are gone."""
        for run_id in self._wanted.keys() - run_ids:
            del self._wanted[run_id]
            self._answers.pop(run_id, None)

    def _begin(self) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="checkpoint-proofs", daemon=True)
            self._thread.start()

    def _run(self) -> None:
        while True:
            run_id, checkpoint = self._queue.get()
            if self._wanted.get(run_id) != checkpoint:
                continue  # a newer one was saved meanwhile
            if sum(thread.name == _THREAD for thread in threading.enumerate()) >= MAX_HUNG:
                log.warning("checkpoint %s is not verified: others hang in their file systems", checkpoint.path)
                continue
            self._answers[run_id] = (checkpoint, self._answer(run_id, checkpoint))

    def _answer(self, run_id: str, checkpoint: Checkpoint) -> bool | None:
        try:
            verdict = self._judge(checkpoint)
        except OSError as error:
            log.warning("run %s: its checkpoint cannot be looked at: %s", run_id, error)
            return None
        except Exception as error:
            log.warning("run %s: its checkpoint could not be judged: %s", run_id, error, exc_info=True)
            return None
        if verdict is not None and verdict.answer == "incomplete":
            log.warning("run %s: checkpoint %s is %s", run_id, checkpoint.path, verdict)
        return {"complete": True, "incomplete": False}.get(verdict.answer) if verdict else None
