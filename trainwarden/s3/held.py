"""What S3 holds of a run's record when an attempt begins, and what of that goes into the run's folder."""

import logging
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from trainwarden.identity import AttemptKey, host_name, process_lives
from trainwarden.record.document import FileContent
from trainwarden.record.files import (
    Metadata,
    Progress,
    parse_metadata,
    parse_progress,
    read_checkpointed,
    read_metadata,
    read_progress,
)
from trainwarden.record.folder import CHECKPOINTED, COMPLETE, ERROR, METADATA, PROGRESS, RESTART, replace_file
from trainwarden.record.ownership import Owner, fresh_stranger
from trainwarden.record.sentinels import Sentinel, attempt_number, parse_sentinel, read_sentinel
from trainwarden.s3.bucket import Bucket, Stored

NAMES = (METADATA, PROGRESS, CHECKPOINTED, ERROR, COMPLETE, RESTART)
SENTINELS = (ERROR, COMPLETE, RESTART)

logger = logging.getLogger("trainwarden")


@dataclass(frozen=True)
class Held:
    """The objects of a record that decide how the next attempt begins, by name; what was not there is left out."""

    objects: Mapping[str, Stored]
    # The journals of which the folder holds all that S3 does.
    settled: frozenset[str] = frozenset()

    @property
    def metadata(self) -> Metadata | None:
        """What its `metadata.json` says; None if that is not there or cannot be read."""
        return parsed_metadata(self.objects.get(METADATA))

    def sentinel(self, name: str) -> Sentinel | None:
        """What its `_error`, `_complete` or `_restart` says; None if that is not there."""
        stored = self.objects.get(name)
        return None if stored is None else parsed_sentinel(stored, name)

    def number(self, name: str) -> int:
        """The attempt that a sentinel speaks of."""
        return sentinel_number(self.sentinel(name), self.metadata)


def fetch(bucket: Bucket) -> Held:
    """Everything that `NAMES` names.

    Raises:
        S3Error: S3 cannot be asked, or refuses.
    """
    found = ((name, bucket.get(name)) for name in NAMES)
    return Held({name: stored for name, stored in found if stored is not None})


def parsed_metadata(stored: Stored | None) -> Metadata | None:
    """What a `metadata.json` in S3 says; None if there is none, or none that can be read."""
    parsed = None if stored is None else parse_metadata(FileContent(stored.data, stored.modified), Path(METADATA))
    return parsed if isinstance(parsed, Metadata) else None


def parsed_sentinel(stored: Stored, name: str) -> Sentinel:
    """What a sentinel in S3 says."""
    return parse_sentinel(FileContent(stored.data, stored.modified), Path(name))


def sentinel_number(sentinel: Sentinel | None, metadata: Metadata | None) -> int:
    """The attempt that a sentinel speaks of, as far as it or the metadata beside it says; else 0."""
    if sentinel is None or sentinel.attempt is not None:
        return (sentinel and sentinel.attempt) or 0
    known = attempt_number(metadata, sentinel.attempt_key) if sentinel.attempt_key else None
    return known if known is not None else (metadata and metadata.attempt) or 0


def live_stranger(metadata: Metadata | None, key: AttemptKey, now: float) -> Owner | None:
    """The live run of another job that the record in S3 belongs to; see `ownership.owner_of`.

    A process of this host may keep the record in another folder, whose lock says nothing about this one.
    """
    if metadata is None:
        return None
    if metadata.host == host_name():
        pid = metadata.pid
        if pid is None or pid == os.getpid() or not process_lives(pid):
            return None
    return fresh_stranger(metadata, key, now)


def restore(held: Held, folder: Path, key: str) -> None:
    """Put into `folder` what is newer in S3, as the start of the attempt `key` should find it.

    Raises:
        OSError: the folder cannot be written.
    """
    if METADATA in held.objects and _metadata_is_newer(held.metadata, folder, key):
        replace_file(folder / METADATA, held.objects[METADATA].data)
    for name, read in ((PROGRESS, read_progress), (CHECKPOINTED, read_checkpointed)):
        if name in held.objects and _progress_is_newer(held.objects[name], read(folder)):
            replace_file(folder / name, held.objects[name].data)
    for name in SENTINELS:
        if name in held.objects:
            _restore_sentinel(held, name, folder)


def _metadata_is_newer(remote: Metadata | None, folder: Path, key: str) -> bool:
    local = read_metadata(folder)
    if remote is None:
        logger.warning("the %s in S3 cannot be read; the run goes by its folder %s", METADATA, folder)
        return False
    if not isinstance(local, Metadata):
        return True
    if local.status == "pending" and local.attempt_key == key and attempt_number(remote, key) is None:
        # A launcher of this node announced the attempt, and could not know those on other nodes.
        return True
    return _age_order(remote.attempt, remote.last_update) > _age_order(local.attempt, local.last_update)


def _progress_is_newer(stored: Stored, local: object) -> bool:
    remote = parse_progress(FileContent(stored.data, stored.modified), Path(PROGRESS))
    if not isinstance(remote, Progress):
        return False
    if not isinstance(local, Progress):
        return True
    return _age_order(remote.attempt, remote.last_updated) > _age_order(local.attempt, local.last_updated)


def _age_order(attempt: int | None, time: float | None) -> tuple[int, float]:
    return -1 if attempt is None else attempt, time or 0.0


def _restore_sentinel(held: Held, name: str, folder: Path) -> None:
    stored, path = held.objects[name], folder / name
    remote, local = parsed_sentinel(stored, name), read_sentinel(path)
    if isinstance(local, Sentinel):
        if remote.time <= local.time:
            return
        if name != RESTART:
            path.replace(path.with_name(f"{name}.{local.attempt or 0}"))
    replace_file(path, stored.data)
    # A plain-text one has no other time than this.
    os.utime(path, (stored.modified, stored.modified))
