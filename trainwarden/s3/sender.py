"""How each file of a record gets into S3: who may replace what, and what older attempts left there."""

import logging
import os
import time
from pathlib import Path
from typing import NoReturn

from trainwarden.identity import AttemptKey
from trainwarden.record.document import MAX_BYTES, FileContent
from trainwarden.record.files import Metadata
from trainwarden.record.folder import COMPLETE, ERROR, METADATA, RESTART, replace_file
from trainwarden.record.sentinels import attempt_number, parse_sentinel
from trainwarden.s3.bucket import Bucket, Changed, S3Error, Stored, Unconditional
from trainwarden.s3.held import SENTINELS, Held, live_stranger, parsed_metadata, parsed_sentinel, sentinel_number
from trainwarden.s3.journals import JOURNALS, JournalSender
from trainwarden.s3.outbox import Content

# A rank may fail before rank 0 has begun its attempt, and clocks differ.
_EARLY_SECONDS = 60.0

logger = logging.getLogger("trainwarden")


class Sender:
    """Writes a record's files to S3, for one thread.

    Args:
        bucket: where the record is.
        folder: of the run.
        key: of the attempt.
        start: of the attempt in this process, Unix seconds.
    """

    def __init__(self, bucket: Bucket, folder: Path, key: AttemptKey, start: float) -> None:
        self._bucket = bucket
        self._folder = folder
        self._key = key
        self._start = start
        self._metadata_etag: str | None = None
        self._files: dict[str, tuple[int, int, int]] = {}
        self._journals = JournalSender(bucket, start)
        # The record has come to belong to another attempt: nothing more is written.
        self.stood_down = False

    def take_over(self, held: Held) -> None:
        """Set aside what older attempts left, after the folder was filled from `held` and the attempt began in it."""
        self._know_metadata(held)
        self._journals.settle(held.settled)
        for name in SENTINELS:
            if name in held.objects and not (self._folder / name).exists():
                self._set_aside(name, held)

    def take_over_late(self, held: Held) -> None:
        """The same, where S3 could not be read before the attempt began: the folder does not know what `held` says."""
        stranger = live_stranger(held.metadata, self._key, time.time())
        if stranger is not None:
            self._stand_down(f"it belongs to a live run: {stranger}")
        self._know_metadata(held)
        foreign = held.metadata is None or held.metadata.attempt_key != str(self._key)
        for name, stored in held.objects.items():
            if name in SENTINELS:
                if not self._is_ours(held, name):
                    self._set_aside(name, held)
            elif foreign:
                # The attempt began without it, and is about to replace it.
                self._bucket.put(f"{name}.before-{int(self._start)}", stored.data)

    def send(self, name: str, content: Content) -> bool:
        """Write one file; False if that took no request: it has not changed since, or is not there.

        Raises:
            S3Error: it is not there now.
            OSError: the file that it is in cannot be read.
        """
        seen = None
        if isinstance(content, Path):
            seen, data = _read_end(content)
            if seen is None or seen == self._files.get(name):
                return False
        else:
            data = content
        if name == ERROR:
            self._send_error(data)
        elif self.stood_down:
            return False
        elif name == METADATA:
            self._send_metadata(data)
        elif name in JOURNALS:
            self._journals.send(name, data)
        else:
            self._bucket.put(name, data)
        if seen is not None:
            self._files[name] = seen
        return True

    def bring_error(self) -> None:
        """Put the `_error` of this attempt into the folder, where it has none.

        Raises:
            S3Error: S3 cannot be asked, or refuses.
            OSError: the folder cannot be written.
        """
        path = self._folder / ERROR
        there = None if path.exists() else self._bucket.get(ERROR)
        if there is not None and parsed_sentinel(there, ERROR).attempt_key == str(self._key):
            replace_file(path, there.data)

    def _send_metadata(self, data: bytes) -> None:
        etag = self._metadata_etag
        try:
            self._metadata_etag = self._bucket.put(METADATA, data, replacing=etag, absent=etag is None)
        except Unconditional:
            self._metadata_etag = self._bucket.put(METADATA, data)
        except S3Error as error:
            if not isinstance(error, Changed) and error.code != "NoSuchKey":
                raise
            self._replace_metadata(data)

    def _replace_metadata(self, data: bytes) -> None:
        """Replace what another wrote: a command of ours, a write of ours whose answer got lost, a newer attempt."""
        try:
            stored = self._bucket.get(METADATA)
        except S3Error as error:
            if not error.refused:
                raise
            self._bucket.put(METADATA, data)
            return
        metadata = parsed_metadata(stored)
        if metadata is not None and self._is_newer(metadata):
            self._stand_down(f"it belongs to the newer attempt {metadata.attempt_key}")
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
        """The first failure of an attempt stays; one of an older attempt makes room, and never the other way round."""
        mine, metadata = parse_sentinel(FileContent(data, time.time()), Path(ERROR)), self._known_metadata()
        if self.stood_down or (metadata is not None and self._is_newer(metadata)):
            self._bucket.put(f"{ERROR}.{sentinel_number(mine, metadata)}", data)
            return
        try:
            self._bucket.put(ERROR, data, absent=True)
            return
        except (Changed, Unconditional):
            there = self._bucket.get(ERROR)
        if there is None:
            self._bucket.put(ERROR, data)
            return
        before = parsed_sentinel(there, ERROR)
        if before.attempt_key == str(self._key) or (before.attempt_key is None and before.time >= self._start):
            return
        self._bucket.put(f"{ERROR}.{sentinel_number(before, metadata)}", there.data)
        self._replace(ERROR, data, there)

    def _known_metadata(self) -> Metadata | None:
        try:
            return parsed_metadata(self._bucket.get(METADATA))
        except S3Error as error:
            if error.refused:
                return None
            raise

    def _replace(self, name: str, data: bytes, there: Stored) -> None:
        try:
            self._bucket.put(name, data, replacing=there.etag)
        except Unconditional:
            self._bucket.put(name, data)

    def _know_metadata(self, held: Held) -> None:
        metadata = held.objects.get(METADATA)
        self._metadata_etag = metadata.etag if metadata else None

    def _set_aside(self, name: str, held: Held) -> None:
        stored = held.objects[name]
        if name in {ERROR, COMPLETE}:
            self._bucket.put(f"{name}.{held.number(name)}", stored.data)
        try:
            self._bucket.delete(name, stored.etag)
        except Changed:
            # A rank of this attempt has written its own since.
            return
        except Unconditional:
            self._bucket.delete(name)

    def _is_ours(self, held: Held, name: str) -> bool:
        sentinel = held.sentinel(name)
        if sentinel is None:
            return False
        if name == RESTART or sentinel.attempt_key is not None:
            early = self._start - _EARLY_SECONDS
            return sentinel.attempt_key == str(self._key) and sentinel.time >= early
        return sentinel.time >= self._start

    def _stand_down(self, why: str) -> NoReturn:
        self.stood_down = True
        logger.error("the run record in S3 is no longer written by this process: %s", why)
        raise S3Error("AnotherAttempt", self._bucket.location, refused=True)


def _read_end(path: Path) -> tuple[tuple[int, int, int] | None, bytes]:
    """By what a file can be told from itself as it was before, None if there is none, and its last 4 MiB."""
    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            # The end of a long log is what a reader wants.
            file.seek(max(0, status.st_size - MAX_BYTES))
            return (status.st_ino, status.st_size, status.st_mtime_ns), file.read(MAX_BYTES)
    except FileNotFoundError:
        return None, b""
