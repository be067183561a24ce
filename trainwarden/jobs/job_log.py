"""The output of one job, read where it lies, and kept in the run's record in bounded size."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from trainwarden.capabilities import reading_any
from trainwarden.exec.log_file import LogFile
from trainwarden.exec.tail import Tail
from trainwarden.signals.tailing.follower import Follower
from trainwarden.signals.tailing.opening import OwnedRoots, Refused
from trainwarden.signals.tailing.remainder import Position

# Of a log that is there already when its job is first seen: its end.
FIRST_READ = 8 * 2**20
# Of all files of a job in one look; the rest is read in the next.
LOOK_BYTES = 16 * 2**20
# A log that is ahead of its reader by more is read from so many bytes before its end, as at first.
MAX_LAG = 64 * 2**20
# Of the copy in the record, and once as much in the file that it was renamed to.
COPY_BYTES = 16 * 2**20
_PIECE = 256 * 1024
# A line that has no end so far is taken as it is.
_LINE = 64 * 1024


class JobLog:
    """The files of a job's output, each followed by its path; whole lines of all of them, in the order they are read.

    Only plain files of the job's own user are opened, whatever the paths lead to. Two paths to one file are one.

    Args:
        paths: of its output; need not exist yet.
        owner: uid of the job's user.
        copy: path of the copy; its folder exists.
        add: is called with what was read, whole lines.
        roots: folders outside of which nothing is read.

    Attributes:
        tail: the end of it all.
        problems: why a file is not read, by its path.
    """

    def __init__(
        self,
        paths: Sequence[str],
        owner: int,
        copy: Path,
        add: Callable[[bytes], None],
        roots: Sequence[str] = ("/",),
    ) -> None:
        self.tail = Tail()
        self.problems: dict[str, str] = {}
        self._add = add
        self._copy_path = copy
        self._copy: LogFile | None = None
        self._allowed = OwnedRoots(roots, owner, alone=True)
        self._files: list[_File] = []
        self.follow(paths)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that are followed."""
        return tuple(each.follower.path for each in self._files)

    @property
    def was_seen(self) -> bool:
        """Whether there has been one of the files."""
        return any(each.position() is not None for each in self._files)

    def follow(self, paths: Sequence[str]) -> None:
        """Follow these files, too."""
        new = [path for path in paths if path not in self.paths]
        self._files += [_File(Follower(path, self._allowed, first_read=FIRST_READ)) for path in new]

    def positions(self) -> dict[str, Any]:
        """Return how far each file was read, for JSON."""
        found = {each.follower.path: each.position() for each in self._files}
        return {path: position.as_json() for path, position in found.items() if position}

    def go_on(self, positions: Mapping[str, Any]) -> None:
        """Continue from what `positions` returned; a position that is none is left out."""
        for each in self._files:
            with contextlib.suppress(KeyError, ValueError, TypeError, AttributeError):
                each.follower.resume(Position.of_json(positions[each.follower.path]))

    def read(self, *, over: bool = False) -> int:
        """Read what is new, at most `LOOK_BYTES` of it; return how many bytes that were.

        Args:
            over: nothing follows: lines without an end count.
        """
        known: set[tuple[int, int]] = set()
        found = 0
        for index, each in enumerate(self._files):
            # The first file must not take the share of those after it, and may have what those before it left.
            room = (LOOK_BYTES - found) // (len(self._files) - index)
            try:
                with reading_any():
                    each.follower.poll()
                identity = each.follower.identity
                if identity is not None and identity in known:
                    continue
                if identity is not None:
                    known.add(identity)
                if each.follower.lag > MAX_LAG:
                    each.follower.skip_to_end(FIRST_READ)
                while room > 0 and (data := self._take(each, over=over)) is not None:
                    room -= max(1, len(data))
                    found += len(data)
                    self._keep(data)
                # A thousand jobs have more files than a process may have open.
                with reading_any():
                    each.follower.close_idle()
            except Refused as error:
                self.problems[each.follower.path] = str(error)
            except OSError as error:
                self.problems[each.follower.path] = f"{each.follower.path}: {error.strerror or error}"
            else:
                self.problems.pop(each.follower.path, None)
        return found

    def close(self) -> None:
        """Close all files."""
        for each in self._files:
            each.follower.close()
        if self._copy is not None:
            self._copy.close()
            self._copy = None

    def _take(self, file: _File, *, over: bool) -> bytes | None:
        with reading_any():  # a file that has been rotated is opened in it
            return file.take(over=over)

    def _keep(self, data: bytes) -> None:
        self._add(data)
        self.tail.add(data)
        if self._copy is None:
            try:
                self._copy = LogFile(self._copy_path, COPY_BYTES)
            except OSError as error:
                self.problems[""] = f"{self._copy_path}: {error.strerror or error}"
                return
        self._copy.write(data)


class _File:
    """One file, and the beginning of its last line."""

    def __init__(self, follower: Follower) -> None:
        self.follower = follower

    def position(self) -> Position | None:
        return self.follower.position

    def take(self, *, over: bool) -> bytes | None:
        """Return the next whole lines; None if there are none."""
        piece = self.follower.read(_PIECE)
        if piece is None:
            return None
        # A progress bar ends its lines with a carriage return.
        end = max(piece.data.rfind(b"\n"), piece.data.rfind(b"\r")) + 1
        is_last = piece.last or over
        if not end or is_last:
            if not is_last and len(piece.data) < _LINE:
                return None
            self.follower.consume(len(piece.data))
            return piece.data if piece.data.endswith((b"\n", b"\r")) else piece.data + b"\n"
        self.follower.consume(end)
        return piece.data[:end]
