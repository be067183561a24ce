"""The files of a record that wait for their upload to S3: the latest content of each, and when it is due."""

from __future__ import annotations

import json
import threading
from dataclasses import dataclass
from pathlib import Path

from trainwarden.record.document import MAX_BYTES
from trainwarden.record.folder import CHECKPOINTED, COMPLETE, ERROR, LOG, METADATA, PROGRESS, RESTART, RESUME, SUMMARY

# Sentinels first, then the files that the metadata refers to; `_complete` after everything that it completes.
_ORDER = (ERROR, RESTART, CHECKPOINTED, PROGRESS, METADATA, LOG)
_SENTINELS = (ERROR, COMPLETE, RESTART)
# Seconds between two writes of a file: requests cost money. docs/s3.md has the calculation.
PAUSE_SECONDS = {METADATA: 20.0, PROGRESS: 20.0, CHECKPOINTED: 5.0, SUMMARY: 0.0, RESUME: 0.0}
_OTHERS_SECONDS = 60.0
# The least time between two writes of the metadata, for a run that changes its phase all the time.
_CHANGED_SECONDS = 5.0

# None: the file is to be removed.
Content = bytes | Path | None


@dataclass(frozen=True)
class _Waiting:
    content: Content
    due: float
    urgent_fields: object


@dataclass(frozen=True)
class _Uploaded:
    time: float
    urgent_fields: object


class UploadQueue:
    """Thread-safe, and never waits. Times are seconds of the monotonic clock.

    It holds one content for each name, the latest, of at most 4 MiB; of a `Path` it holds the path only.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._uploaded: dict[str, _Uploaded] = {}

    def put(self, name: str, content: Content, now: float) -> None:
        """Queue `content`, in place of older content that waits under this name.

        Raises:
            ValueError: it is too large.
        """
        if isinstance(content, bytes) and len(content) > MAX_BYTES:
            raise ValueError(f"{name} is larger than {MAX_BYTES} bytes")
        fields = _urgent_fields(content) if name == METADATA else None
        with self._lock:
            last = self._uploaded.get(name)
            due = now if last is None else last.time + _interval(name, changed=fields != last.urgent_fields)
            self._waiting[name] = _Waiting(content, due, fields)

    def due(self, now: float) -> list[tuple[str, Content]]:
        """Return what is due by `now`, in the order of upload."""
        with self._lock:
            names = sorted((name for name, one in self._waiting.items() if one.due <= now), key=_order)
            return [(name, self._waiting[name].content) for name in names]

    def count(self, now: float) -> int:
        """Return how many files are due by `now`."""
        with self._lock:
            return sum(one.due <= now for one in self._waiting.values())

    def next_due(self) -> float | None:
        """Return when the next file is or was due; None if none waits."""
        with self._lock:
            return min((one.due for one in self._waiting.values()), default=None)

    def mark_uploaded(self, name: str, content: Content, now: float) -> None:
        """Remove `content`; content that was queued since keeps waiting."""
        with self._lock:
            one = self._waiting.get(name)
            fields = _urgent_fields(content) if name == METADATA else None
            self._uploaded[name] = _Uploaded(now, fields)
            if one is None:
                return
            if one.content is content:
                del self._waiting[name]
            else:
                due = now + _interval(name, changed=one.urgent_fields != fields)
                self._waiting[name] = _Waiting(one.content, due, one.urgent_fields)

    def clear(self) -> None:
        """Remove everything."""
        with self._lock:
            self._waiting.clear()


def is_sentinel(name: str) -> bool:
    """Whether a file records how an attempt ended or announces its end, numbered older ones included."""
    return name.partition(".")[0] in _SENTINELS


def _interval(name: str, *, changed: bool) -> float:
    if is_sentinel(name):
        return 0.0
    seconds = PAUSE_SECONDS.get(name, _OTHERS_SECONDS)
    return min(seconds, _CHANGED_SECONDS) if changed else seconds


def _order(name: str) -> tuple[int, str]:
    stem = name if name in _ORDER else name.partition(".")[0]
    if stem == COMPLETE:
        return len(_ORDER) + 1, name
    return _ORDER.index(stem) if stem in _ORDER else len(_ORDER), name


def _urgent_fields(content: Content) -> object:
    """Return the fields of `metadata.json` whose change makes an earlier upload worthwhile."""
    try:
        document = json.loads(content) if isinstance(content, bytes) else None
    except ValueError:
        return None
    if not isinstance(document, dict):
        return None
    return tuple(document.get(key) for key in ("attempt_key", "status", "phase", "reason"))
