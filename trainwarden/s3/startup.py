"""The begin of an attempt whose record is copied to S3."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path

from trainwarden.clients.s3 import S3Bucket, S3Error
from trainwarden.clients.s3_boto3 import MissingBoto3, load_boto3
from trainwarden.clients.s3_location import S3Location
from trainwarden.identity import AttemptKey
from trainwarden.record.folder import LOG, METADATA
from trainwarden.record.ownership import RunRefused
from trainwarden.s3.mirror import S3Mirror
from trainwarden.s3.remote_record import RemoteRecord, live_owner, restore_journals, restore_record
from trainwarden.s3.uploader import RecordUploader

# How long the start of a run waits for S3.
START_SECONDS = 10.0
# Between two reads of a record that may belong to a live run.
POLL_SECONDS = 2.0

logger = logging.getLogger("trainwarden")


class S3Startup:
    """Restores the folder of a run from S3 before an attempt begins. It begins to connect at once, in a thread.

    Args:
        record: of the run in S3.
        folder: of the run.
        key: of the attempt.
        start: of the attempt in this process, Unix seconds.
        whole: whether this process writes the whole record, and not only its own failure.

    Raises:
        RunRefused: boto3 is not installed, or no more threads can be started.
    """

    def __init__(self, record: S3Location, folder: Path, key: AttemptKey, start: float, *, whole: bool) -> None:
        self._record, self._folder, self._key = record, folder, key
        self._remote: RemoteRecord | None = None
        try:
            load_boto3()
            bucket = S3Bucket(record)
            self._mirror = S3Mirror(bucket, RecordUploader(bucket, folder, key, start), folder / LOG, whole=whole)
            self._mirror.open()
        except MissingBoto3 as error:
            raise RunRefused(str(error)) from error
        except RuntimeError as error:
            raise RunRefused(f"the copy of the record in S3 cannot be kept: {error}") from error

    def restore(self) -> None:
        """Replace what is older in the folder than in S3; where S3 does not answer, the folder stays as it is.

        Raises:
            RunRefused: the record in S3 belongs to a live run; or a run that has no record yet names a bucket that does
                not exist.
            OSError: the folder cannot be written.
        """
        began = time.monotonic()
        remote = self._mirror.fetch_record(START_SECONDS)
        remaining = START_SECONDS - (time.monotonic() - began)
        if isinstance(remote, S3Error):
            # A run that has a record goes on without S3: a fault of S3 must not stop it.
            if remote.code == "NoSuchBucket" and not (self._folder / METADATA).exists():
                raise RunRefused(
                    f"{self._record}: there is no bucket {self._record.bucket!r}; create it, or name another"
                )
            logger.warning(
                "the record in S3 cannot be read, the run begins from its folder %s: %s", self._folder, remote
            )
            return
        remote = self._wait_for_owner(remote)
        restore_record(remote, self._folder, str(self._key))
        self._remote = replace(remote, merged_journals=self._restore_journals(remaining))

    def begin(self) -> S3Mirror:
        """Begin to upload, after the attempt has begun in the folder, and return the mirror."""
        self._mirror.begin(self._remote)
        return self._mirror

    def abandon(self) -> None:
        """Stop the mirror: the attempt does not begin."""
        self._mirror.close(0)

    def _restore_journals(self, seconds: float) -> frozenset[str]:
        journals = self._mirror.fetch_journals(max(0.0, seconds))
        if isinstance(journals, S3Error):
            # The mirror renames them in S3 before it writes its own.
            logger.warning("the journals of the attempts before stay in S3, %s: %s", self._record, journals)
            return frozenset()
        return restore_journals(journals, self._folder)

    def _wait_for_owner(self, remote: RemoteRecord) -> RemoteRecord:
        """Wait while the heartbeat of another job is fresh, and return the record then.

        Raises:
            RunRefused: the heartbeat changed meanwhile, so the other job is live.
        """
        first = live_owner(remote.metadata, self._key, time.time())
        owner = first
        while owner is not None and first is not None:
            if owner.last_sign != first.last_sign:
                raise RunRefused(f"{self._record} belongs to a live run: {owner}; end that one, or use another run id")
            if owner is first:
                logger.warning("%s may belong to a live run: %s; waiting for its next heartbeat", self._record, owner)
            time.sleep(POLL_SECONDS)
            again = self._mirror.fetch_record(START_SECONDS)
            remote = again if isinstance(again, RemoteRecord) else remote
            owner = live_owner(remote.metadata, self._key, time.time())
        return remote
