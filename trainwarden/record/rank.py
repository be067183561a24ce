"""The liveness, step and end of each rank.

`ranks/<host>-<hash>.json` holds all ranks of a host, so that a metadata server sees one file of each host. The library
writes it. `ranks/<rank>.json` holds one rank: `exec`, shell commands, launchers and older versions write it, and the
library where the ranks of a host cannot share a file. Of both the newest counts.
"""

# Shell commands load this: pathlib is slow to import.
# ruff: noqa: PTH108, PTH118, PTH208

from __future__ import annotations

import os

from trainwarden.record.clock import from_own_form
from trainwarden.record.document import FileContent, JsonObject, Unreadable, parse_json, read_file, read_json
from trainwarden.record.folder import RANKS
from trainwarden.record.metadata import PHASE, STATUS
from trainwarden.record.schema import (
    INTEGER,
    OWNER,
    PROBLEMS,
    TEXT,
    TIME,
    RecordDocument,
    key,
    read_part,
    required,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
    from typing import Any

# More than a host has cores. The file of so many is smaller than the bytes that are read.
MAX_RANKS_OF_HOST = 1024
_MAX_HOST_BYTES = 2**20
# Of a step, by the names that the training gives them.
MAX_SECTIONS = 8
_MAX_SECTION = 32
_MAX_RANK = 10**7 - 1
_MAX_PROBLEMS = 3
_HASH_DIGITS = 8
_OLD_SECONDS = 60.0
# Of a step that is read without JSON, and of a time as the library writes it.
_STEP_DIGITS, _TIME_BYTES = 11, 27


def is_section(name: str) -> bool:
    """Return whether a text can be the name of a section: letters, digits, `_`, `-` and `.`, a letter first."""
    return (
        name.isascii()
        and len(name) <= _MAX_SECTION
        and name[:1].isalpha()
        and all(each.isalnum() or each in "_-." for each in name)
    )


def _read_sections(source: JsonObject, name: str) -> dict[str, float] | None:
    child = source.child(name) if name in source.values else None
    if child is None:
        return None
    found: dict[str, float] = {}
    for section in child.values:
        seconds = child.number(section) if is_section(section) else None
        if seconds is not None and seconds >= 0 and len(found) < MAX_SECTIONS:
            found[section] = seconds
    return found or None


_SECTIONS: Any = key(_read_sections, lambda sections: dict(sections) or None, {})


class RankBeat(RecordDocument):
    """`ranks/<rank>.json`: `time` is the liveness of the rank's process, `step` where its loop is, `status` its end.

    `gpu` is the number of its GPU on the host and `uuid` the GPU's. `process_start` (clock ticks since boot) and
    `pid_namespace` belong to `pid`. `gpu_taken_bytes` is the memory of its GPU that others used before training,
    where that was too much. `sections` are mean seconds of a step. `owner` is the uid that the file belongs to which it
    was read from.
    """

    rank: int = required(INTEGER)
    step: int | None = INTEGER
    phase: str | None = PHASE
    status: str | None = STATUS
    time: float | None = TIME
    host: str | None = TEXT
    pid: int | None = INTEGER
    attempt_key: str | None = TEXT
    gpu: int | None = INTEGER
    uuid: str | None = TEXT
    gpu_taken_bytes: int | None = INTEGER
    process_start: int | None = INTEGER
    pid_namespace: int | None = INTEGER
    sections: Mapping[str, float] = _SECTIONS
    owner: int | None = OWNER
    problems: tuple[str, ...] = PROBLEMS


def _order(beat: RankBeat) -> tuple[float, bool]:
    """Return the order of the beats of one rank: the last counts, and of the same time an end."""
    return beat.time or 0.0, beat.status not in (None, "running")


def _read_beats(source: JsonObject, name: str) -> tuple[RankBeat, ...]:
    beats = []
    for number, values in enumerate(source.objects(name)):
        if number == MAX_RANKS_OF_HOST:
            source.problems.append(f"{name}: more than {MAX_RANKS_OF_HOST} ranks of a host, which are left out")
            break
        # Each rank answers for what it wrote itself: its problems are its own.
        beat = read_part(RankBeat, JsonObject(values, source.modified, owner=source.owner))
        if beat is None or beat.rank > _MAX_RANK:
            source.problems.append(f"{name}[{number}].rank: {str(values.get('rank'))[:60]!r} is no rank")
        else:
            beats.append(beat)
    return tuple(beats)


_BEATS: Any = key(_read_beats, lambda beats: [beat.to_json() for beat in beats], ())


class HostBeats(RecordDocument):
    """`ranks/<host>-<hash>.json`: the ranks of one host, each as its own process wrote it last."""

    host: str | None = TEXT
    ranks: tuple[RankBeat, ...] = _BEATS
    problems: tuple[str, ...] = PROBLEMS


def rank_file(rank: int) -> str:
    """Return the name of a rank's own file in the folder of its run."""
    return f"{RANKS}/{rank}.json"


def host_file(host: str, digits: str) -> str:
    """Return the name of the file of a host's ranks in the folder of their run.

    Args:
        host: its name.
        digits: eight hexadecimal ones, different for hosts and containers of one name.
    """
    return f"{RANKS}/{_as_name(host)}-{digits}.json"


def read_host(folder: str | os.PathLike[str], name: str) -> HostBeats | Unreadable | None:
    """Return the file of a host's ranks; None if there is none."""
    return _read_host(os.path.join(folder, name))


def _read_host(path: str, folder: int | None = None) -> HostBeats | Unreadable | None:
    content = read_file(path, _MAX_HOST_BYTES, folder)
    return _host_beats(content, path) if isinstance(content, FileContent) else content


def _host_beats(content: FileContent, path: str) -> HostBeats | Unreadable:
    source = parse_json(content, path)
    return HostBeats.from_json(source) if isinstance(source, JsonObject) else source


class HostFile:
    """Reads the file of a host's ranks again and again.

    While a rank trains only its step and its time change. Where the rest of the file is that of before, which a hash
    shows without keeping it, nothing else is parsed.
    """

    def __init__(self) -> None:
        self._rest: int | None = None
        self._known = HostBeats()

    def read(self, path: str, folder: int | None = None) -> HostBeats | Unreadable | None:
        """Return what `read_host` does; arguments as those of `read_file`."""
        content = read_file(path, _MAX_HOST_BYTES, folder)
        if not isinstance(content, FileContent):
            return content
        if self._rest is not None:
            rest, beats = _with_steps(content, self._known.ranks)
            if rest == self._rest:
                self._known = self._known.replace(ranks=beats)
                return self._known
        found, self._rest = _host_beats(content, path), None
        if isinstance(found, HostBeats):
            rest, beats = _with_steps(content, found.ranks)
            # Where a key of that name stands elsewhere too, what was found is not that of the ranks.
            if beats == found.ranks:
                self._rest, self._known = rest, found
        return found


def _with_steps(content: FileContent, beats: Sequence[RankBeat]) -> tuple[int | None, tuple[RankBeat, ...]]:
    """Return a hash of all of a file but the steps and times of its ranks, and the beats with these; None without one.

    Args:
        content: of the file, as the library writes it.
        beats: those that it is to have, in its order.
    """
    first, *pieces = content.data.decode("latin-1").split('"step": ')
    if len(pieces) != len(beats):
        return None, ()
    rest: list[object] = [content.owner, first]
    found = []
    for beat, piece in zip(beats, pieces, strict=True):
        step, _, behind = piece.partition(",")
        between, _, tail = behind.partition('"time": "')
        time = from_own_form(tail[:_TIME_BYTES])
        if time is None or not step.isdecimal() or len(step) > _STEP_DIGITS:
            return None, ()
        rest += (between, tail[_TIME_BYTES:])
        given = beat.__dict__.copy()
        given["step"], given["time"] = int(step), time
        moved = RankBeat.__new__(RankBeat)
        moved.__dict__ = given
        found.append(moved)
    return hash(tuple(rest)), tuple(found)


def host_files(folder: str | os.PathLike[str]) -> list[str]:
    """Return the names of the files of all hosts in the folder of a run."""
    return [f"{RANKS}/{name}" for name in _names(folder) if _host_of(name) is not None]


def remove_old_hosts(folder: str | os.PathLike[str], key: str, now: float) -> None:
    """Remove the files of hosts that have no rank of the attempt `key`, nor wrote within a minute before `now`.

    The next attempt on the same host replaces its file; where each start gets hosts of other names, as in Kubernetes,
    they would gather.

    Raises:
        OSError: a file cannot be removed.
    """
    for name in host_files(folder):
        beats = read_host(folder, name)
        ranks = beats.ranks if isinstance(beats, HostBeats) else ()
        if ranks and all(beat.attempt_key != key and now - (beat.time or 0.0) > _OLD_SECONDS for beat in ranks):
            os.unlink(os.path.join(folder, name))


def read_ranks(
    folder: str | os.PathLike[str],
    *,
    ranks: Container[int] | None = None,
    host: str | None = None,
    names: Iterable[str] | None = None,
    limit: int | None = None,
    hosts: dict[str, HostFile] | None = None,
    descriptor: int | None = None,
) -> list[RankBeat | Unreadable]:
    """Return the newest beat of each rank and attempt, by rank: compare `attempt_key`; then what cannot be read.

    Args:
        folder: of the run.
        ranks: those to return; all if None.
        host: whose file is read, beside those of single ranks; the files of all hosts if None.
        names: of the files in the folder of ranks, those of `holds_ranks`; they are looked for if None.
        limit: reading ends once there are more.
        hosts: what is kept of the files of hosts, by name, if the folder is read again and again.
        descriptor: of the open folder of ranks, whatever is at the path now.
    """
    if names is None:
        names = [name for name in _names(folder) if holds_ranks(name, host)]
    beats: list[RankBeat] = []
    unreadable: list[Unreadable] = []
    for some, problem in _read_files(folder, names, ranks, hosts, descriptor):
        beats += some
        if problem is not None:
            unreadable.append(problem)
        if limit is not None and len(beats) + len(unreadable) > limit:
            break
    found: list[RankBeat | Unreadable] = [*_newest_of_attempts(beats), *unreadable]
    return found if limit is None else found[: limit + 1]


def _newest_of_attempts(beats: list[RankBeat]) -> list[RankBeat]:
    """Return the newest beat of each rank and attempt, by rank."""
    if _are_in_order(beats):
        return beats
    newest: dict[tuple[int, str | None], RankBeat] = {}
    for beat in beats:
        one = beat.rank, beat.attempt_key
        known = newest.get(one)
        newest[one] = beat if known is None else max(known, beat, key=_order)
    return sorted(newest.values(), key=lambda beat: beat.rank)


def _are_in_order(beats: Sequence[RankBeat]) -> bool:
    """Return whether each rank occurs once, by rank, as in the file of one host."""
    ranks = [beat.rank for beat in beats]
    return ranks == sorted(set(ranks))


def holds_ranks(name: str, host: str | None = None) -> bool:
    """Return whether `read_ranks` reads a file of this name in the folder of ranks."""
    if name.endswith(".json") and _is_rank(name[: -len(".json")]):
        return True
    of = _host_of(name)
    return of is not None and (host is None or of == _as_name(host))


def read_rank(
    folder: str | os.PathLike[str], rank: int, *, key: str | None = None, host: str | None = None
) -> RankBeat | Unreadable | None:
    """Return the newest beat of a rank; what cannot be read if there is none, None if there is nothing.

    Args:
        folder: of the run.
        rank: number of the rank.
        key: of the attempt; whichever was last if None.
        host: whose file is read first. Those of other hosts are read only where the rank is not in it.
    """
    names, files = _names(folder), [f"{rank}.json"]
    here = [] if host is None else [name for name in names if _host_of(name) == _as_name(host)]
    elsewhere = [name for name in names if _host_of(name) is not None and name not in here]
    found: list[RankBeat | Unreadable] = []
    for some in (here, elsewhere):
        if not newest_beats(found):
            found += _of_attempt(folder, some, rank, key)
    found += _of_attempt(folder, files, rank, key)
    return next(iter(newest_beats(found) or found), None)


def newest_beats(found: Iterable[RankBeat | Unreadable]) -> tuple[RankBeat, ...]:
    """Return the newest beat of each rank, by rank."""
    beats = [beat for beat in found if isinstance(beat, RankBeat)]
    if _are_in_order(beats):
        return tuple(beats)
    newest: dict[int, RankBeat] = {}
    for beat in beats:
        before = newest.get(beat.rank)
        newest[beat.rank] = beat if before is None else max(before, beat, key=_order)
    return tuple(newest[rank] for rank in sorted(newest))


def _of_attempt(
    folder: str | os.PathLike[str], names: Iterable[str], rank: int, key: str | None
) -> Iterator[RankBeat | Unreadable]:
    """Yield the beats of a rank in these files, of any attempt if `key` is None, and what cannot be read of them."""
    for beats, problem in _read_files(folder, names, (rank,)):
        yield from (beat for beat in beats if key is None or beat.attempt_key == key)
        if problem is not None:
            yield problem


def _read_files(
    folder: str | os.PathLike[str],
    names: Iterable[str],
    ranks: Container[int] | None,
    hosts: dict[str, HostFile] | None = None,
    descriptor: int | None = None,
) -> Iterator[tuple[Sequence[RankBeat], Unreadable | None]]:
    """Yield the beats of each file, and what of it cannot be read."""
    for name in names:
        stem = name[: -len(".json")]
        if _is_rank(stem):
            rank = int(stem)
            if ranks is None or rank in ranks:
                source = read_json(os.path.join(folder, rank_file(rank)), folder=descriptor)
                if isinstance(source, JsonObject):
                    yield (RankBeat.from_json(source).replace(rank=rank),), None
                elif source is not None:
                    yield (), source
        elif _host_of(name) is not None:
            path = os.path.join(folder, RANKS, name)
            read = _read_host if hosts is None else hosts.setdefault(name, HostFile()).read
            beats = read(path, descriptor)
            if isinstance(beats, HostBeats):
                problem = None
                if beats.problems:
                    text = "; ".join(beats.problems[:_MAX_PROBLEMS])
                    problem = Unreadable(path, text)
                yield beats.ranks if ranks is None else [beat for beat in beats.ranks if beat.rank in ranks], problem
            elif beats is not None:
                yield (), beats


def _names(folder: str | os.PathLike[str]) -> list[str]:
    try:
        return sorted(name for name in os.listdir(os.path.join(folder, RANKS)) if name.endswith(".json"))
    except OSError:
        return []


def _is_rank(stem: str) -> bool:
    return stem.isascii() and stem.isdigit() and len(stem) < 8 and str(int(stem)) == stem


def _host_of(name: str) -> str | None:
    """Return the host that a file's name states, as it stands there; None for another file."""
    host, dash, digits = name[: -len(".json")].rpartition("-")
    is_hash = len(digits) == _HASH_DIGITS and not digits.strip("0123456789abcdef")
    return host if dash and host and is_hash and name.endswith(".json") and not name.startswith(".") else None


def _as_name(host: str) -> str:
    """Return a host's name as it stands in the name of a file; a host may be called anything."""
    plain = "".join(each if each.isascii() and (each.isalnum() or each in "._-") else "_" for each in host[:128])
    return f"_{plain}" if plain[:1] in ("", ".") else plain
