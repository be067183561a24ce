"""The logs of one run: which files they are, what was found in them, and the cause that they show."""

from __future__ import annotations

import errno
import os
from collections import Counter, deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.signals.diagnosis import diagnose, diagnose_ranks
from trainwarden.signals.tailing.log import TailedLog
from trainwarden.signals.tailing.opening import OwnedRoots
from trainwarden.signals.tailing.remainder import Position, copied_so_far, standing
from trainwarden_exporter.collectors.logs.counts import SignalCounts
from trainwarden_exporter.collectors.logs.packs import OF_RECORD
from trainwarden_exporter.collectors.logs.problems import DONE, FAILED
from trainwarden_exporter.core.shared_state import LogVerdict, LogView
from trainwarden_exporter.sampling.calls import enter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from trainwarden.signals.model import Match
    from trainwarden.signals.progress import LogProgress
    from trainwarden.signals.tailing.log import Searcher, Seen
    from trainwarden_exporter.collectors.logs.problems import LogProblems
    from trainwarden_exporter.core.metric import CachedSamples
    from trainwarden_exporter.core.shared_state import WatchedRun

_MESSAGE = 400
# Of a message with fields: what of it is shown, and the fields in it.
_SHOWN, _FIELDS = 190, 120
_FINISHED = 64
# Paths that are remembered and counted, of one run.
_MAX_UNREADABLE = 256
# Longer than a progress bar or a training loop leaves a record incomplete.
SILENT_SECONDS = 30.0
# How long a rotation by copying may take until the original is cut off.
_COPYING_SECONDS = 60.0
# By the state of a signal; each but success is a failure mode that policies have restarts for.
_SUCCESS = "success"
_STATES = {"CrashState": "crash", "StalledState": "stall", "TimeoutState": "timeout", "SuccessState": _SUCCESS}


class RunLogs:
    """The state of one run's logs.

    Attributes:
        run: as the shared state described it last.
        logs: that are followed, by path.
        unreadable: paths that could not be looked at or read in the last round.
        dropped: logs beyond the limit in the last round.
        last: when each signal was found last, by its name.
        cached: the samples of signals, with the numbers of signals that are shown and left out.
        dirty: something changed since `state` was last stored.
        moved: when the step last changed, Unix seconds.
        states: what the user's own signals state of the attempt while it runs: by state, the record that does.
    """

    def __init__(self, run: WatchedRun, searcher: Searcher, roots: Sequence[str], first_read: int) -> None:
        self.run = run
        self.searcher = searcher
        self.logs: dict[str, TailedLog] = {}
        self.unreadable: set[str] = set()
        self.dropped = 0
        self._counts = SignalCounts()
        self.last: dict[str, float] = {}
        self.cached: tuple[CachedSamples, int, int] | None = None
        self.dirty = False
        self.moved: float | None = None
        self.states: dict[str, Seen] = {}
        self._users_signals = any(not signal.shipped for signal in searcher.pack.signals)
        self._roots = roots if run.owner is None else OwnedRoots(roots, run.owner)
        self._first_read = first_read
        self._attempt = run.attempt
        self._verdict: LogVerdict | None = None
        self._settled = False
        self._moved_at_verdict: float | None = None
        self._skipped = 0  # in files that are no longer followed
        self._finished: deque[Position] = deque(maxlen=_FINISHED)
        self._sources: dict[str, str] = {}  # of the paths
        self._copies: dict[str, tuple[float, int]] = {}  # that may be in the making: when first seen, and their size

    @property
    def owner(self) -> int:
        """The uid of the user whose run it is; -1 for runs without a record in the runs folder."""
        return -1 if self.run.owner is None else self.run.owner

    @property
    def counts(self) -> Counter[str]:
        """How often each signal was found, by its name."""
        return self._counts.totals

    @property
    def skipped(self) -> int:
        """Bytes of the logs that were never read."""
        return self._skipped + sum(log.follower.skipped for log in self.logs.values())

    @property
    def settled(self) -> bool:
        """The attempt has ended and its verdict is final."""
        return self._settled

    def update(self, run: WatchedRun) -> None:
        """Take the run as the shared state describes it now."""
        self.run = run
        if run.attempt != self._attempt:
            for log in self.logs.values():
                log.forget_before(run.attempt_start or 0.0)
            self._counts.begin_attempt()
            self.states = {}
            self._attempt, self._verdict, self._settled, self.dirty = run.attempt, None, False, True
        if self._settled and not run.ended:
            self._settled, self._verdict, self.dirty = False, None, True

    def access(self, path: str, act: Callable[[], object], problems: LogProblems) -> bool:
        """Do something with a file; return whether it succeeded, and note one that is there and cannot be read."""
        outcome = problems.isolate(path, act)
        if outcome == FAILED and len(self.unreadable) < _MAX_UNREADABLE:
            self.unreadable.add(path)
        return outcome == DONE

    def poll(self, now: float, problems: LogProblems) -> list[TailedLog]:
        """Poll the files that are followed, before `follow`; return those that can be read."""
        self._redirected()
        return self._polled(list(self.logs.values()), now, problems)

    def follow(
        self, paths: Mapping[str, str], room: int, now: float, problems: LogProblems
    ) -> tuple[list[TailedLog], int]:
        """Follow these files, `room` at most; return the new ones that can be read, and how many are left out.

        A file that is followed already, under any name, is not followed twice, and of a copy only what was not read of
        its original.

        Args:
            paths: with their sources.
            room: limit of the number of logs.
            now: Unix seconds.
            problems: counts what cannot be read.
        """
        wanted = dict(paths)
        self._copies = {path: copy for path, copy in self._copies.items() if path in wanted}
        for log in self.logs.values():
            self._finished += log.follower.take_finished()
        left_out, known, new = 0, self._files() | self._redirected(), []
        for path in [path for path in wanted if path not in self.logs]:
            file = self._locate(path, problems)
            if file is None or file in known or (None, file[1]) in known:
                continue
            if len(self.logs) >= room:
                left_out += 1
            elif self._is_being_copied(path, now):
                continue
            elif self.access(path, partial(self._follow, path), problems):
                known.add(file)
                new.append(self.logs[path])
        for path in self.logs.keys() - wanted.keys():
            # A file that was renamed is followed under its old name to its end.
            if self.logs[path].follower.identity is None:
                self._finish(self.logs.pop(path))
        # Of the others, of which a run may have thousands, nothing is kept.
        self._sources = {path: wanted[path] for path in self.logs.keys() & wanted.keys()}
        # Only a file older than the first sample of the run may be long; later ones are read from their beginning.
        self._first_read = 2**62
        return self._polled(new, now, problems), left_out

    def _polled(self, logs: Iterable[TailedLog], now: float, problems: LogProblems) -> list[TailedLog]:
        """Poll; a log that cannot be read does not keep the others from being judged."""
        readable = []
        for log in logs:
            enter("stat")
            if self.access(log.path, partial(log.poll, now), problems):
                readable.append(log)
        return readable

    def _is_being_copied(self, path: str, now: float) -> bool:
        """Return whether a new file may be a copy that is in the making, before its original is cut off.

        It holds what is in a log that is followed, and nothing else. Such a file waits for a minute; one that has not
        grown by then is a copy, and was read.
        """
        originals = [log.path for log in self.logs.values() if log.follower.offset and _is_named_after(path, log.path)]
        copied = copied_so_far(path, originals, self._roots) if originals and not self.run.ended else None
        if copied is None:
            self._copies.pop(path, None)
            return False
        since, size = self._copies.setdefault(path, (now, copied.offset))
        if abs(now - since) < _COPYING_SECONDS:  # the clock may have been set
            return True
        del self._copies[path]
        if size == copied.offset:
            self._finished.append(copied)
        return False

    def _locate(self, path: str, problems: LogProblems) -> tuple[int, int] | None:
        """Return device and inode; None if there is no file, or if it cannot be looked at, which is a problem."""
        file = None

        def stat() -> None:
            nonlocal file
            file = _identity(path)

        self.access(path, stat, problems)
        return file

    def _files(self) -> set[tuple[int | None, int]]:
        """Return device and inode of every file that is followed; the device is None where the file is not open."""
        files: set[tuple[int | None, int]] = set()
        for log in self.logs.values():
            if (identity := log.follower.identity) is not None:
                files.add(identity)
            elif (position := log.follower.position) is not None:
                files.add((None, position.inode))
        return files

    def _redirected(self) -> set[tuple[int | None, int]]:
        """Return what the paths lead to now. A path that leads to another log's file ends at the end of its own."""
        targets: set[tuple[int | None, int]] = set()
        for log in self.logs.values():
            if (target := _identity_or_none(log.path)) is not None:
                targets.add(target)
                others = (other.follower.identity for other in self.logs.values() if other is not log)
                log.follower.stays = target != log.follower.identity and target in others
        return targets

    def _follow(self, path: str) -> None:
        log = TailedLog(path, self._roots, self._first_read)
        # The file, or what it is a copy of, may have been read to its end under another name.
        log.follower.resume(standing(path, self._finished, self._roots))
        self.logs[path] = log

    def _finish(self, log: TailedLog) -> None:
        if (position := log.follower.position) is not None:
            self._finished.append(position)
        self._skipped += log.follower.skipped
        log.follower.close()
        self.dirty = True

    def read_piece(self, log: TailedLog, now: float) -> bytes:
        """Search the next piece of a log; return its bytes, whole records; empty if there are none."""
        silent = log.written is not None and now - log.written > SILENT_SECONDS
        step = log.progress.step
        taken = log.take(self.searcher, now, last=self.run.ended or silent or log.follower.stays)
        self._finished += log.follower.take_finished()
        if taken is None:
            if log.follower.stays:
                self._finish(self.logs.pop(log.path))
            return b""
        matches, data = taken
        self._counts.add(matches, self._sources.get(log.path, OF_RECORD))
        for name in {match.signal.name for match in matches}:
            times = [one.time for one in log.seen if one.match.signal.name == name]
            self.last[name] = max((self.last.get(name, 0.0), *(times[-1:] or [now])))
        if log.progress.step != step:
            self.moved = min(now, log.written or now)
        if self._users_signals:
            self.states = _stated_by(self.logs.values())
        self.dirty = True
        return data

    def infer_cause(self) -> None:
        """Diagnose an attempt that has ended or fallen silent; call it once its logs were read to their end."""
        if self._settled or not (self.run.ended or self.run.quiet):
            if not self._settled:
                self._verdict = None  # the loop moves again
            return
        if self._verdict is None or self.moved != self._moved_at_verdict:
            self._verdict, self._moved_at_verdict = self._diagnose(), self.moved
            self.dirty = self.dirty or self._verdict is not None
        if self.run.ended:
            self._settled = self.dirty = True

    def _diagnose(self) -> LogVerdict | None:
        logs = list(self.logs.values())
        found = diagnose_ranks([[one.match for one in log.seen] for log in logs], progress=[log.moves for log in logs])
        if found is None:
            return None
        evidence = found.evidence[0]
        is_users = not evidence.signal.shipped
        return LogVerdict(
            error_type=found.error_type,
            failure=found.failure or (found.signal if is_users else ""),
            subsystem=found.subsystem or "",
            severity=found.severity,
            message=_message(evidence),
            hint=found.hint,
            signal=found.signal,
            role=evidence.signal.role,
            is_users=is_users,
        )

    def view(self, taken: float) -> LogView:
        """Return what the shared state shows of the logs, read at a monotonic time."""
        progress = self.progress
        return LogView(self._attempt, self._settled, self._verdict, progress, self.moved, taken, self._users_signals)

    @property
    def progress(self) -> LogProgress | None:
        """The progress in the log with the highest step; None if no log reports any."""
        known = [log.progress for log in self.logs.values()]
        known = [each for each in known if each.step is not None or each.loss is not None]
        return max(known, key=lambda each: each.step if each.step is not None else -1, default=None)

    def state(self) -> dict[str, Any]:
        """Return everything that a restart needs, as JSON can hold it."""
        return {
            "attempt": self._attempt,
            "settled": self._settled,
            "moved": self.moved,
            "skipped": self._skipped,
            "verdict": None if self._verdict is None else vars(self._verdict),
            **self._counts.state(),
            "last": self.last,
            "finished": [position.as_json() for position in self._finished],
            "logs": [log.state() for log in self.logs.values()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state()` was taken.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is no such state; discard this object then.
        """
        self._attempt, self._settled = str(state["attempt"]), bool(state["settled"])
        self.moved = None if state["moved"] is None else float(state["moved"])
        self._moved_at_verdict = self.moved
        self._verdict = None if state["verdict"] is None else LogVerdict(**state["verdict"])
        self._counts.restore(state)
        self.last = {str(name): float(time) for name, time in state["last"].items()}
        self._skipped = int(state["skipped"])
        self._finished.extend(Position.of_json(each) for each in state["finished"])
        self._first_read = 2**62
        for each in state["logs"]:
            log = TailedLog(str(each["path"]), self._roots, self._first_read)
            log.restore(each, self.searcher.signals)
            self.logs[log.path] = log
        self.states = _stated_by(self.logs.values()) if self._users_signals else {}

    def close(self) -> None:
        """Close all files."""
        for log in self.logs.values():
            log.follower.close()


def _message(match: Match) -> str:
    """Return the record, and the fields that a user's signal extracts, within what a message may hold."""
    signal = match.signal
    if signal.shipped or not signal.extract_groups or not match.fields:
        return match.text[:_MESSAGE]
    fields = ", ".join(f"{name}={value}" for name, value in match.fields.items())[:_FIELDS]
    return f"{match.text[: _SHOWN - len(fields)]} [{fields}]"


def _is_named_after(path: str, original: str) -> bool:
    """Return whether the path has the folder and the beginning of the name of another, as a rotated file has."""
    folder, name = os.path.split(original)
    return os.path.dirname(path) == folder and os.path.basename(path).startswith(name.partition(".")[0])  # noqa: PTH119, PTH120  # for many files


def _identity(path: str) -> tuple[int, int]:
    """Return device and inode; raise `OSError` as `stat` does."""
    try:
        status = Path(path).stat()
    except ValueError as error:  # a NUL in the path
        raise FileNotFoundError(errno.ENOENT, str(error), path) from error
    return status.st_dev, status.st_ino


def _identity_or_none(path: str) -> tuple[int, int] | None:
    try:
        return _identity(path)
    except OSError:
        return None


def _stated_by(logs: Iterable[TailedLog]) -> dict[str, Seen]:
    """Return, by what users' signals state, the earliest record that does, without what the attempt has survived."""
    found: dict[str, Seen] = {}
    for log in logs:
        users = [one for one in log.seen if one.match.signal.state and not one.match.signal.shipped]
        for name, state in _STATES.items():
            stating = [one for one in users if one.match.signal.state == name]
            first = stating[0] if state == _SUCCESS and stating else _cause_of(stating, log.moves)
            if first is not None and (state not in found or first.time < found[state].time):
                found[state] = first
    return found


def _cause_of(stating: Sequence[Seen], moves: Sequence[int]) -> Seen | None:
    verdict = diagnose([one.match for one in stating], progress=moves) if stating else None
    if verdict is None:
        return None
    cause = verdict.evidence[0]
    return next(
        one for one in stating if (one.match.offset, one.match.signal.name) == (cause.offset, cause.signal.name)
    )
