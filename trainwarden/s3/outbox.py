"""What S3 does not have yet: the latest content of each file, and when its turn comes."""

import json
import threading
from dataclasses import dataclass
from pathlib import Path

from trainwarden.record.document import MAX_BYTES
from trainwarden.record.folder import CHECKPOINTED, COMPLETE, ERROR, LOG, METADATA, PROGRESS, RESTART, SUMMARY

# Evidence first; the metadata after what it speaks of; `_complete` after everything that it completes.
_ORDER = (ERROR, RESTART, CHECKPOINTED, PROGRESS, METADATA, LOG)
_SENTINELS = (ERROR, COMPLETE, RESTART)
# Seconds between two writes of a file: requests cost money. docs/s3.md does the sum.
_SECONDS = {METADATA: 20.0, PROGRESS: 20.0, CHECKPOINTED: 5.0, SUMMARY: 0.0}
_OTHERS_SECONDS = 60.0
# A run that changes its phase all the time must not make a request for each.
_CHANGED_SECONDS = 5.0

Content = bytes | Path


@dataclass(frozen=True)
class _Waiting:
    content: Content
    due: float
    standing: object


@dataclass(frozen=True)
class _Sent:
    time: float
    standing: object


class Outbox:
    """Thread-safe; it never waits for anything. Times are those of the monotonic clock, in seconds.

    It holds one content for each name, the latest, of at most 4 MiB; of a `Path` it holds the path.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._waiting: dict[str, _Waiting] = {}
        self._sent: dict[str, _Sent] = {}

    def put(self, name: str, content: Content, now: float) -> None:
        """Have `content` sent in its turn, in place of what waits under this name.

        Raises:
            ValueError: it is too large.
        """
        if isinstance(content, bytes) and len(content) > MAX_BYTES:
            raise ValueError(f"{name} is larger than {MAX_BYTES} bytes")
        standing = _standing(content) if name == METADATA else None
        with self._lock:
            last = self._sent.get(name)
            due = now if last is None else last.time + _seconds(name, changed=standing != last.standing)
            self._waiting[name] = _Waiting(content, due, standing)

    def due(self, now: float) -> list[tuple[str, Content]]:
        """What is to be sent by `now`, in the order in which that should happen."""
        with self._lock:
            names = sorted((name for name, one in self._waiting.items() if one.due <= now), key=_place)
            return [(name, self._waiting[name].content) for name in names]

    def count(self, now: float) -> int:
        """How many files are to be sent by `now`."""
        with self._lock:
            return sum(one.due <= now for one in self._waiting.values())

    def next_due(self) -> float | None:
        """When the next file's turn comes, or came; None if none waits."""
        with self._lock:
            return min((one.due for one in self._waiting.values()), default=None)

    def sent(self, name: str, content: Content, now: float) -> None:
        """Take note that `content` is there; what was put since goes on waiting."""
        with self._lock:
            one = self._waiting.get(name)
            standing = _standing(content) if name == METADATA else None
            self._sent[name] = _Sent(now, standing)
            if one is None:
                return
            if one.content is content:
                del self._waiting[name]
            else:
                due = now + _seconds(name, changed=one.standing != standing)
                self._waiting[name] = _Waiting(one.content, due, one.standing)

    def clear(self) -> None:
        """Drop everything."""
        with self._lock:
            self._waiting.clear()


def is_sentinel(name: str) -> bool:
    """Whether a file says how an attempt ended, or is about to."""
    return name.partition(".")[0] in _SENTINELS


def _seconds(name: str, *, changed: bool) -> float:
    if is_sentinel(name):
        return 0.0
    seconds = _SECONDS.get(name, _OTHERS_SECONDS)
    return min(seconds, _CHANGED_SECONDS) if changed else seconds


def _place(name: str) -> tuple[int, str]:
    stem = name if name in _ORDER else name.partition(".")[0]
    if stem == COMPLETE:
        return len(_ORDER) + 1, name
    return _ORDER.index(stem) if stem in _ORDER else len(_ORDER), name


def _standing(content: Content) -> object:
    """What of the metadata a reader should not wait for."""
    try:
        said = json.loads(content) if isinstance(content, bytes) else None
    except ValueError:
        return None
    if not isinstance(said, dict):
        return None
    return tuple(said.get(key) for key in ("attempt_key", "status", "phase", "reason"))
