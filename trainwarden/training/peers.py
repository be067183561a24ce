"""The other ranks of an attempt on this host, as far as one rank can see them."""

from pathlib import Path

from trainwarden.identity import host_name, process_lives
from trainwarden.record.files import RankBeat, read_rank

# Launchers number the ranks of one host one after the other; a thousand ranks must not read a thousand files each.
_NEIGHBOURS = 15


def fallen_peer(folder: Path, key: str, rank: int) -> RankBeat | None:
    """A rank of the attempt `key` on this host whose process is gone and left no last word; None if there is none.

    Only neighbours of `rank` are looked at, by their files in the record.
    """
    for other in range(max(0, rank - _NEIGHBOURS), rank + _NEIGHBOURS + 1):
        beat = read_rank(folder, other) if other != rank else None
        if (
            isinstance(beat, RankBeat)
            and (beat.attempt_key, beat.host, beat.status) == (key, host_name(), "running")
            and beat.pid is not None
            and not process_lives(beat.pid)
        ):
            return beat
    return None
