"""The copy of a run's record in S3 as it is when an attempt begins, and its transfer into the run's folder."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwarden.clients.s3 import S3Bucket, S3Object
from trainwarden.identity import AttemptKey, host_name, process_lives
from trainwarden.record.document import FileContent, read_file
from trainwarden.record.folder import (
    CHECKPOINTED,
    COMPLETE,
    ERROR,
    ERRORS,
    EVENTS,
    METADATA,
    PROGRESS,
    RESTART,
    replace_file,
)
from trainwarden.record.metadata import Metadata, parse_metadata, read_metadata
from trainwarden.record.ownership import Owner, fresh_stranger
from trainwarden.record.progress import Progress, parse_progress, read_checkpointed, read_progress
from trainwarden.record.sentinels import Sentinel, attempt_number, parse_sentinel, read_sentinel

NAMES = (METADATA, PROGRESS, CHECKPOINTED, ERROR, COMPLETE, RESTART)
SENTINELS = (ERROR, COMPLETE, RESTART)
# The rotated journals come last: should there be time for some only, the newer lines matter more.
JOURNALS = (EVENTS, ERRORS, f"{EVENTS}.1", f"{ERRORS}.1")

logger = logging.getLogger("trainwarden")


@dataclass(frozen=True)
class RemoteRecord:
    """The objects that decide how the next attempt begins, by name; absent ones are left out.

    `merged_journals`: the journals of which the folder holds all that S3 has.
    """

    objects: Mapping[str, S3Object]
    merged_journals: frozenset[str] = frozenset()

    @property
    def metadata(self) -> Metadata | None:
        """The content of `metadata.json`; None if it is absent or unreadable."""
        return parsed_metadata(self.objects.get(METADATA))

    def sentinel(self, name: str) -> Sentinel | None:
        """Return the content of `_error`, `_complete` or `_restart`; None if it is absent."""
        stored = self.objects.get(name)
        return None if stored is None else parsed_sentinel(stored, name)

    def attempt_of(self, name: str) -> int:
        """Return the number of the attempt that a sentinel belongs to."""
        return sentinel_attempt(self.sentinel(name), self.metadata)


def fetch_record(bucket: S3Bucket) -> RemoteRecord:
    """Read the objects in `NAMES`.

    Raises:
        S3Error: S3 does not answer, or refuses.
    """
    found = ((name, bucket.get(name)) for name in NAMES)
    return RemoteRecord({name: stored for name, stored in found if stored is not None})


def fetch_journals(bucket: S3Bucket) -> dict[str, S3Object | None]:
    """Read the journals, at most 4 MiB of each; None for an absent one.

    Raises:
        S3Error: S3 does not answer, or refuses.
    """
    return {name: bucket.get(name) for name in JOURNALS}


def parsed_metadata(stored: S3Object | None) -> Metadata | None:
    """Parse a `metadata.json`; None if it is absent or unreadable."""
    parsed = None if stored is None else parse_metadata(FileContent(stored.data, stored.modified), Path(METADATA))
    return parsed if isinstance(parsed, Metadata) else None


def parsed_sentinel(stored: S3Object, name: str) -> Sentinel:
    """Parse the sentinel `name`."""
    return parse_sentinel(FileContent(stored.data, stored.modified), Path(name))


def sentinel_attempt(sentinel: Sentinel | None, metadata: Metadata | None) -> int:
    """Return the number of a sentinel's attempt, from itself or from the metadata beside it; 0 if neither has it."""
    if sentinel is None or sentinel.attempt is not None:
        return (sentinel and sentinel.attempt) or 0
    known = attempt_number(metadata, sentinel.attempt_key) if sentinel.attempt_key else None
    return known if known is not None else (metadata and metadata.attempt) or 0


def live_owner(metadata: Metadata | None, key: AttemptKey, now: float) -> Owner | None:
    """Return the live run of another job that owns the record in S3, if there is one; see `ownership.owner_of`.

    A process of this host may keep its record in another folder, so the lock of this one proves nothing.
    """
    if metadata is None:
        return None
    if metadata.host == host_name():
        pid = metadata.pid
        if pid is None or pid == os.getpid() or not process_lives(pid):
            return None
    return fresh_stranger(metadata, key, now)


def restore_record(remote: RemoteRecord, folder: Path, key: str) -> None:
    """Replace each file in `folder` that is older than the object in S3, before the attempt `key` begins.

    Raises:
        OSError: the folder cannot be written.
    """
    if METADATA in remote.objects and _metadata_is_newer(remote.metadata, folder, key):
        replace_file(folder / METADATA, remote.objects[METADATA].data)
    for name, read in ((PROGRESS, read_progress), (CHECKPOINTED, read_checkpointed)):
        if name in remote.objects and _progress_is_newer(remote.objects[name], read(folder)):
            replace_file(folder / name, remote.objects[name].data)
    for name in SENTINELS:
        if name in remote.objects:
            _restore_sentinel(remote, name, folder)


def restore_journals(stored: Mapping[str, S3Object | None], folder: Path) -> frozenset[str]:
    """Replace each journal in `folder` that S3 continues, and return the names of those that hold all that S3 has.

    Raises:
        OSError: the folder cannot be written.
    """
    remotes = {name: one.data if one else b"" for name, one in stored.items()}
    merged = set()
    for name, remote in remotes.items():
        path = folder / name
        local = _content(path)
        if local is None:
            # A link or a folder: not ours to replace.
            continue
        if not any(one.startswith(remote) for one in (local, _content(_rotated(path)) or b"")):
            if not any(one.startswith(local) for one in (remote, remotes.get(_rotated(path).name, b""))):
                continue
            replace_file(path, remote)
        merged.add(name)
    return frozenset(merged)


def _metadata_is_newer(remote: Metadata | None, folder: Path, key: str) -> bool:
    local = read_metadata(folder)
    if remote is None:
        logger.warning("the %s in S3 cannot be read; the run uses the one in its folder %s", METADATA, folder)
        return False
    if not isinstance(local, Metadata):
        return True
    if local.status == "pending" and local.attempt_key == key and attempt_number(remote, key) is None:
        # A launcher of this node announced the attempt without the attempts on other nodes.
        return True
    return _age_order(remote.attempt, remote.last_update) > _age_order(local.attempt, local.last_update)


def _progress_is_newer(stored: S3Object, local: object) -> bool:
    remote = parse_progress(FileContent(stored.data, stored.modified), Path(PROGRESS))
    if not isinstance(remote, Progress):
        return False
    if not isinstance(local, Progress):
        return True
    return _age_order(remote.attempt, remote.last_updated) > _age_order(local.attempt, local.last_updated)


def _age_order(attempt: int | None, time: float | None) -> tuple[int, float]:
    return -1 if attempt is None else attempt, time or 0.0


def _restore_sentinel(record: RemoteRecord, name: str, folder: Path) -> None:
    stored, path = record.objects[name], folder / name
    remote, local = parsed_sentinel(stored, name), read_sentinel(path)
    if isinstance(local, Sentinel):
        if remote.time <= local.time:
            return
        if name != RESTART:
            path.replace(path.with_name(f"{name}.{local.attempt or 0}"))
    replace_file(path, stored.data)
    # A plain-text sentinel has no other time than this.
    os.utime(path, (stored.modified, stored.modified))


def _rotated(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def _content(path: Path) -> bytes | None:
    """Return the content of a journal: empty if absent, None if it cannot be read."""
    content = read_file(path)
    if content is None:
        return b""
    return content.data if isinstance(content, FileContent) else None
