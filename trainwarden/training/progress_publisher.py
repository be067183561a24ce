"""The progress of the run: what the loop has reported, and the checkpoints that it has saved."""

from __future__ import annotations

import time

from trainwarden.record.folder import CHECKPOINTED, PROGRESS
from trainwarden.record.progress import Checkpoint, Progress
from trainwarden.record.store import RecordStore
from trainwarden.training.checkpoints import SavedCheckpoints
from trainwarden.training.context import RunContext
from trainwarden.training.event_log import EventLog
from trainwarden.training.fence import Fence
from trainwarden.training.loop import LoopState, Throughput
from trainwarden.training.usage_warnings import UsageWarnings

PROGRESS_SECONDS = 0.5
# How often progress is noted in the journal: every five seconds at first, then about 100 times in each tenfold time.
NOTE_SECONDS = 5.0
_NOTE_SHARE = 0.025
_NEVER = float("-inf")


class ProgressPublisher:
    """Writes the progress into the record when the loop has moved, if this process writes the whole record.

    Args:
        context: of the run.
        loop: the reported state of the training loop.
        event_log: the events.
        store: of the record.
        fence: whether this attempt may write it.
        began: when the attempt began, by the monotonic clock.

    Attributes:
        context: of the run; another one where its total number of steps becomes known later.
    """

    def __init__(
        self, context: RunContext, loop: LoopState, event_log: EventLog, store: RecordStore, fence: Fence, began: float
    ) -> None:
        self.context = context
        self._loop = loop
        self._event_log = event_log
        self._store = store
        self._fence = fence
        self._began = began
        self._throughput = Throughput()
        beginning = context.beginning
        self._checkpoints = SavedCheckpoints(*(beginning.checkpoints, beginning.checkpoints_saved) if beginning else ())
        self._warnings = UsageWarnings()
        self._known_metrics: set[str] = set()
        self._written_reports = 0
        self._written = self._noted = _NEVER
        self._checkpoint_is_new = False

    @property
    def is_due(self) -> bool:
        """Whether it is time to look whether the loop has moved."""
        return time.monotonic() - self._written >= PROGRESS_SECONDS

    @property
    def latest_checkpoint(self) -> Checkpoint | None:
        """The newest checkpoint that was saved."""
        return self._checkpoints.latest[0] if self._checkpoints.latest else None

    def add_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Add a saved checkpoint; it is synced to the disk when the progress is written next."""
        self._checkpoints.add(checkpoint)
        self._write_soon()

    def correct_checkpoint(self, checkpoint: Checkpoint) -> None:
        """Set the size of a checkpoint that was measured late."""
        self._checkpoints.correct(checkpoint)
        self._write_soon()

    def verified_checkpoint(self, path: str, begun: float, ended: float) -> None:
        """Set that a checkpoint was verified, as `SavedCheckpoints.verified`."""
        self._checkpoints.verified(path, begun, ended)
        self._write_soon()

    def _write_soon(self) -> None:
        self._checkpoint_is_new, self._written = True, _NEVER

    def write(self, *, last: bool = False) -> None:
        """Write the progress where it has changed.

        Args:
            last: the attempt has ended: note it in the journal, too, however lately that was done.

        Raises:
            OSError: the folder cannot be written.
        """
        beginning, view = self.context.beginning, self._loop.snapshot()
        moved = view.reports != self._written_reports or self._checkpoint_is_new
        if beginning is None or not moved or self._fence.is_closed():
            return
        # The time of the report, by the monotonic clock.
        now = time.monotonic()
        report_time = min(now, now - (time.time() - (view.last_updated or 0.0)))
        rates = self._throughput.add(report_time, view.tokens, view.samples)
        if new := view.metrics.keys() - self._known_metrics:
            self._known_metrics |= new
            self._warnings.warn_of_metrics(sorted(new), view.missing)
        saved = self._checkpoints
        document = self.context.progress(beginning, view, rates, saved.latest, saved.count)
        # The newest checkpoint must survive a power failure; later reports need not.
        self._store.write(PROGRESS, document, durable=self._checkpoint_is_new)
        if self._checkpoint_is_new:
            self._store.write(CHECKPOINTED, document, durable=True)
        self._written_reports, self._checkpoint_is_new = view.reports, False
        self._written = time.monotonic()
        self._note(document, last=last)

    def _note(self, progress: Progress, *, last: bool) -> None:
        """Note the progress in the journal, ever more rarely: what is shown of the past without a Prometheus."""
        now = time.monotonic()
        pause = max(NOTE_SECONDS, _NOTE_SHARE * (now - self._began))
        if not last and now - self._noted < pause:
            return
        self._noted = now
        names = ("step", "loss", "tokens_per_second", "samples_per_second")
        known = {name: getattr(progress, name) for name in names}
        self._event_log.add_now("progress_noted", {name: value for name, value in known.items() if value is not None})
