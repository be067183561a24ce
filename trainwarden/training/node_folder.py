"""A folder in the memory of this node, in which the ranks of an attempt leave what all of them publish as one file.

Other users of the node may write beside it, so that nothing of theirs is read, followed or written to.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
import time
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path

from trainwarden.descriptor import HeldDescriptor
from trainwarden.identity import boot_id, host_name
from trainwarden.record.document import JsonObject, read_json
from trainwarden.record.folder import encode, replace_file
from trainwarden.record.rank import MAX_RANKS_OF_HOST, RankBeat

VARIABLE = "TRAINWARDEN_NODE_DIR"
_MEMORY = "/dev/shm"  # noqa: S108  # its folders are checked
_LOCK, _PUBLISHED = ".lock", ".published"
_POLL_SECONDS = 0.005
# A live rank writes once a second; one that was stopped for so long makes the folder anew.
_ABANDONED_SECONDS = 600.0
_NEVER = float("-inf")


class NodeFolder:
    """The beats of the ranks of one attempt on this node, and which of them are published.

    Every method but `lock` raises nothing where the folder cannot be used: it does nothing then.

    Args:
        record: the folder of the run.
        key: of the attempt.
        environ: may name another place than `/dev/shm`; an empty one is none.

    Attributes:
        digits: eight hexadecimal ones, different from those of other hosts and containers of the same name.
    """

    def __init__(self, record: Path, key: str, environ: Mapping[str, str] = os.environ) -> None:
        self._base = environ.get(VARIABLE, _MEMORY)
        record = record.resolve()
        place = (host_name(), os.geteuid(), boot_id(), _device(self._base), _device(record), os.fspath(record))
        self.digits = _hash(place)
        self._key = key
        self._mine = Path(self._base, f"trainwarden-{os.geteuid()}")
        self._path = self._mine / f"{self.digits}-{_hash((key,))}"
        self._has_swept = False

    @property
    def path(self) -> Path:
        """Where it is; it may not be there, or not be usable."""
        return self._path

    def prepare(self) -> bool:
        """Return whether the folder is there, made now if need be, and belongs to this user alone."""
        if not self._base or not _is_safe(self._base):
            return False
        try:
            for path in (self._mine, self._path):
                with contextlib.suppress(FileExistsError):
                    path.mkdir(mode=0o700)
                if not _is_private(path):
                    return False
            self._make_published()
        except OSError:
            return False
        if not self._has_swept:
            self._has_swept = True
            self._remove_abandoned()
        return True

    def write(self, beat: RankBeat) -> bool:
        """Write the beat of a rank; False if that cannot be done."""
        if not self.prepare():
            return False
        try:
            replace_file(self._path / f"{beat.rank}.json", encode(beat.to_json()))
        except OSError:
            return False
        return True

    def beats(self) -> dict[int, RankBeat]:
        """Return the beats of all ranks, by rank; an unreadable one is left out."""
        if not self.prepare():
            return {}
        found = {}
        for path in sorted(self._path.glob("*.json"))[:MAX_RANKS_OF_HOST]:
            source = read_json(path)
            beat = RankBeat.from_json(source) if isinstance(source, JsonObject) else None
            if beat is not None and beat.attempt_key == self._key:
                found[beat.rank] = beat.replace(problems=())
        return found

    @property
    def published(self) -> float:
        """When the beats were last collected that are published by now, by the monotonic clock; -inf if never."""
        try:
            moment = float((self._path / _PUBLISHED).read_bytes())
        except (OSError, ValueError):
            return _NEVER
        return moment if moment <= time.monotonic() else _NEVER

    def set_published(self, moment: float) -> None:
        """Set `published`. It is written in place, so that a full memory does not have everything published again."""
        with contextlib.suppress(OSError), open(self._path / _PUBLISHED, "r+b", buffering=0) as file:  # noqa: PTH123
            file.write(b"%20.6f" % moment)

    @contextlib.contextmanager
    def lock(self, seconds: float) -> Iterator[bool]:
        """Hold the lock of the folder; False where it could not be had within `seconds`.

        The kernel frees it when the process ends, whatever children it has forked: it belongs to the process, not to
        the open file.
        """
        descriptor = self._open_lock()
        try:
            yield descriptor is not None and _locked(descriptor.number, time.monotonic() + seconds)
        finally:
            if descriptor is not None:
                descriptor.close()

    def remove(self) -> None:
        """Remove the folder with all beats."""
        _remove(self._path)

    def _make_published(self) -> None:
        path = self._path / _PUBLISHED
        if not path.exists() or path.stat().st_size == 0:
            # Of its later size: where the memory is full by then, nothing grows.
            replace_file(path, b"%20.6f" % _NEVER)

    def _open_lock(self) -> HeldDescriptor | None:
        if not self.prepare():
            return None
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            return HeldDescriptor(os.open(self._path / _LOCK, flags, 0o600))
        except OSError:
            return None

    def _remove_abandoned(self) -> None:
        with contextlib.suppress(OSError):
            for path in self._mine.iterdir():
                if time.time() - path.lstat().st_mtime > _ABANDONED_SECONDS:
                    _remove(path)


def _locked(descriptor: int, deadline: float) -> bool:
    while True:
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):  # noqa: PERF203  # a lock is polled
            if time.monotonic() >= deadline:
                return False
            time.sleep(_POLL_SECONDS)
        except OSError:
            # The file system has no locks.
            return False
        else:
            return True


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):
        for each in path.iterdir():
            each.unlink()
        path.rmdir()


def _is_safe(base: str) -> bool:
    """Return whether only root and this user can rename what this user makes in `base`."""
    try:
        status = os.stat(base)  # noqa: PTH116  # it may be a link
    except OSError:
        return False
    is_shared = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
    return status.st_uid in (0, os.geteuid()) and (not is_shared or bool(status.st_mode & stat.S_ISVTX))


def _is_private(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o077


def _device(path: str | Path) -> int | None:
    try:
        return os.stat(path).st_dev  # noqa: PTH116  # an empty text is no Path
    except OSError:
        return None


def _hash(parts: tuple[object, ...]) -> str:
    # The folder is this user's alone, so that a collision is no attack; hashlib would load OpenSSL.
    return f"{zlib.crc32(repr(parts).encode('utf-8', 'surrogateescape')):08x}"
