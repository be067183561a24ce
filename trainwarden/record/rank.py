"""`ranks/<rank>.json`: the liveness, step and end of one rank."""

# Shell commands load this: pathlib is slow to import.
# ruff: noqa: PTH118, PTH208

from __future__ import annotations

import os

from trainwarden.record.document import JsonObject, Unreadable, read_json
from trainwarden.record.folder import RANKS
from trainwarden.record.metadata import PHASE, STATUS
from trainwarden.record.schema import INTEGER, PROBLEMS, TEXT, TIME, RecordDocument, required


class RankBeat(RecordDocument):
    """`ranks/<rank>.json`: `time` is the liveness of the rank's process, `step` where its loop is, `status` its end."""

    rank: int = required(INTEGER)
    step: int | None = INTEGER
    phase: str | None = PHASE
    status: str | None = STATUS
    time: float | None = TIME
    host: str | None = TEXT
    pid: int | None = INTEGER
    attempt_key: str | None = TEXT
    problems: tuple[str, ...] = PROBLEMS


def rank_file(rank: int) -> str:
    """Return the name of a rank's file in the folder of its run."""
    return f"{RANKS}/{rank}.json"


def read_rank(folder: str | os.PathLike[str], rank: int) -> RankBeat | Unreadable | None:
    """Return one rank's own file; None if there is none."""
    source = read_json(os.path.join(folder, rank_file(rank)))
    return RankBeat.from_json(source).replace(rank=rank) if isinstance(source, JsonObject) else source


def read_ranks(folder: str | os.PathLike[str]) -> list[RankBeat | Unreadable]:
    """Return the file of each rank, by rank, of whichever attempt wrote it last: compare `attempt_key`."""
    try:
        names = os.listdir(os.path.join(folder, RANKS))
    except OSError:
        return []
    stems = (stem for stem, dot, end in (name.partition(".") for name in names) if end == "json" and _is_rank(stem))
    read = (read_rank(folder, rank) for rank in sorted(int(stem) for stem in stems))
    return [beat for beat in read if beat is not None]


def _is_rank(stem: str) -> bool:
    return stem.isascii() and stem.isdigit() and len(stem) < 8 and str(int(stem)) == stem
