"""The fence between attempts of a run: once a newer one owns the record, an older one that lives writes it no more."""

from __future__ import annotations

import logging
import os
import time

from trainwarden.identity import host_name
from trainwarden.record.folder import LIVENESS_SECONDS
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.ownership import Owner
from trainwarden.record.progress import Checkpoint
from trainwarden.record.sentinels import attempt_number
from trainwarden.record.superseded import Superseded, write_superseded
from trainwarden.training.context import RunContext
from trainwarden.training.loop import LoopState

_NEVER = float("-inf")
_KEPT_CHECKPOINTS = 20

logger = logging.getLogger("trainwarden")


class Fence:
    """Whether this attempt may write the record, and what it leaves beside it otherwise.

    Args:
        context: of the run.
        loop: the reported state of the training loop.

    Attributes:
        closed: another process owns the record, as far as was seen.
    """

    def __init__(self, context: RunContext, loop: LoopState) -> None:
        self.closed = False
        self._context = context
        self._loop = loop
        self._written = _NEVER
        self._checkpoints: tuple[Checkpoint, ...] = ()

    def is_closed(self) -> bool:
        """Read whether a newer attempt, or another process, owns the record."""
        key = str(self._context.key)
        metadata = None if self.closed else read_metadata(self._context.folder)
        if isinstance(metadata, Metadata) and metadata.attempt_key != key:
            ours = attempt_number(metadata, key)
            if ours is not None and metadata.attempt is not None and metadata.attempt > ours:
                owner = Owner(metadata.host, metadata.pid, metadata.attempt_key, f"attempt {metadata.attempt}")
                self.close(str(owner))
        return self.closed

    def close(self, owner: str) -> None:
        """Leave the record to its owner."""
        if not self.closed:
            self.closed = True
            logger.error(
                "the run record in %s belongs to %s: this process goes on training and writes it no more",
                self._context.folder,
                owner,
            )

    def keep_out(self, checkpoint: Checkpoint) -> None:
        """Keep a checkpoint that was saved since out of the record, and name it beside it."""
        logger.error(
            "checkpoint %s is not recorded: the run in %s has a newer attempt", checkpoint.path, self._context.folder
        )
        others = tuple(one for one in self._checkpoints if one.path != checkpoint.path)
        self._checkpoints = (checkpoint, *others)[:_KEPT_CHECKPOINTS]
        self._written = _NEVER

    def is_due(self, now: float) -> bool:
        """Return whether it is to be written, at `now` of the monotonic clock, that this attempt lives."""
        return self.closed and now - self._written >= LIVENESS_SECONDS

    def write(self, status: str) -> None:
        """Write that this attempt lives beside a newer one, or has ended.

        Raises:
            OSError: the folder cannot be written.
        """
        self._written = time.monotonic()
        beginning, metadata = self._context.beginning, read_metadata(self._context.folder)
        number = metadata.attempt if isinstance(metadata, Metadata) else None
        if beginning is None or number is None or number <= beginning.this.attempt:
            return  # whoever owns the record is no newer attempt of the run
        document = Superseded(
            attempt=beginning.this.attempt,
            attempt_key=str(self._context.key),
            host=host_name(),
            pid=os.getpid(),
            time=time.time(),
            step=self._loop.step,
            status=status,
            checkpoints=self._checkpoints,
        )
        write_superseded(self._context.folder, document)
