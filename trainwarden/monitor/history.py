"""What a monitor has already alerted about, kept over its restarts: a file, or an object in S3 beside the records."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from trainwarden.clients.s3 import S3Bucket, S3Error
from trainwarden.clients.s3_location import S3Location
from trainwarden.record.document import FileContent, Unreadable, parse_json, read_file
from trainwarden.record.folder import replace_file
from trainwarden.runs.assessment import BAD, ENDED, Assessment

# An object of this name beside the folders of runs is no run.
OBJECT = ".trainwarden-monitor.json"
VERSION = 1
_UNREADABLE = ".unreadable"
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

    def load(self) -> str | None:
        """Read it, and return None; or set aside what holds no history, and return one line about that.

        Raises:
            HistoryUnreadable: it cannot be read, or not be set aside: to begin anew would repeat every alert.
        """
        content, where = self._content()
        found = parse_json(content, where) if content is not None else None
        runs: Any = {} if found is None else None if isinstance(found, Unreadable) else found.values.get("runs")
        problem = None
        if content is not None and not isinstance(runs, dict):
            reason = found if isinstance(found, Unreadable) else f"{where}: holds no runs"
            problem = f"{reason}; expected what a monitor wrote there; kept as {self._set_aside(content)}, begins anew"
            runs = {}
        self._runs = {str(name): each for name, each in runs.items() if isinstance(each, dict)}
        self._written = "" if problem else self._encoded()
        return problem

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

    def _content(self) -> tuple[FileContent | None, str]:
        """Return what is stored, and where; raises HistoryUnreadable."""
        if self._bucket is not None:
            where = f"{self._bucket.location}/{OBJECT}"
            try:
                stored = self._bucket.get(OBJECT)
            except S3Error as error:
                raise HistoryUnreadable(f"{where}: {error}") from None
            return (FileContent(stored.data, 0.0) if stored else None), where
        found = read_file(self._path) if self._path is not None else None
        if isinstance(found, Unreadable):
            raise HistoryUnreadable(f"{found}; expected a file that a monitor wrote, or none yet")
        return found, str(self._path)

    def _set_aside(self, content: FileContent) -> str:
        """Keep what is stored under another name, and return that; raises HistoryUnreadable."""
        try:
            if self._path is not None:
                return str(self._path.replace(self._path.with_name(self._path.name + _UNREADABLE)))
            if self._bucket is not None:
                self._bucket.put(OBJECT + _UNREADABLE, content.data)
            return OBJECT + _UNREADABLE
        except (S3Error, OSError) as error:
            raise HistoryUnreadable(f"{self._path or OBJECT}: holds no history, and cannot be kept: {error}") from None

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
