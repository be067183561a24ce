"""Keep a local copy of the records below one prefix of S3, a bounded share with each pass."""

from __future__ import annotations

import json
import logging
import random
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from trainwarden.clients.s3 import DENIED, INVALID, MAX_BYTES, MISSING, REASONS, S3Error, S3Page
from trainwarden.identity import InvalidRunId, check_run_id
from trainwarden.record.folder import CHECKPOINTED, COMPLETE, ERROR, LOG, METADATA, PROGRESS
from trainwarden_exporter.collectors.s3 import metrics
from trainwarden_exporter.collectors.s3.local_copy import LOG_BYTES
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from trainwarden.clients.s3 import S3Bucket, S3Entry
    from trainwarden_exporter.collectors.s3.local_copy import LocalCopy
    from trainwarden_exporter.core.metric import Family

_Answer = TypeVar("_Answer")

log = logging.getLogger(__name__)

NAMES = (METADATA, PROGRESS, CHECKPOINTED, ERROR, COMPLETE)
LOG_NAME = str(LOG)
WORKERS = 8
# As of records in a folder: a run without a heartbeat for so long is no longer exported.
KEPT_SECONDS = 24 * 3600.0
OLD_SECONDS = 1800.0
PAGES = 5
# Of one run: some write every checkpoint or sample directly into its folder.
RUN_PAGES = 10
MAX_NAMES = 50_000
LONGEST_PAUSE_SECONDS = 120.0
# S3 refuses one object: it is another account's, was encrypted by a key that may not be used, or is in an archive.
_OF_ONE_OBJECT = frozenset(("AccessDenied", "InvalidObjectState"))
COPIED, INCOMPLETE, OLD, DROPPED = "copied", "incomplete", "old", "dropped"
INVALID_NAME, WAITING = "invalid_run_id", "waiting"
OUTCOMES = (COPIED, INCOMPLETE, OLD, DROPPED, INVALID_NAME, WAITING)


@dataclass(frozen=True)
class Bounds:
    """How many runs are kept, and how many seconds a pass may take."""

    runs: int = 2000
    pass_seconds: float = 15.0


class PrefixSync:
    """Copies the records of one prefix; failures of S3 are counted and logged, never raised.

    Args:
        bucket: of the prefix; its requests come from up to `WORKERS` threads.
        copy: the local folder.
        bounds: of copy and pass.
        now: the clock, Unix seconds.
    """

    def __init__(self, bucket: S3Bucket, copy: LocalCopy, bounds: Bounds, now: Callable[[], float] = time.time) -> None:
        self._bucket, self._copy, self._bounds, self._now = bucket, copy, bounds, now
        self._outcomes: dict[str, str] = {}  # of every run that was listed
        self._listed: set[str] = set()  # by the listing under way
        self._token: str | None = None
        self._next: dict[str, float] = {}  # when an old run is read again, monotonic
        self._tried: dict[str, float] = {}  # when a run was last looked at, monotonic
        self._fetched = 0
        self._denied: set[str] = set()
        self._errors: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._lock = threading.Lock()
        self._up: bool | None = None
        self._success: float | None = None
        self._failures = 0
        self._not_before = 0.0
        self._logged: str | None = None

    def sample(self) -> Iterable[Family]:
        """Make one pass, unless S3 failed a short while ago, and return the state of this prefix."""
        if time.monotonic() >= self._not_before:
            self._pass()
        return self.families()

    def families(self) -> Iterable[Family]:
        """Return the state of this prefix."""
        families, location = Families(), self._bucket.location
        labels = {"bucket": location.bucket, "prefix": location.prefix}
        families.add(metrics.TRAINWARDEN_S3_UP, self._up, **labels)
        families.add(metrics.TRAINWARDEN_S3_LAST_SUCCESS_TIMESTAMP_SECONDS, self._success, **labels)
        families.add(metrics.TRAINWARDEN_S3_CLOCK_OFFSET_SECONDS, self._bucket.clock_offset, **labels)
        for reason in REASONS:
            families.add(metrics.TRAINWARDEN_S3_ERRORS_TOTAL, self._errors[reason], reason=reason, **labels)
        for operation, count in self._bucket.requests.items():
            families.add(metrics.TRAINWARDEN_S3_REQUESTS_TOTAL, count, operation=operation, **labels)
        outcomes = Counter(self._outcomes.values())
        for outcome in OUTCOMES:
            families.add(metrics.TRAINWARDEN_S3_RUNS, outcomes[outcome], outcome=outcome, **labels)
        return families.collected()

    def _pass(self) -> None:
        deadline = time.monotonic() + self._bounds.pass_seconds
        try:
            with calling(f"ListObjectsV2 {self._bucket.location}"):
                self._list_runs(deadline)
            with calling(f"GetObject {self._bucket.location}"):
                self._copy_runs(deadline)
        except S3Error as error:
            self._failed(error)
        else:
            if self._up is False:
                log.info("%s answers again", self._bucket.location)
            self._up, self._success, self._failures, self._logged = True, self._now(), 0, None
        self._copy.is_aws = self._bucket.is_aws
        self._copy.save()

    def _failed(self, error: S3Error) -> None:
        if str(error) != self._logged:
            log.warning("the records in S3 cannot be read: %s (%s)", error, error.reason)
        self._logged, self._up = str(error), False
        if error.refused:
            self._listed, self._token = set(), None  # where the listing is to go on may be what was refused
        pause = min(LONGEST_PAUSE_SECONDS, 5.0 * 2.0 ** min(self._failures, 10))
        self._failures += 1
        # Jitter: a hundred exporters that lost S3 at once must not come back at once.
        self._not_before = time.monotonic() + pause * random.uniform(0.5, 1)  # noqa: S311

    def _list_runs(self, deadline: float) -> None:
        for _ in range(PAGES):
            page = self._counted(lambda: self._bucket.page("", self._token))
            self._token = page.token
            for name in page.folders:
                self._add_run(name)
            if self._token is None or len(self._listed) >= MAX_NAMES:
                for gone in (self._outcomes.keys() | self._copy.runs.keys()) - self._listed:
                    self._forget(gone)
                self._listed, self._token = set(), None
                return
            if time.monotonic() >= deadline:
                return

    def _add_run(self, name: str) -> None:
        self._listed.add(name)
        if name not in self._outcomes:
            try:
                self._outcomes[name] = WAITING if check_run_id(name) else INVALID_NAME
            except InvalidRunId:
                self._outcomes[name] = INVALID_NAME

    def _forget(self, run_id: str) -> None:
        self._outcomes.pop(run_id, None)
        self._next.pop(run_id, None)
        self._tried.pop(run_id, None)
        if run_id in self._copy.runs:
            self._copy.drop(run_id)

    def _copy_runs(self, deadline: float) -> None:
        clock = time.monotonic()
        due = [
            name
            for name, outcome in self._outcomes.items()
            if outcome != INVALID_NAME and self._next.get(name, 0.0) <= clock
        ]
        # Those tried, or copied, longest ago first, so that a run for which this pass has no time is among the first of
        # the next, and one that fails each time is not.
        looked = {name: self._copy.runs[name].looked if name in self._copy.runs else 0.0 for name in due}
        due.sort(key=lambda name: (self._tried.get(name, 0.0), looked[name]))
        stop: list[S3Error] = []
        denied: list[S3Error] = []
        fetched = self._fetched

        def copy(run_id: str) -> None:
            if stop or time.monotonic() >= deadline:
                return
            self._tried[run_id] = clock
            try:
                self._outcomes[run_id] = self._copy_run(run_id)
            except S3Error as error:
                if error.code in _OF_ONE_OBJECT:
                    denied.append(error)
                elif error.reason not in {MISSING, INVALID}:
                    stop.append(error)

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(copy, due))
        if denied and self._fetched == fetched:
            stop += denied  # none may be read, as far as is known
        if stop:
            raise stop[0]
        new = [str(error) for error in denied if str(error) not in self._denied]
        if new:
            log.warning("the records of %d runs in S3 cannot be read, such as %s (%s)", len(denied), new[0], DENIED)
        self._denied = {str(error) for error in denied}

    def _copy_run(self, run_id: str) -> str:
        """Bring the copy of one run up to date and return its outcome."""
        now = self._now()
        page = self._list_run(run_id)
        complete = page.token is None
        objects = {each.name: each for each in page.entries}
        newest = max((each.modified for each in page.entries), default=None)
        if complete and newest is not None and now - newest > KEPT_SECONDS:
            self._copy.drop(run_id)
            self._next[run_id] = time.monotonic() + OLD_SECONDS * random.uniform(0.5, 1)  # noqa: S311  # spreads the load
            return OLD
        if run_id not in self._copy.runs and len(self._copy.runs) >= self._bounds.runs:
            self._next[run_id] = time.monotonic() + OLD_SECONDS
            return DROPPED
        self._next.pop(run_id, None)
        known = self._copy.run(run_id)
        for name in NAMES:
            if name not in objects:
                if complete and name in known.etags:
                    self._copy.remove(run_id, name)
            elif self._copy.etag(run_id, name) != objects[name].etag:
                self._fetch(run_id, name)
        if LOG_NAME.partition("/")[0] in page.folders:
            self._fetch(run_id, LOG_NAME, self._copy.etag(run_id, LOG_NAME), last=LOG_BYTES)
        if newest is not None:
            self._copy.set_time(run_id, newest)
        known.looked = now
        return COPIED if complete else INCOMPLETE

    def _list_run(self, run_id: str) -> S3Page:
        """Return what the folder of a run holds, of `RUN_PAGES` pages at most; with a token where there are more."""
        entries: list[S3Entry] = []
        folders: list[str] = []
        token: str | None = None
        for _ in range(RUN_PAGES):
            page = self._counted(partial(self._bucket.page, f"{run_id}/", token))
            entries += page.entries
            folders += page.folders
            token = page.token
            if token is None:
                break
        return S3Page(entries, folders, token)

    def _fetch(self, run_id: str, name: str, etag: str | None = None, last: int | None = None) -> None:
        """Copy one file unless it has this ETag; with `last` the end of a log."""
        key = f"{run_id}/{name}"
        try:
            content = self._counted(
                lambda: self._bucket.get_changed(key, etag, last=last, limit=MAX_BYTES + 1), is_log=last is not None
            )
        except S3Error as error:
            if error.reason in {MISSING, INVALID} or (last is not None and error.reason == DENIED):
                self._copy.remove(run_id, name)
                return
            raise
        if content is None:
            return
        if len(content.data) > MAX_BYTES or (name.endswith(".json") and not _is_json(content.data)):
            self._count(INVALID)  # copied nevertheless: it is exported as unreadable, as one in a folder is
        self._copy.write(run_id, name, content)
        with self._lock:
            self._fetched += 1

    def _counted(self, request: Callable[[], _Answer], *, is_log: bool = False) -> _Answer:
        """Return the answer of a request; count it if it fails, but not for the log that a record need not have."""
        try:
            return request()
        except S3Error as error:
            if not (is_log and error.reason == MISSING):
                self._count(error.reason)
            raise

    def _count(self, reason: str) -> None:
        with self._lock:
            self._errors[reason] += 1


def _is_json(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), dict)
    except (ValueError, RecursionError):
        return False
