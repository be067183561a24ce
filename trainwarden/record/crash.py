"""`ranks/<rank>.trace`: what Python's faulthandler wrote when the interpreter crashed.

A process that crashes in native code runs no Python any more, so its record still has the status `running`. A reader
that finds the trace, and the process gone, takes the attempt for failed.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.identity import host_name, process_lives, process_start_ticks
from trainwarden.record.document import FileContent, read_file
from trainwarden.record.folder import RANKS
from trainwarden.record.metadata import Metadata
from trainwarden.record.sentinels import Sentinel, failure_sentinel
from trainwarden.record.store import RecordStore
from trainwarden.taxonomy import FAILURES

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

# A file that is no longer than its first line holds no trace: of thousands of ranks only the size is read.
HEADER_BYTES = 512
# Ends the name of a trace of an earlier attempt that no `_error` is written for yet.
OLDER = ".1"

# What it costs to look at names, and to read a page of a trace, where looking at one name costs 1.
_NAMES_AT_ONCE, _COST_OF_PAGE = 64, 16

_FATAL = "Fatal Python error: "
# The names that faulthandler writes.
_SIGNALS = {
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Bus error": signal.SIGBUS,
    "Floating-point exception": signal.SIGFPE,
    "Floating point exception": signal.SIGFPE,
    "Illegal instruction": signal.SIGILL,
}
_FRAME = re.compile(r'^ +File "(.*)", line (\d+) in (.*)$')


@dataclass(frozen=True)
class Crash:
    """One rank's interpreter crash. `cause` is faulthandler's name of it, `where` the Python frame that called."""

    rank: int
    attempt_key: str
    host: str | None
    pid: int | None
    time: float
    cause: str
    where: str | None
    trace: str

    @property
    def message(self) -> str:
        """What happened, in one line."""
        place = f" in {self.where}" if self.where else ""
        return f"rank {self.rank} crashed{place}: {self.cause}"

    @property
    def exit_code(self) -> int | None:
        """The exit status that a shell shows; None where the cause is no signal."""
        return 128 + _SIGNALS[self.cause] if self.cause in _SIGNALS else None


def header(key: str) -> bytes:
    """Return the first line of this process's trace."""
    pid = os.getpid()
    line = f"attempt_key={key} pid={pid} start={process_start_ticks(pid) or 0} host={host_name()}"
    return line.encode("utf-8", "replace")[: HEADER_BYTES - 1].ljust(HEADER_BYTES - 1) + b"\n"


def crash_of(
    folder: Path,
    metadata: Metadata | None,
    owner: int | None = None,
    take: Callable[[int], bool] | None = None,
    names: Iterable[str] | None = None,
) -> Crash | None:
    """Return the first crash of a rank of the attempt that owns the record, if that has no end in the record yet.

    Args:
        folder: of the run.
        metadata: of the run.
        owner: uid; only the traces that belong to this user count, unless it is None.
        take: called before each part of the work with what it costs; looking ends when it returns False.
        names: of the traces in the folder of ranks; they are looked for if None.
    """
    if metadata is None or metadata.attempt_key is None or not metadata.is_live:
        return None
    found = (read_crash(path, owner) for path in traces(folder, owner, take, names))
    ours = [crash for crash in found if crash and crash.attempt_key == metadata.attempt_key]
    return min(ours, key=lambda crash: crash.time, default=None)


def crash_error(
    folder: Path,
    metadata: Metadata | None,
    owner: int | None = None,
    take: Callable[[int], bool] | None = None,
    names: Iterable[str] | None = None,
) -> Sentinel | None:
    """Return the `_error` for `crash_of` with the same arguments; None if there is no such crash. Never raises."""
    crash = crash_of(folder, metadata, owner, take, names)
    if crash is None or metadata is None:
        return None
    number = metadata.number_of(crash.attempt_key)
    return failure_sentinel(run_id=folder.name, attempt=number, **_as_failure(crash))


def record_crash(folder: Path, metadata: Metadata | None) -> bool:
    """Write the `_error` for `crash_of(folder, metadata)`; False if there is no such crash, or an `_error` before.

    Raises:
        OSError: the folder cannot be written.
    """
    crash = crash_of(folder, metadata)
    return crash is not None and RecordStore(folder).record_failure(**_as_failure(crash))


def _as_failure(crash: Crash) -> dict[str, Any]:
    return {
        "key": crash.attempt_key,
        "failure": FAILURES["crash_signal"],
        "message": crash.message,
        "rank": crash.rank,
        "traceback": crash.trace,
        "exit_code": crash.exit_code,
        "host": crash.host,
        "when": crash.time,
    }


def forget_crashes(folder: Path, key: str, *, begun_before: bool) -> None:
    """Remove the traces of attempts before the start of `key`; a rank of this one may have crashed already.

    Raises:
        OSError: the folder cannot be written.
    """
    for path in traces(folder):
        crash = read_crash(path)
        if crash and (begun_before or crash.attempt_key != key):
            path.unlink(missing_ok=True)


def traces(
    folder: Path,
    owner: int | None = None,
    take: Callable[[int], bool] | None = None,
    names: Iterable[str] | None = None,
) -> list[Path]:
    """Return the files that hold more than a first line; only those of the user `owner` (uid), unless it is None.

    `take` is called with the cost of each part of the work, of which looking at one name is 1; none is returned once it
    returns False. `names` are those in the folder of ranks, which is listed if it is None.
    """
    found: list[Path] = []
    place = f"{folder}/{RANKS}"
    with contextlib.suppress(OSError):
        for number, name in enumerate(_listed(place) if names is None else names):
            if take is not None and number % _NAMES_AT_ONCE == 0 and not take(_NAMES_AT_ONCE):
                return []
            size = _size(f"{place}/{name}", owner) if is_trace(name) else 0
            if size > HEADER_BYTES:
                if take is not None and not take(_COST_OF_PAGE * (1 + size // 4096)):
                    return []
                found.append(Path(place, name))
    return found


def is_trace(name: str) -> bool:
    """Return whether a file of this name in the folder of ranks is a trace."""
    rank, _, kind = name.partition(".")
    return kind in ("trace", f"trace{OLDER}") and rank.isascii() and rank.isdigit() and len(rank) < 8


def trace_path(folder: Path, rank: int) -> Path:
    """Return where the trace of a rank is."""
    return folder / RANKS / f"{rank}.trace"


def read_crash(path: Path, owner: int | None = None) -> Crash | None:
    """Return the crash that a file describes; None if it has none, or if the process that it names still lives.

    A file of another user than `owner` (uid), unless that is None, is none either: it may have taken the place of the
    one that was looked at.
    """
    content = read_file(path)
    if not isinstance(content, FileContent) or owner not in (None, content.owner):
        return None
    first, _, rest = content.data.decode("utf-8", "replace").partition("\n")
    stated = dict(pair.partition("=")[::2] for pair in first.split())
    lines = rest.splitlines()
    # A trace that was dumped on request has no such line.
    fatal = next((index for index, line in enumerate(lines) if line.startswith(_FATAL)), None)
    pid, start = _number(stated.get("pid")), _number(stated.get("start"))
    host = stated.get("host")
    if fatal is None or "attempt_key" not in stated or (host == host_name() and _lives(pid, start)):
        return None
    return Crash(
        rank=int(path.name.partition(".")[0]),
        attempt_key=stated["attempt_key"],
        host=host,
        pid=pid,
        time=content.modified,
        cause=lines[fatal][len(_FATAL) :].strip()[:200],
        where=_where(lines[fatal:]),
        trace="\n".join(lines[fatal:]),
    )


def _where(lines: list[str]) -> str | None:
    # The thread that crashed is the one called current, wherever in the list it stands.
    current = next((index for index, line in enumerate(lines) if line.startswith("Current thread")), len(lines))
    frame = next((match for line in lines[current + 1 : current + 2] if (match := _FRAME.match(line))), None)
    return f"{os.path.basename(frame[1])}:{frame[2]} ({frame[3]})"[:200] if frame else None  # noqa: PTH119  # a name out of a text


def _lives(pid: int | None, start: int | None) -> bool:
    return pid is not None and process_lives(pid) and (not start or process_start_ticks(pid) == start)


def _number(text: str | None) -> int | None:
    return int(text) if text and text.isascii() and text.isdigit() and len(text) < 20 else None


def _listed(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            yield entry.name


def _size(path: str, owner: int | None) -> int:
    """Return the size of a file that counts, of another 0."""
    try:
        status = os.lstat(path)
    except OSError:
        return 0
    return status.st_size if owner in (None, status.st_uid) else 0
