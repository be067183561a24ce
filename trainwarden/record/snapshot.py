"""A whole run record, read at one moment."""

from dataclasses import dataclass
from pathlib import Path

from trainwarden.record.crash import crash_error
from trainwarden.record.document import Unreadable
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.progress import Progress, read_progress
from trainwarden.record.rank import RankBeat, newest_beats, read_ranks
from trainwarden.record.sentinels import Sentinel, current_completion, current_error, run_state


@dataclass(frozen=True)
class Snapshot:
    """A record at one moment. `ranks` are those of its own attempt; `state` is None where no file states it."""

    folder: Path
    metadata: Metadata | None
    progress: Progress | None
    ranks: tuple[RankBeat, ...]
    error: Sentinel | None
    completion: Sentinel | None
    state: str | None
    unreadable: tuple[Unreadable, ...]

    @property
    def run_id(self) -> str:
        """The run's name: that of its folder."""
        return self.folder.name


def read_snapshot(folder: Path) -> Snapshot:
    """Read a record, sentinels last: they must be of the attempt that the metadata names. Never raises."""
    progress = read_progress(folder)
    ranks = read_ranks(folder)
    metadata = read_metadata(folder)
    known = metadata if isinstance(metadata, Metadata) else None
    key, start = (known.attempt_key, known.attempt_start_time) if known else (None, None)
    error = current_error(folder, key, start) or crash_error(folder, known)
    completion = current_completion(folder, key, start)
    beats = [beat for beat in ranks if isinstance(beat, RankBeat) and (key is None or beat.attempt_key == key)]
    parts = (metadata, progress, *ranks, error, completion)
    return Snapshot(
        folder=folder,
        metadata=known,
        progress=progress if isinstance(progress, Progress) else None,
        ranks=newest_beats(beats),
        error=error if isinstance(error, Sentinel) else None,
        completion=completion if isinstance(completion, Sentinel) else None,
        state=run_state(known, error, completion),
        unreadable=tuple(part for part in parts if isinstance(part, Unreadable)),
    )
