"""Beginning an attempt whose record is kept in S3 too."""

import logging
import time
from dataclasses import replace
from pathlib import Path

from trainwarden.clients.s3 import MissingBoto3, S3Bucket, S3Error, S3Location, load_boto3
from trainwarden.identity import AttemptKey
from trainwarden.record.folder import LOG, METADATA
from trainwarden.record.ownership import RunRefused
from trainwarden.s3.mirror import S3Mirror
from trainwarden.s3.remote_record import RemoteRecord, live_owner, restore_journals, restore_record
from trainwarden.s3.uploader import RecordUploader

# How long a start waits for S3.
START_SECONDS = 10.0
_LOOK_SECONDS = 2.0

logger = logging.getLogger("trainwarden")


class Opening:
    """An attempt between its first look at S3 and its first write there. It begins to connect at once, in a thread.

    Args:
        record: where the run's record is in S3.
        folder: where it is here.
        key: of the attempt.
        start: of the attempt in this process, Unix seconds.
        whole: whether this process writes the whole record, and not only its own failure.

    Raises:
        RunRefused: boto3 is not installed, or there can be no more threads.
    """

    def __init__(self, record: S3Location, folder: Path, key: AttemptKey, start: float, *, whole: bool) -> None:
        self._record, self._folder, self._key = record, folder, key
        self._held: RemoteRecord | None = None
        try:
            load_boto3()
            bucket = S3Bucket(record)
            self._mirror = S3Mirror(bucket, RecordUploader(bucket, folder, key, start), folder / LOG, whole=whole)
            self._mirror.open()
        except MissingBoto3 as error:
            raise RunRefused(str(error)) from error
        except RuntimeError as error:
            raise RunRefused(f"the copy of the record in S3 cannot be kept: {error}") from error

    def fill(self) -> None:
        """Bring what is newer in S3 into the folder; where S3 does not answer, what is there has to do.

        Raises:
            RunRefused: the record in S3 belongs to a live run; or a run that has no record yet names a bucket that does
                not exist.
            OSError: the folder cannot be written.
        """
        began = time.monotonic()
        held = self._mirror.fetch(START_SECONDS)
        left = START_SECONDS - (time.monotonic() - began)
        if isinstance(held, S3Error):
            # A run that was there before goes on without: nothing about S3 is worth its time.
            if held.code == "NoSuchBucket" and not (self._folder / METADATA).exists():
                raise RunRefused(
                    f"{self._record}: there is no bucket {self._record.bucket!r}; create it, or name another"
                )
            logger.warning(
                "what S3 holds of the run is not known, it begins from its folder %s: %s", self._folder, held
            )
            return
        held = self._after_strangers(held)
        restore_record(held, self._folder, str(self._key))
        self._held = replace(held, merged_journals=self._restore_journals(left))

    def begin(self) -> S3Mirror:
        """Begin to write, now that the attempt has begun in the folder."""
        self._mirror.begin(self._held)
        return self._mirror

    def abandon(self) -> None:
        """Let go of S3: there will be no attempt."""
        self._mirror.close(0)

    def _restore_journals(self, seconds: float) -> frozenset[str]:
        journals = self._mirror.fetch_journals(max(0.0, seconds))
        if isinstance(journals, S3Error):
            # What S3 has of them is set aside there before they are written.
            logger.warning("the journals of the attempts before stay in S3, %s: %s", self._record, journals)
            return frozenset()
        return restore_journals(journals, self._folder)

    def _after_strangers(self, held: RemoteRecord) -> RemoteRecord:
        """Wait while another job's heartbeat is fresh: one that beats again is live, one that does not was lost."""
        first = live_owner(held.metadata, self._key, time.time())
        owner = first
        while owner is not None and first is not None:
            if owner.last_sign != first.last_sign:
                raise RunRefused(f"{self._record} belongs to a live run: {owner}; end that one, or use another run id")
            if owner is first:
                logger.warning("%s may belong to a live run: %s; waiting whether it lives", self._record, owner)
            time.sleep(_LOOK_SECONDS)
            again = self._mirror.fetch(START_SECONDS)
            held = again if isinstance(again, RemoteRecord) else held
            owner = live_owner(held.metadata, self._key, time.time())
        return held
