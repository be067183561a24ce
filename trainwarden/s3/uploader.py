"""Uploads of the files of a record to S3, by the rules for which attempt may replace which object."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from typing import NoReturn

from trainwarden.clients.s3 import S3Bucket, S3ConditionsUnsupported, S3Conflict, S3Error, S3Object
from trainwarden.clients.s3_boto3 import load_boto3
from trainwarden.clients.s3_location import S3Location
from trainwarden.deadline import DeadlineExceeded, call_with_deadline
from trainwarden.identity import AttemptKey
from trainwarden.record.document import MAX_BYTES, FileContent
from trainwarden.record.folder import COMPLETE, ERROR, METADATA, RESTART, RESUME, replace_file
from trainwarden.record.metadata import Metadata
from trainwarden.record.resume import parse_choice
from trainwarden.record.sentinels import attempt_number, parse_sentinel
from trainwarden.record.store import UNKNOWN_END
from trainwarden.s3.remote_record import (
    JOURNALS,
    SENTINELS,
    RemoteRecord,
    live_owner,
    parsed_metadata,
    parsed_sentinel,
    sentinel_attempt,
)
from trainwarden.s3.upload_queue import Content

# A rank may fail before rank 0 has begun its attempt, and clocks differ.
_EARLY_SECONDS = 60.0

logger = logging.getLogger("trainwarden")


class RecordUploader:
    """Writes the files of a record to S3; for one thread.

    Args:
        bucket: of the record.
        folder: of the run.
        key: of the attempt.
        start: of the attempt in this process, Unix seconds.
    """

    def __init__(self, bucket: S3Bucket, folder: Path, key: AttemptKey, start: float) -> None:
        self._bucket = bucket
        self._folder = folder
        self._key = key
        self._start = start
        self._metadata_etag: str | None = None
        # Inode, size and modification time in ns of each file at its last upload.
        self._signatures: dict[str, tuple[int, int, int]] = {}
        self._journals = JournalUploader(bucket, start)
        # Set when another attempt owns the record in S3: only an `_error` is written then.
        self.superseded = False

    def take_over(self, remote: RemoteRecord) -> None:
        """Rename the sentinels of older attempts, after the folder was restored from `remote` and the attempt began."""
        self._remember_metadata(remote)
        self._journals.mark_merged(remote.merged_journals)
        for name in SENTINELS:
            if name in remote.objects and not (self._folder / name).exists():
                self._set_aside(name, remote)
        self._remove_choice()

    def take_over_late(self, remote: RemoteRecord) -> None:
        """Do the same where S3 could be read only after the attempt began, so that the folder lacks what it has."""
        owner = live_owner(remote.metadata, self._key, time.time())
        if owner is not None:
            self._give_up(f"it belongs to a live run: {owner}")
        self._remember_metadata(remote)
        is_foreign = remote.metadata is None or remote.metadata.attempt_key != str(self._key)
        for name, stored in remote.objects.items():
            if name in SENTINELS:
                if not self._is_ours(remote, name):
                    self._set_aside(name, remote)
            elif is_foreign:
                # This attempt is about to replace it without having read it.
                self._bucket.put(f"{name}.before-{int(self._start)}", stored.data)
        self._remove_choice()

    def send(self, name: str, content: Content) -> bool:
        """Write one file and return whether a request was made; an unchanged or absent file needs none.

        Raises:
            S3Error: it was not written.
            OSError: the file cannot be read.
        """
        signature = None
        if isinstance(content, Path):
            signature, data = _read_end(content)
            if signature is None or signature == self._signatures.get(name):
                return False
        elif content is None:
            return self._remove_sentinel(name)
        else:
            data = content
        if name == ERROR:
            self._send_error(data)
        elif self.superseded:
            return False
        elif name == METADATA:
            self._send_metadata(data)
        elif name in JOURNALS:
            self._journals.send(name, data)
        else:
            self._bucket.put(name, data)
        if signature is not None:
            self._signatures[name] = signature
        return True

    def fetch_error(self) -> None:
        """Copy the `_error` of this attempt from S3 into the folder, if it has none.

        Raises:
            S3Error: S3 does not answer, or refuses.
            OSError: the folder cannot be written.
        """
        path = self._folder / ERROR
        stored = None if path.exists() else self._bucket.get(ERROR)
        if stored is not None and parsed_sentinel(stored, ERROR).attempt_key == str(self._key):
            replace_file(path, stored.data)

    def _send_metadata(self, data: bytes) -> None:
        etag = self._metadata_etag
        try:
            self._metadata_etag = self._bucket.put(METADATA, data, replacing=etag, absent=etag is None)
        except S3ConditionsUnsupported:
            self._metadata_etag = self._bucket.put(METADATA, data)
        except S3Error as error:
            if not isinstance(error, S3Conflict) and error.code != "NoSuchKey":
                raise
            self._replace_metadata(data)

    def _replace_metadata(self, data: bytes) -> None:
        """Replace `metadata.json` written by another: a shell command, this process unacknowledged, a newer attempt."""
        try:
            stored = self._bucket.get(METADATA)
        except S3Error as error:
            if not error.refused:
                raise
            self._bucket.put(METADATA, data)
            return
        metadata = parsed_metadata(stored)
        if metadata is not None and self._is_newer(metadata):
            self._give_up(f"it belongs to the newer attempt {metadata.attempt_key}")
        self._metadata_etag = stored.etag if stored else None
        self._metadata_etag = self._bucket.put(METADATA, data, replacing=self._metadata_etag, absent=stored is None)

    def _is_newer(self, metadata: Metadata) -> bool:
        if metadata.attempt_key in {None, str(self._key)}:
            return False
        ours = attempt_number(metadata, str(self._key))
        if ours is not None and metadata.attempt is not None:
            return metadata.attempt > ours
        return metadata.attempt_start_time is not None and metadata.attempt_start_time > self._start

    def _send_error(self, data: bytes) -> None:
        """Write `_error`. The first failure of an attempt stays; one of an older attempt is renamed."""
        own, metadata = parse_sentinel(FileContent(data, time.time()), Path(ERROR)), self._read_metadata()
        if self.superseded or (metadata is not None and self._is_newer(metadata)):
            self._bucket.put(f"{ERROR}.{sentinel_attempt(own, metadata)}", data)
            return
        try:
            self._bucket.put(ERROR, data, absent=True)
            return
        except (S3Conflict, S3ConditionsUnsupported):
            stored = self._bucket.get(ERROR)
        if stored is None:
            self._bucket.put(ERROR, data)
            return
        existing = parsed_sentinel(stored, ERROR)
        if existing.attempt_key == str(self._key) or (existing.attempt_key is None and existing.time >= self._start):
            # As in the folder: the first stays, but an end of unknown cause.
            if existing.failure != UNKNOWN_END or own.failure == UNKNOWN_END:
                return
        else:
            self._bucket.put(f"{ERROR}.{sentinel_attempt(existing, metadata)}", stored.data)
        try:
            self._bucket.put(ERROR, data, replacing=stored.etag)
        except S3ConditionsUnsupported:
            self._bucket.put(ERROR, data)

    def _remove_sentinel(self, name: str) -> bool:
        """Remove a sentinel of this attempt, and return True: a request was made."""
        stored = self._bucket.get(name)
        if stored is not None and parsed_sentinel(stored, name).attempt_key == str(self._key):
            self._delete(name, stored)
        return True

    def _remove_choice(self) -> None:
        """Remove the choice of a checkpoint that an earlier start of rank 0 left: no rank may obey it."""
        stored = self._bucket.get(RESUME)
        choice = None if stored is None else parse_choice(FileContent(stored.data, stored.modified))
        if stored is not None and (choice is None or (choice.time or 0.0) < self._start):
            self._delete(RESUME, stored)

    def _delete(self, name: str, stored: S3Object) -> None:
        try:
            self._bucket.delete(name, stored.etag)
        except S3Conflict:
            # It has been replaced meanwhile.
            return
        except S3ConditionsUnsupported:
            self._bucket.delete(name)

    def _read_metadata(self) -> Metadata | None:
        try:
            return parsed_metadata(self._bucket.get(METADATA))
        except S3Error as error:
            if error.refused:
                return None
            raise

    def _remember_metadata(self, remote: RemoteRecord) -> None:
        metadata = remote.objects.get(METADATA)
        self._metadata_etag = metadata.etag if metadata else None

    def _set_aside(self, name: str, remote: RemoteRecord) -> None:
        """Rename a sentinel of an older attempt by its number; a `_restart` is deleted."""
        stored = remote.objects[name]
        if name in {ERROR, COMPLETE}:
            self._bucket.put(f"{name}.{remote.attempt_of(name)}", stored.data)
        # A rank of this attempt may have replaced it meanwhile.
        self._delete(name, stored)

    def _is_ours(self, remote: RemoteRecord, name: str) -> bool:
        sentinel = remote.sentinel(name)
        if sentinel is None:
            return False
        if name == RESTART or sentinel.attempt_key is not None:
            early = self._start - _EARLY_SECONDS
            return sentinel.attempt_key == str(self._key) and sentinel.time >= early
        return sentinel.time >= self._start

    def _give_up(self, reason: str) -> NoReturn:
        self.superseded = True
        logger.error("the run record in S3 is no longer written by this process: %s", reason)
        raise S3Error("AnotherAttempt", self._bucket.location, refused=True)


class JournalUploader:
    """Writes journals to S3, for one thread. An object that holds other lines is renamed before the first write.

    Args:
        bucket: of the record.
        start: of the attempt in this process, Unix seconds; part of the new names.
    """

    def __init__(self, bucket: S3Bucket, start: float) -> None:
        self._bucket = bucket
        self._start = int(start)
        # The name of the object to write, for each journal.
        self._names: dict[str, str] = {}

    def mark_merged(self, names: frozenset[str]) -> None:
        """Allow these to be replaced: the folder holds all that S3 has of them."""
        self._names.update((name, name) for name in names)

    def send(self, name: str, data: bytes) -> None:
        """Write one journal.

        Raises:
            S3Error: it was not written.
        """
        if name not in self._names:
            self._names[name] = self._rename_foreign(name, data)
        self._bucket.put(self._names[name], data)

    def _rename_foreign(self, name: str, data: bytes) -> str:
        """Rename an object that `data` does not continue, and return the name to write."""
        try:
            stored = self._bucket.get(name)
        except S3Error as error:
            if not error.refused:
                raise
            return self._free_name(name, data)
        if stored is not None and not data.startswith(stored.data):
            aside = f"{name}.before-{self._start}"
            self._bucket.put(aside, stored.data)
            logger.warning("%s in S3 holds lines that the folder lacks; it is kept as %s", name, aside)
        return name

    def _free_name(self, name: str, data: bytes) -> str:
        """Write a journal whose object may not be read, and return its name: its own if that is free, else another."""
        try:
            self._bucket.put(name, data, absent=True)
        except (S3Conflict, S3ConditionsUnsupported):
            beside = f"{name}.since-{self._start}"
            logger.warning("%s in S3 may not be read, and so is not replaced; this attempt writes %s", name, beside)
            return beside
        return name


def upload_once(
    record: S3Location, name: str, content: bytes | Path, key: AttemptKey, *, timeout_seconds: float = 10.0
) -> None:
    """Write one file of a record from outside of a run, by the same rules: the first `_error` of an attempt stays.

    Args:
        record: of the run in S3.
        name: of the file.
        content: its bytes, or the path of the file that holds them.
        key: of the attempt.
        timeout_seconds: for the whole request.

    Raises:
        S3Error: it may not have been written.
        OSError: the file cannot be read.
        MissingBoto3: boto3 is not installed.
    """
    load_boto3()
    # Starting now: objects of other attempts are older.
    uploader = RecordUploader(S3Bucket(record), Path(), key, time.time())
    try:
        # boto3 has no deadline for a whole request: its timeout is for each part of an answer.
        call_with_deadline(lambda: uploader.send(name, content), timeout_seconds, thread_name="trainwarden-s3")
    except DeadlineExceeded:
        raise S3Error("Timeout", record, name) from None


def _read_end(path: Path) -> tuple[tuple[int, int, int] | None, bytes]:
    """Return the inode, size and modification time of a file, None if it is absent, and its last 4 MiB."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            # Of a long log the end is the useful part.
            file.seek(max(0, status.st_size - MAX_BYTES))
            return (status.st_ino, status.st_size, status.st_mtime_ns), file.read(MAX_BYTES)
    except FileNotFoundError:
        return None, b""
