"""The logs of one run: which files they are, what was found in them, what that says of the attempt."""

from __future__ import annotations

import re
from collections import Counter, deque
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.record.folder import LOG
from trainwarden.signals.diagnosis import diagnose_ranks
from trainwarden.signals.tailing.log import TailedLog
from trainwarden.signals.tailing.remainder import Position, standing
from trainwarden_exporter.core.exchange import LogVerdict, LogView

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from trainwarden.signals.model import Match
    from trainwarden.signals.progress import Progress
    from trainwarden.signals.tailing.log import Searcher
    from trainwarden.signals.tailing.template import Template
    from trainwarden_exporter.collectors.logs.problems import LogProblems
    from trainwarden_exporter.collectors.logs.sheet import CachedSamples
    from trainwarden_exporter.core.exchange import WatchedRun

# The log of an attempt that is over, put aside by the next: it was read under its old name.
_ASIDE = re.compile(r"training_log_\d+_\d+\.txt")
_MESSAGE = 400
_FINISHED = 64
# Longer than a bar or a loop leaves a record incomplete.
SILENT_SECONDS = 30.0


def logs_of(run: WatchedRun, templates: Sequence[Template]) -> list[str]:
    """The paths of a run's logs: those in its record, and what the templates mean for it."""
    paths: dict[str, None] = {}
    if run.folder is not None and run.owned:
        main = run.folder / LOG
        paths[str(main)] = None
        try:
            names = sorted(entry.name for entry in main.parent.iterdir())
        except OSError:
            names = []
        for name in names:
            if name.endswith(".txt") and not name.startswith(".") and not _ASIDE.fullmatch(name):
                paths[str(main.parent / name)] = None
    for template in templates:
        if template.names_run and (run.owned or template.names_node):
            paths.update(dict.fromkeys(template.paths(run.values)))
    return list(paths)


class RunLogs:
    """What is known of one run's logs.

    Attributes:
        counts, last: how often each signal was found, and when it was last, by name.
        sheet: the series as they were exported last.
        dirty: something changed since `state` was last kept.
    """

    def __init__(self, run: WatchedRun, searcher: Searcher, roots: Sequence[str], first_read: int) -> None:
        self.run = run
        self.searcher = searcher
        self.logs: dict[str, TailedLog] = {}
        self.counts: Counter[str] = Counter()
        self.last: dict[str, float] = {}
        self.sheet: CachedSamples | None = None
        self.dirty = False
        self.moved: float | None = None
        self._roots = roots
        self._first_read = first_read
        self._attempt = run.attempt
        self._verdict: LogVerdict | None = None
        self._settled = False
        self._moved_then: float | None = None  # `moved` when the verdict was made
        self._skipped = 0  # in files that are no longer followed
        self._finished: deque[Position] = deque(maxlen=_FINISHED)

    @property
    def skipped(self) -> int:
        """Bytes of the logs that were passed over."""
        return self._skipped + sum(log.follower.skipped for log in self.logs.values())

    @property
    def settled(self) -> bool:
        """The attempt has ended and nothing more is expected."""
        return self._settled

    def update(self, run: WatchedRun) -> None:
        """Take in what the record says now."""
        self.run = run
        if run.attempt != self._attempt:
            for log in self.logs.values():
                log.forget_before(run.attempt_start or 0.0)
            self._attempt, self._verdict, self._settled, self.dirty = run.attempt, None, False, True
        if self._settled and not run.ended:
            self._settled, self._verdict, self.dirty = False, None, True

    def look(self, paths: Iterable[str], room: int, problems: LogProblems) -> int:
        """Follow these files, `room` at most; returns how many are left out.

        One that is followed already, by whatever name, is not followed twice.
        """
        wanted = dict.fromkeys(paths)
        left_out, known = 0, self._files() | self._turned()
        for path in [path for path in wanted if path not in self.logs]:
            file = _file_at(path)
            if file is None or file in known or (None, file[1]) in known:
                continue
            if len(self.logs) >= room:
                left_out += 1
            elif problems.safely(path, partial(self._follow, path)):
                known.add(file)
        for path in self.logs.keys() - wanted.keys():
            # A file that was renamed is followed by its old name to its end.
            if self.logs[path].follower.identity is None:
                self._finished_with(self.logs.pop(path))
        # What was there before this run was first looked at may be long; what comes later is read from its beginning.
        self._first_read = 2**62
        return left_out

    def _files(self) -> set[tuple[int | None, int]]:
        """Device and inode of every file that is followed; of one that is not open the device is not known."""
        files: set[tuple[int | None, int]] = set()
        for log in self.logs.values():
            if (identity := log.follower.identity) is not None:
                files.add(identity)
            elif (position := log.follower.position) is not None:
                files.add((None, position.inode))
        return files

    def _turned(self) -> set[tuple[int | None, int]]:
        """What the paths lead to now. One that was turned to another log's file is given up at the end of its own."""
        targets: set[tuple[int | None, int]] = set()
        for log in self.logs.values():
            if (target := _file_at(log.path)) is not None:
                targets.add(target)
                others = (other.follower.identity for other in self.logs.values() if other is not log)
                log.follower.stays = target != log.follower.identity and target in others
        return targets

    def _follow(self, path: str) -> None:
        log = TailedLog(path, self._roots, self._first_read)
        # Read to its end under another name, or a copy of that.
        log.follower.resume(standing(path, self._finished, self._roots))
        self.logs[path] = log

    def _finished_with(self, log: TailedLog) -> None:
        if (position := log.follower.position) is not None:
            self._finished.append(position)
        self._skipped += log.follower.skipped
        log.follower.close()
        self.dirty = True

    def take(self, log: TailedLog, now: float) -> int:
        """Search the next piece of a log; how many bytes were done with, 0 if there is nothing to do."""
        modified = log.follower.modified
        silent = modified is not None and now - modified > SILENT_SECONDS
        step = log.progress.step
        taken = log.take(self.searcher, now, last=self.run.ended or silent or log.follower.stays)
        self._finished += log.follower.take_finished()
        if taken is None:
            if log.follower.stays:
                self._finished_with(self.logs.pop(log.path))
            return 0
        matches, done = taken
        for match in matches:
            self._count(match, log, now)
        if log.progress.step != step:
            self.moved = min(now, modified or now)
        self.dirty = True
        return done

    def _count(self, match: Match, log: TailedLog, now: float) -> None:
        name = match.signal.name
        self.counts[name] += 1
        times = [one.time for one in log.seen if one.match.signal.name == name]
        self.last[name] = max((self.last.get(name, 0.0), *(times[-1:] or [now])))

    def judge(self) -> None:
        """Decide on the cause, once everything was read that was there when the attempt had ended, or fell silent."""
        if self._settled or not (self.run.ended or self.run.quiet):
            if not self._settled:
                self._verdict = None  # the loop moves again
            return
        if self._verdict is None or self.moved != self._moved_then:
            self._verdict, self._moved_then = self._diagnose(), self.moved
            self.dirty = self.dirty or self._verdict is not None
        if self.run.ended:
            self._settled = self.dirty = True

    def _diagnose(self) -> LogVerdict | None:
        logs = list(self.logs.values())
        found = diagnose_ranks([[one.match for one in log.seen] for log in logs], progress=[log.moves for log in logs])
        if found is None:
            return None
        evidence = found.evidence[0]
        return LogVerdict(
            error_type=found.error_type,
            failure=found.failure or "",
            subsystem=found.subsystem or "",
            severity=found.severity,
            message=evidence.text[:_MESSAGE],
            hint=found.hint,
            signal=found.signal,
            role=evidence.signal.role,
        )

    def view(self, now: float) -> LogView:
        """What others may know."""
        return LogView(self._attempt, self._settled, self._verdict, self.progress, self.moved, now)

    @property
    def progress(self) -> Progress | None:
        """How far the logs say that the training is: by the log of the furthest step."""
        known = [log.progress for log in self.logs.values()]
        known = [each for each in known if each.step is not None or each.loss is not None]
        return max(known, key=lambda each: each.step if each.step is not None else -1, default=None)

    def state(self) -> dict[str, Any]:
        """Everything, as JSON can hold it."""
        return {
            "attempt": self._attempt,
            "settled": self._settled,
            "moved": self.moved,
            "skipped": self._skipped,
            "verdict": None if self._verdict is None else vars(self._verdict),
            "counts": dict(self.counts),
            "last": self.last,
            "finished": [position.as_json() for position in self._finished],
            "logs": [log.state() for log in self.logs.values()],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on where `state()` was taken.

        Raises:
            ValueError, KeyError, TypeError, AttributeError: it is no such state; throw this one away then.
        """
        self._attempt, self._settled = str(state["attempt"]), bool(state["settled"])
        self.moved = None if state["moved"] is None else float(state["moved"])
        self._moved_then = self.moved
        self._verdict = None if state["verdict"] is None else LogVerdict(**state["verdict"])
        self.counts = Counter({str(name): int(count) for name, count in state["counts"].items()})
        self.last = {str(name): float(time) for name, time in state["last"].items()}
        self._skipped = int(state["skipped"])
        self._finished.extend(Position.of_json(each) for each in state["finished"])
        self._first_read = 2**62
        for each in state["logs"]:
            log = TailedLog(str(each["path"]), self._roots, self._first_read)
            log.restore(each, self.searcher.signals)
            self.logs[log.path] = log

    def close(self) -> None:
        """Let all files go."""
        for log in self.logs.values():
            log.follower.close()


def _file_at(path: str) -> tuple[int, int] | None:
    try:
        status = Path(path).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino
