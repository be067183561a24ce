"""Which process a run folder belongs to: two live runs never share one.

Rank 0 holds a POSIX record lock on `.owner` while it lives. The kernel drops it however the process ends, forked
children do not inherit it, and its holder can be read without disturbing it. Between hosts that share a file system
without locks, a fresh heartbeat of another job counts as one.

A process that runs a training from outside, such as `trainwarden exec`, holds `.wrapper` in the same way. A training of
the same job inside it may own the folder beside it; one of another job may not.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from trainwarden.identity import AttemptKey, InvalidAttemptKey, host_name
from trainwarden.record.document import JsonObject, read_json
from trainwarden.record.folder import OWNER, WRAPPER, encode
from trainwarden.record.locks import lock_holder
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.schema import INTEGER, TEXT, TIME, RecordDocument

# Liveness is written every 5 s; a shared file system may show it a minute late.
FRESH_SECONDS = 60.0
# How long the next start of the same job waits for the end of the one before.
HANDOVER_SECONDS = 10.0

_UNSUPPORTED = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}

logger = logging.getLogger("trainwarden")

# Closing any descriptor of a file drops the process's own lock on it, so a file locked here must not be opened again.
_held: dict[Path, Ownership] = {}


class RunRefused(Exception):
    """`run()` will not start; the message names the folder, the variable or the argument, and the reason."""


class LockFile(RecordDocument):
    """`.owner` and `.wrapper`: the process that holds the lock on the file."""

    host: str | None = TEXT
    pid: int | None = INTEGER
    attempt_key: str | None = TEXT
    time: float | None = TIME


@dataclass(frozen=True)
class Owner:
    """A live process that a folder belongs to; unknown fields are None. `evidence` names how it was found.

    `last_sign`: the time of its heartbeat, Unix seconds, where that is the only evidence.
    """

    host: str | None
    pid: int | None
    attempt_key: str | None
    evidence: str
    last_sign: float | None = None

    def __str__(self) -> str:
        return (
            f"process {self.pid or '?'} on host {self.host or '?'}, attempt {self.attempt_key or '?'} ({self.evidence})"
        )


def owner_of(folder: Path, key: AttemptKey | None = None, *, now: float | None = None) -> Owner | None:
    """Return the live run that owns `folder`, if any; for a launcher before it starts a job.

    Args:
        folder: of the run.
        key: of the attempt that is to start. Heartbeats of earlier starts of its job do not count: its scheduler has
            ended those.
        now: Unix seconds; the clock's if None.
    """
    return (
        _lock_holder(folder / OWNER)
        or _foreign_wrapper(folder, key)
        or _fresh_stranger(folder, key, time.time() if now is None else now)
    )


class Ownership:
    """The lock on a folder. It ends with `release()` or with the process."""

    def __init__(self, path: Path, descriptor: int) -> None:
        self._path = path.absolute()
        self._descriptor: int | None = descriptor
        self._pid = os.getpid()
        _held[self._path] = self

    def is_ours(self) -> bool:
        """Return whether this process holds it, and not the one that it was forked from."""
        return os.getpid() == self._pid

    def release(self) -> None:
        """Release the folder; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        _held.pop(self._path, None)
        # In a forked child the number may meanwhile mean another file.
        if descriptor is not None and self.is_ours():
            with contextlib.suppress(OSError):
                os.close(descriptor)


def claim(
    folder: Path, key: AttemptKey, *, name: str = OWNER, wait_seconds: float = HANDOVER_SECONDS
) -> Ownership | None:
    """Take the folder for the attempt `key`; None where the file system has no locks, and no other run was found.

    Where a heartbeat is the only evidence of another job, wait until the next one comes, or this one is no longer
    fresh: a job that is submitted again right after its node was lost finds just that.

    Args:
        folder: of the run.
        key: of the attempt that is to start.
        name: of the lock: `.owner` for a training, `.wrapper` for what runs one.
        wait_seconds: how long an earlier start of the same job may take to end.

    Raises:
        RunRefused: another live run owns it, or the folder cannot be written.
    """
    deadline = time.monotonic() + wait_seconds
    first_sign: float | None = None
    while True:
        owner = owner_of(folder, key)
        if owner is not None and owner.last_sign is not None and first_sign in {None, owner.last_sign}:
            if first_sign is None:
                logger.warning("run folder %s may belong to a live run: %s; waiting whether it lives", folder, owner)
            first_sign = owner.last_sign
            time.sleep(0.1)
            continue
        if owner is None:
            try:
                return _lock(folder, name, key)
            except BlockingIOError:
                owner = _lock_holder(folder / name)
        earlier = owner is not None and _is_earlier_start(owner.attempt_key, key)
        if owner is not None and (not earlier or time.monotonic() > deadline):
            if earlier and owner.host not in {None, host_name()}:
                # Its scheduler has ended it; the lock that a lost host still seems to hold is never released.
                return None
            raise RunRefused(f"run folder {folder} belongs to a live run: {owner}; end that one, or use another run id")
        time.sleep(0.1)


def _lock(folder: Path, name: str, key: AttemptKey) -> Ownership | None:
    path = folder / name
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
    except OSError as error:
        raise RunRefused(f"run folder {folder} cannot be written: {error}") from None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Written in place: a file that is replaced takes its lock along.
        line = encode(LockFile(host_name(), os.getpid(), str(key), time.time()).to_json())
        os.pwrite(descriptor, line, 0)
        os.ftruncate(descriptor, len(line))
    except OSError as error:
        os.close(descriptor)
        if error.errno in {errno.EAGAIN, errno.EACCES}:
            raise BlockingIOError(error.errno, "another process holds the lock") from error
        if error.errno in _UNSUPPORTED:
            return None
        raise RunRefused(f"run folder {folder} cannot be written: {error}") from None
    return Ownership(path, descriptor)


def _lock_holder(path: Path) -> Owner | None:
    path = path.absolute()
    if path in _held and _held[path].is_ours():
        return Owner(host_name(), os.getpid(), None, "a run in progress in this process")
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        pid = lock_holder(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    if pid is None:
        return None
    source = read_json(path)
    stated = LockFile.from_json(source) if isinstance(source, JsonObject) else LockFile()
    return Owner(stated.host, stated.pid or pid or None, stated.attempt_key, "it holds the lock")


def _foreign_wrapper(folder: Path, key: AttemptKey | None) -> Owner | None:
    holder = _lock_holder(folder / WRAPPER)
    return None if holder is None or (key and _is_same_job(holder.attempt_key, key)) else holder


def _fresh_stranger(folder: Path, key: AttemptKey | None, now: float) -> Owner | None:
    metadata = read_metadata(folder)
    # On this host the lock has already answered.
    if not isinstance(metadata, Metadata) or metadata.host == host_name():
        return None
    return fresh_stranger(metadata, key, now)


def fresh_stranger(metadata: Metadata, key: AttemptKey | None, now: float) -> Owner | None:
    """Return the live run of another job that a record has only a heartbeat of; see `owner_of`."""
    if metadata.status != "running" or metadata.host is None or metadata.last_update is None:
        return None
    if abs(now - metadata.last_update) > FRESH_SECONDS or metadata.attempt_key is None:
        return None
    if key is not None and (metadata.attempt_key == str(key) or _is_earlier_start(metadata.attempt_key, key)):
        return None
    age = now - metadata.last_update
    return Owner(
        metadata.host,
        metadata.pid,
        metadata.attempt_key,
        f"its last sign of life is {age:.0f} s old",
        metadata.last_update,
    )


def _is_same_job(text: str | None, key: AttemptKey) -> bool:
    try:
        return AttemptKey.parse(text or "").same_job(key)
    except InvalidAttemptKey:
        return False


def _is_earlier_start(text: str | None, key: AttemptKey) -> bool:
    try:
        other = AttemptKey.parse(text or "")
    except InvalidAttemptKey:
        return False
    return other.same_job(key) and other.generation < key.generation
