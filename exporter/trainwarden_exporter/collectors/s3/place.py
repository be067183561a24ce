"""One prefix that is copied: looked at again and again, a bounded share each time, and how that fares."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden.record.folder import CHECKPOINTED, COMPLETE, ERROR, LOG, METADATA, PROGRESS
from trainwarden_exporter.collectors.s3 import metrics
from trainwarden_exporter.collectors.s3.store import DENIED, INVALID, MAX_BYTES, MISSING, REASONS, WORKERS, Trouble
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainwarden_exporter.collectors.s3.copy import Copied, Copy
    from trainwarden_exporter.collectors.s3.store import Store
    from trainwarden_exporter.core.metric import Family

_Answer = TypeVar("_Answer")

log = logging.getLogger(__name__)

NAMES = (METADATA, PROGRESS, CHECKPOINTED, ERROR, COMPLETE)
LOG_NAME = str(LOG)
LOG_BYTES = 64 * 2**10
# As the records of a folder: without a sign of life for so long a run is shown no longer.
KEPT_SECONDS = 24 * 3600.0
OLD_SECONDS = 1800.0
PAGES = 5
MAX_NAMES = 50_000
LONGEST_PAUSE_SECONDS = 120.0
COPIED, OLD, DROPPED, INVALID_NAME, WAITING = "copied", "old", "dropped", "invalid_run_id", "waiting"
OUTCOMES = (COPIED, OLD, DROPPED, INVALID_NAME, WAITING)


@dataclass(frozen=True)
class Bounds:
    """How much is kept and how long a look may take, in runs and seconds."""

    runs: int = 2000
    look_seconds: float = 15.0


class Place:
    """Copies the records of one prefix; `read` is one look. Never raises for what S3 does or does not do."""

    def __init__(self, store: Store, copy: Copy, bounds: Bounds, now: Callable[[], float] = time.time) -> None:
        self._store, self._copy, self._bounds, self._now = store, copy, bounds, now
        self._names: dict[str, str] = {}  # every run that was listed, and what became of it
        self._listed: set[str] = set()  # by the pass that is under way
        self._token: str | None = None
        self._next: dict[str, float] = {}  # when an old run is looked at again
        self._errors: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._lock = threading.Lock()
        self._up: bool | None = None
        self._success: float | None = None
        self._failures = 0
        self._not_before = 0.0
        self._said: str | None = None

    def read(self) -> Iterable[Family]:
        """Look once, unless S3 is to be left alone for now, and return how it fares."""
        if time.monotonic() >= self._not_before:
            self._look()
        return self._families()

    def _look(self) -> None:
        deadline = time.monotonic() + self._bounds.look_seconds
        try:
            with calling(f"ListObjectsV2 {self._store.location}"):
                self._list(deadline)
            with calling(f"GetObject {self._store.location}"):
                self._look_at_runs(deadline)
        except Trouble as trouble:
            self._failed(trouble)
        else:
            if self._up is False:
                log.info("%s answers again", self._store.location)
            self._up, self._success, self._failures, self._said = True, self._now(), 0, None
        self._copy.save()

    def _failed(self, trouble: Trouble) -> None:
        if str(trouble) != self._said:
            log.warning("the records in S3 cannot be read: %s (%s)", trouble, trouble.reason)
        self._said, self._up = str(trouble), False
        pause = min(LONGEST_PAUSE_SECONDS, 5.0 * 2.0 ** min(self._failures, 10))
        self._failures += 1
        # A hundred exporters that lost S3 at once must not come back at once.
        self._not_before = time.monotonic() + pause * random.uniform(0.5, 1)  # noqa: S311

    def _list(self, deadline: float) -> None:
        for _ in range(PAGES):
            names, self._token = self._counted(lambda: self._store.runs(self._token))
            for name in names:
                self._take_in(name)
            if self._token is None or len(self._listed) >= MAX_NAMES:
                for gone in (self._names.keys() | self._copy.runs.keys()) - self._listed:
                    self._forget(gone)
                self._listed, self._token = set(), None
                return
            if time.monotonic() >= deadline:
                return

    def _take_in(self, name: str) -> None:
        self._listed.add(name)
        if name not in self._names:
            try:
                self._names[name] = WAITING if check_run_id(name) else INVALID_NAME
            except InvalidRunId:
                self._names[name] = INVALID_NAME

    def _forget(self, run_id: str) -> None:
        self._names.pop(run_id, None)
        self._next.pop(run_id, None)
        if run_id in self._copy.runs:
            self._copy.drop(run_id)

    def _look_at_runs(self, deadline: float) -> None:
        now = self._now()
        due = [
            name for name, is_now in self._names.items() if is_now != INVALID_NAME and self._next.get(name, 0.0) <= now
        ]
        # Those that were seen longest ago first: what there is no time for now comes next.
        due.sort(key=lambda name: self._copy.runs[name].looked if name in self._copy.runs else 0.0)
        stop: list[Trouble] = []

        def look(run_id: str) -> None:
            if stop or time.monotonic() >= deadline:
                return
            try:
                self._names[run_id] = self._look_at(run_id)
            except Trouble as trouble:
                if trouble.reason not in {MISSING, INVALID}:
                    stop.append(trouble)

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(look, due))
        if stop:
            raise stop[0]

    def _look_at(self, run_id: str) -> str:
        """Bring the copy of one run up to date; returns what became of it."""
        now = self._now()
        found, folders = self._counted(lambda: self._store.objects(run_id))
        objects = {each.name: each for each in found}
        newest = max((each.modified for each in found), default=None)
        if newest is not None and now - newest > KEPT_SECONDS:
            self._copy.drop(run_id)
            self._next[run_id] = now + OLD_SECONDS * random.uniform(0.5, 1)  # noqa: S311
            return OLD
        if run_id not in self._copy.runs and len(self._copy.runs) >= self._bounds.runs:
            self._next[run_id] = now + OLD_SECONDS
            return DROPPED
        self._next.pop(run_id, None)
        known = self._copy.run(run_id)
        for name in NAMES:
            if name not in objects:
                if name in known.etags:
                    self._copy.remove(run_id, name)
            elif known.etags.get(name) != objects[name].etag:
                self._fetch(run_id, name)
        if LOG_NAME.partition("/")[0] in folders:
            self._fetch(run_id, LOG_NAME, known, last=LOG_BYTES)
        if newest is not None:
            self._copy.date(run_id, newest)
        known.looked = now
        return COPIED

    def _fetch(self, run_id: str, name: str, known: Copied | None = None, last: int | None = None) -> None:
        etag = known.etags.get(name) if known else None
        try:
            content = self._counted(lambda: self._store.get(f"{run_id}/{name}", etag, last), is_log=last is not None)
        except Trouble as trouble:
            if trouble.reason in {MISSING, INVALID} or (last is not None and trouble.reason == DENIED):
                self._copy.remove(run_id, name)
                return
            raise
        if content is None:
            return
        if len(content.data) > MAX_BYTES or (name.endswith(".json") and not _is_json(content.data)):
            self._count(INVALID)  # copied all the same: it is told of as one that lies in a folder
        self._copy.write(run_id, name, content)

    def _counted(self, ask: Callable[[], _Answer], *, is_log: bool = False) -> _Answer:
        try:
            return ask()
        except Trouble as trouble:
            # A record without this log is none the worse.
            if not (is_log and trouble.reason == MISSING):
                self._count(trouble.reason)
            raise

    def _count(self, reason: str) -> None:
        with self._lock:
            self._errors[reason] += 1

    def _families(self) -> Iterable[Family]:
        families, location = Families(), self._store.location
        labels = {"bucket": location.bucket, "prefix": location.prefix}
        families.add(metrics.TRAINWARDEN_S3_UP, self._up, **labels)
        families.add(metrics.TRAINWARDEN_S3_LAST_SUCCESS_TIMESTAMP_SECONDS, self._success, **labels)
        families.add(metrics.TRAINWARDEN_S3_CLOCK_OFFSET_SECONDS, self._store.ahead, **labels)
        for reason in REASONS:
            families.add(metrics.TRAINWARDEN_S3_ERRORS_TOTAL, self._errors[reason], reason=reason, **labels)
        for operation, count in self._store.requests.items():
            families.add(metrics.TRAINWARDEN_S3_REQUESTS_TOTAL, count, operation=operation, **labels)
        outcomes = Counter(self._names.values())
        for outcome in OUTCOMES:
            families.add(metrics.TRAINWARDEN_S3_RUNS, outcomes[outcome], outcome=outcome, **labels)
        return families.collected()


def _is_json(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        return False
