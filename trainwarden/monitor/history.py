"""What a monitor has already alerted about, kept over its restarts: a file, or an object in S3 beside the records."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from trainwarden.clients.s3 import S3Bucket, S3Error
from trainwarden.clients.s3_location import S3Location
from trainwarden.record.document import JsonObject, Unreadable, read_json
from trainwarden.record.folder import replace_file
from trainwarden.runs.assessment import BAD, ENDED, Assessment

# An object of this name beside the folders of runs is no run.
OBJECT = ".trainwarden-monitor.json"
VERSION = 1
# A run that a monitor sees for the first time this long after its last sign is history, and no news.
_NEWS_SECONDS = 86_400.0
_FORGET_SECONDS = 30 * 86_400.0


class HistoryUnreadable(Exception):
    """What was alerted about cannot be read or written; the message is one line."""


class AlertHistory:
    """Which status of each run each channel has been given.

    Args:
        path: of its file; its folder is made where it is missing.
        place: of its object in S3, instead of a file.
    """

    def __init__(self, path: Path | None = None, place: S3Location | None = None) -> None:
        self._path = path
        self._bucket = S3Bucket(place) if place else None
        self._runs: dict[str, dict[str, Any]] = {}
        self._written = ""

    def load(self) -> None:
        """Read it; raises HistoryUnreadable, for to begin anew would repeat every alert."""
        values: Any = {}
        if self._bucket is not None:
            try:
                stored = self._bucket.get(OBJECT)
                values = json.loads(stored.data) if stored else {}
            except (S3Error, ValueError) as error:
                raise HistoryUnreadable(f"{self._bucket.location}/{OBJECT}: {error}") from None
        elif self._path is not None:
            found = read_json(self._path)
            if isinstance(found, Unreadable):
                raise HistoryUnreadable(f"{found}; remove it to begin anew")
            values = found.values if isinstance(found, JsonObject) else {}
        runs = values.get("runs") if isinstance(values, dict) else None
        self._runs = {str(name): each for name, each in (runs or {}).items() if isinstance(each, dict)}
        self._written = self._encoded()

    def save(self) -> None:
        """Write it where it has changed; raises HistoryUnreadable."""
        content = self._encoded()
        if content == self._written:
            return
        try:
            if self._bucket is not None:
                self._bucket.put(OBJECT, content.encode())
            elif self._path is not None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                replace_file(self._path, content.encode(), mode=0o600)
        except (S3Error, OSError) as error:
            raise HistoryUnreadable(f"{self._path or OBJECT}: {error}") from None
        self._written = content

    def is_news(self, assessment: Assessment, channel: str, *, asked: bool = False) -> bool:
        """Return whether `channel` is to be given this status: it is another one than the last that it was given.

        That a run is well is news after a bad status alone. One that is seen for the first time is no news while it is
        well, nor long after its last sign unless it was `asked` for.
        """
        known = self._given(assessment.run_id, channel)
        if known is not None:
            is_back = assessment.status in BAD | ENDED or known.partition(" ")[0] in BAD
            return known != _mark(assessment) and is_back
        if assessment.status not in BAD | ENDED:
            return False
        last = assessment.last_sign
        return asked or last is None or assessment.time - last < _NEWS_SECONDS

    def given(self, assessment: Assessment, channel: str) -> None:
        """Note that `channel` has been given this status, or needs not."""
        run = self._runs.setdefault(assessment.run_id, {})
        run[channel] = _mark(assessment)
        if not isinstance(run.get("time"), (int, float)) or assessment.time - run["time"] > _FORGET_SECONDS / 30:
            run["time"] = int(assessment.time)

    def forget(self, names: list[str], now: float) -> None:
        """Drop runs whose records have been gone for a month."""
        there = set(names)
        for name in [name for name, each in self._runs.items() if name not in there]:
            seen = self._runs[name].get("time")
            if not isinstance(seen, (int, float)) or now - seen > _FORGET_SECONDS:
                del self._runs[name]

    def _given(self, run_id: str, channel: str) -> str | None:
        mark = self._runs.get(run_id, {}).get(channel)
        return mark if isinstance(mark, str) else None

    def _encoded(self) -> str:
        return json.dumps({"version": VERSION, "runs": self._runs}, sort_keys=True) + "\n"


def default_path(place: str, environ: dict[str, str] | os._Environ[str] = os.environ) -> Path:
    """Return the file of a monitor of `place`, in the folder of this user's state."""
    import zlib  # noqa: PLC0415  # beside its only use

    state = environ.get("XDG_STATE_HOME", "")
    home = state if state.startswith("/") else os.path.expanduser(environ.get("HOME") or "~") + "/.local/state"  # noqa: PTH111
    return Path(home, "trainwarden", f"monitor-{zlib.crc32(place.encode()):08x}.json")


def _mark(assessment: Assessment) -> str:
    """Return what makes two alerts the same: an attempt fails once."""
    ending = f" {assessment.attempt_key or assessment.attempt or 0}" if assessment.status in ENDED else ""
    return f"{assessment.status}{ending}"
