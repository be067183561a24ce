"""One write to a record in S3 from outside of a run, as a shell command makes it."""

import threading
import time
from pathlib import Path

from trainwarden.identity import AttemptKey
from trainwarden.s3.bucket import Bucket, S3Error, load_boto3
from trainwarden.s3.location import Location
from trainwarden.s3.sender import Sender


def put_now(
    record: Location, name: str, content: bytes | Path, key: AttemptKey, *, timeout_seconds: float = 10.0
) -> None:
    """Replace a file of the record, by the rules by which a run does: the first `_error` of an attempt stays.

    Args:
        record: where the run's record is in S3.
        name: of the file.
        content: its bytes, or the file that holds them.
        key: of the attempt that it is about.
        timeout_seconds: after which it is given up, whatever S3 does.

    Raises:
        S3Error: it may not be there.
        OSError: the file cannot be read.
        MissingBoto3: boto3 is not installed.
    """
    load_boto3()
    bucket = Bucket(record)
    # A fresh start: what other attempts wrote was there before.
    sender = Sender(bucket, Path(), key, time.time())
    failures: list[Exception] = []

    def send() -> None:
        try:
            sender.send(name, content)
        except Exception as error:  # noqa: BLE001  # raised below, in the thread that asked
            failures.append(error)

    # Nothing in S3's client bounds a whole request: each part of an answer may take its time.
    thread = threading.Thread(target=send, name="trainwarden-s3", daemon=True)
    thread.start()
    thread.join(timeout_seconds)
    if thread.is_alive():
        raise S3Error("Timeout", record, name)
    if failures:
        raise failures[0]
