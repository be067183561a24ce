"""Which process a run folder belongs to: two live runs never share one.

Rank 0 holds a lock on `.owner` while it lives. The kernel drops it however the process ends, and its holder can be read
without disturbing it. Where the file system has no locks, and between hosts, a fresh heartbeat counts as one.

A process that runs a training from outside, such as `trainwarden exec`, holds `.wrapper` in the same way. A training of
the same job inside it may own the folder beside it; one of another job may not.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from dataclasses import dataclass
from pathlib import Path

from trainwarden.descriptor import HeldDescriptor
from trainwarden.identity import AttemptKey, InvalidAttemptKey, host_name, process_lives, process_start_ticks
from trainwarden.record.document import JsonObject, read_json
from trainwarden.record.folder import LIVENESS_SECONDS, OWNER, WRAPPER, encode
from trainwarden.record.locks import NoLocks, is_locked, try_lock, unlock
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.schema import INTEGER, TEXT, TIME, RecordDocument

# Liveness is written every 5 s; a shared file system may show it a minute late.
FRESH_SECONDS = 60.0
# On the host of the writer it shows at once.
_FRESH_HERE_SECONDS = 3 * LIVENESS_SECONDS
# How long the next start of the same job waits for the end of the one before.
HANDOVER_SECONDS = 10.0

logger = logging.getLogger("trainwarden")

# Those of this process. A child that is forked shares their locks, and must not outlive its parent with them.
_held: set[Ownership] = set()


class RunRefused(Exception):
    """`run()` will not start; the message names the folder, the variable or the argument, and the reason."""


class LockFile(RecordDocument):
    """`.owner` and `.wrapper`: the process that holds the lock on the file; empty once that has released it.

    `start` is when the process started, in clock ticks since boot.
    """

    host: str | None = TEXT
    pid: int | None = INTEGER
    attempt_key: str | None = TEXT
    time: float | None = TIME
    start: int | None = INTEGER

    def names_this_process(self) -> bool:
        """Return whether it is this process that wrote it."""
        return (self.host, self.pid) == (host_name(), os.getpid())

    def names_a_live_process(self) -> bool:
        """Return whether a process of this host wrote it that still runs."""
        if self.host != host_name() or self.pid is None or not process_lives(self.pid):
            return False
        return self.start is None or self.start == process_start_ticks(self.pid)


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
        key: of the attempt that is to start. Heartbeats of earlier starts of its job on other hosts do not count: its
            scheduler has ended those.
        now: Unix seconds; the clock's if None.
    """
    return (
        _lock_holder(folder / OWNER)
        or _foreign_wrapper(folder, key)
        or _by_heartbeat(folder, key, time.time() if now is None else now)
    )


class Ownership:
    """The lock on a folder. It ends with `release()` or with the process.

    Args:
        path: of the locked file.
        key: of the attempt.
        descriptor: of the locked file.
        has_lock: whether the file system has locks; else what the file states, and the heartbeat, stand for it.
    """

    def __init__(self, path: Path, key: AttemptKey, descriptor: HeldDescriptor, *, has_lock: bool) -> None:
        self._path = path
        self._key = key
        self._descriptor: HeldDescriptor | None = descriptor
        self._has_lock = has_lock
        self._lost_to: Owner | None = None
        _held.add(self)

    def lost_to(self) -> Owner | None:
        """Return the other owner of the folder, if this process has lost it.

        A lock ends where the program closes all files, or where the file is replaced. It is taken again if it is free.
        """
        descriptor = self._descriptor
        if self._lost_to is not None or descriptor is None or self._is_in_place(descriptor):
            return self._lost_to
        if not self._has_lock and (other := _stated(self._path)).pid is not None and not other.names_this_process():
            self._lost_to = Owner(other.host, other.pid, other.attempt_key, "it has taken the folder since")
            return self._lost_to
        try:
            self._descriptor, self._has_lock = _lock(self._path, self._key)
        except BlockingIOError:
            self._lost_to = _lock_holder(self._path) or Owner(None, None, None, "it holds the lock")
        except RunRefused:
            # The folder is gone, or cannot be written; the writer of the record reports that.
            return None
        descriptor.close()
        return self._lost_to

    def release(self) -> None:
        """Release the folder; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        _held.discard(self)
        if descriptor is None:
            return
        if descriptor.is_open() and self._lost_to is None:
            with contextlib.suppress(OSError):
                if self._has_lock or _stated(self._path).names_this_process():
                    os.ftruncate(descriptor.number, 0)
                # A child that was not forked by Python may share it.
                unlock(descriptor.number)
        descriptor.close()

    def abandon(self) -> None:
        """Leave the lock to the process that this one was forked from."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            descriptor.close()

    def _is_in_place(self, descriptor: HeldDescriptor) -> bool:
        if not descriptor.is_open():
            return False
        try:
            same = os.path.samestat(os.fstat(descriptor.number), self._path.lstat())
        except OSError:
            return False
        return same and (self._has_lock or _stated(self._path).names_this_process())


def _abandon_all() -> None:
    while _held:
        _held.pop().abandon()


os.register_at_fork(after_in_child=_abandon_all)


def claim(
    folder: Path, key: AttemptKey, *, name: str = OWNER, wait_seconds: float = HANDOVER_SECONDS
) -> Ownership | None:
    """Take the folder for the attempt `key`; None where a lost host still seems to hold the lock of an earlier start.

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
                descriptor, has_lock = _lock(folder / name, key)
                return Ownership(folder / name, key, descriptor, has_lock=has_lock)
            except BlockingIOError:
                owner = _lock_holder(folder / name)
        earlier = owner is not None and _is_earlier_start(owner.attempt_key, key)
        if owner is not None and (not earlier or time.monotonic() > deadline):
            if earlier and owner.host not in {None, host_name()}:
                # Its scheduler has ended it; the lock that a lost host still seems to hold is never released.
                return None
            raise RunRefused(f"run folder {folder} belongs to a live run: {owner}; end that one, or use another run id")
        time.sleep(0.1)


def _lock(path: Path, key: AttemptKey) -> tuple[HeldDescriptor, bool]:
    """Lock the file and write its owner into it; return its descriptor, and whether the file system has locks.

    Raises:
        BlockingIOError: another process has the lock.
        RunRefused: the file cannot be written.
    """
    try:
        descriptor = HeldDescriptor(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666))
    except OSError as error:
        raise RunRefused(f"run folder {path.parent} cannot be written: {error}") from None
    is_locked, has_lock = True, True
    try:
        try:
            is_locked = try_lock(descriptor.number)
        except NoLocks:
            has_lock = False
        if is_locked:
            # Written in place: a file that is replaced takes its lock along.
            pid = os.getpid()
            stated = LockFile(host_name(), pid, str(key), time.time(), process_start_ticks(pid))
            line = encode(stated.to_json())
            os.pwrite(descriptor.number, line, 0)
            os.ftruncate(descriptor.number, len(line))
    except OSError as error:
        descriptor.close()
        raise RunRefused(f"run folder {path.parent} cannot be written: {error}") from None
    if not is_locked:
        descriptor.close()
        raise BlockingIOError(f"{path} is locked")
    return descriptor, has_lock


def _lock_holder(path: Path) -> Owner | None:
    try:
        if not _is_locked(path):
            return None
    except OSError:
        return None
    stated = _stated(path)
    evidence = "a run in progress in this process" if stated.names_this_process() else "it holds the lock"
    return Owner(stated.host, stated.pid, stated.attempt_key, evidence)


def _is_locked(path: Path) -> bool:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        return is_locked(descriptor)
    finally:
        os.close(descriptor)


def _stated(path: Path) -> LockFile:
    source = read_json(path)
    return LockFile.from_json(source) if isinstance(source, JsonObject) else LockFile()


def _foreign_wrapper(folder: Path, key: AttemptKey | None) -> Owner | None:
    holder = _lock_holder(folder / WRAPPER)
    return None if holder is None or (key and _is_same_job(holder.attempt_key, key)) else holder


def _by_heartbeat(folder: Path, key: AttemptKey | None, now: float) -> Owner | None:
    metadata = read_metadata(folder)
    if not isinstance(metadata, Metadata) or metadata.status != "running" or metadata.pid == os.getpid():
        return None
    stated = _stated(folder / OWNER)
    is_stated = (stated.host, stated.pid) == (metadata.host, metadata.pid)
    is_earlier = key is not None and _is_earlier_start(metadata.attempt_key, key)
    if metadata.host != host_name():
        # If the lock is free, the process of the same start is gone.
        is_rival = is_stated and not is_earlier and not _has_locks(folder / OWNER)
        return _fresh(metadata, now, FRESH_SECONDS) if is_rival else fresh_stranger(metadata, key, now)
    is_same = is_earlier or (key is not None and metadata.attempt_key == str(key))
    lives = stated.names_a_live_process() if is_stated else metadata.pid is not None and process_lives(metadata.pid)
    # Launchers that hold no lock write the metadata of the same start before the training does.
    return _fresh(metadata, now, _FRESH_HERE_SECONDS) if lives and (is_stated or not is_same) else None


def _has_locks(path: Path) -> bool:
    try:
        _is_locked(path)
    except NoLocks:
        return False
    except OSError:
        return True
    return True


def fresh_stranger(metadata: Metadata, key: AttemptKey | None, now: float) -> Owner | None:
    """Return the live run of another job that a record has only a heartbeat of; see `owner_of`."""
    if metadata.status != "running":
        return None
    if key is not None and (metadata.attempt_key == str(key) or _is_earlier_start(metadata.attempt_key, key)):
        return None
    return _fresh(metadata, now, FRESH_SECONDS)


def _fresh(metadata: Metadata, now: float, limit: float) -> Owner | None:
    """Return the process of the last heartbeat, if that is no older than `limit` seconds."""
    if metadata.host is None or metadata.last_update is None or metadata.attempt_key is None:
        return None
    age = now - metadata.last_update
    if abs(age) > limit:
        return None
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
