"""What S3 holds of a run's journals: brought into the folder of a new node, and never replaced by less."""

import logging
from collections.abc import Mapping
from pathlib import Path

from trainwarden.record.document import FileContent, read_file
from trainwarden.record.folder import ERRORS, EVENTS, replace_file
from trainwarden.s3.bucket import Bucket, Changed, S3Error, Stored, Unconditional

# Of each journal the older part comes last: the newer one matters more, should there be time for one only.
JOURNALS = (EVENTS, ERRORS, f"{EVENTS}.1", f"{ERRORS}.1")

logger = logging.getLogger("trainwarden")


def fetch_journals(bucket: Bucket) -> dict[str, Stored | None]:
    """Every journal, at most 4 MiB of each; None for one that is not there.

    Raises:
        S3Error: S3 cannot be asked, or refuses.
    """
    return {name: bucket.get(name) for name in JOURNALS}


def restore_journals(stored: Mapping[str, Stored | None], folder: Path) -> frozenset[str]:
    """Put into `folder` what goes on where its own journals end; returns which of them hold all that S3 has by now.

    Raises:
        OSError: the folder cannot be written.
    """
    held = {name: one.data if one else b"" for name, one in stored.items()}
    settled = set()
    for name, remote in held.items():
        path = folder / name
        local = _content(path)
        if local is None:
            # A link or a folder in its place: nobody knows what it is.
            continue
        if not any(one.startswith(remote) for one in (local, _content(_older(path)) or b"")):
            if not any(one.startswith(local) for one in (remote, held.get(_older(path).name, b""))):
                continue
            replace_file(path, remote)
        settled.add(name)
    return frozenset(settled)


class JournalSender:
    """Writes journals to S3, for one thread. What is there, and is not in ours, is set aside before the first write.

    Args:
        bucket: where the record is.
        start: of the attempt in this process, Unix seconds; part of the names of what is set aside.
    """

    def __init__(self, bucket: Bucket, start: float) -> None:
        self._bucket = bucket
        self._start = int(start)
        self._places: dict[str, str] = {}

    def settle(self, names: frozenset[str]) -> None:
        """Take note that the folder holds all that S3 has of these."""
        self._places.update((name, name) for name in names)

    def send(self, name: str, data: bytes) -> None:
        """Write one.

        Raises:
            S3Error: it is not there now.
        """
        if name not in self._places:
            self._places[name] = self._make_room(name, data)
        self._bucket.put(self._places[name], data)

    def _make_room(self, name: str, data: bytes) -> str:
        """Set aside what `data` does not go on from; returns where to write."""
        try:
            there = self._bucket.get(name)
        except S3Error as error:
            if not error.refused:
                raise
            return self._place_beside(name, data)
        if there is not None and not data.startswith(there.data):
            aside = f"{name}.before-{self._start}"
            self._bucket.put(aside, there.data)
            logger.warning("%s in S3 holds what is not known here; it is kept as %s", name, aside)
        return name

    def _place_beside(self, name: str, data: bytes) -> str:
        """Where to write what may not be read: its own name if nothing is there, else another."""
        try:
            self._bucket.put(name, data, absent=True)
        except (Changed, Unconditional):
            beside = f"{name}.since-{self._start}"
            logger.warning("%s in S3 may not be read, and so is not replaced; this attempt writes %s", name, beside)
            return beside
        return name


def _older(path: Path) -> Path:
    return path.with_name(f"{path.name}.1")


def _content(path: Path) -> bytes | None:
    """Of a file that is not there nothing; None of one that cannot be read."""
    content = read_file(path)
    if content is None:
        return b""
    return content.data if isinstance(content, FileContent) else None
