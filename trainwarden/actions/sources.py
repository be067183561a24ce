"""What happened in the runs of this user: lines of their journals, and signals in their logs."""

from __future__ import annotations

import contextlib
import itertools
import json
import logging
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from trainwarden.actions.configuration import EVENT, NOTED, SIGNAL
from trainwarden.record.clock import from_iso
from trainwarden.record.folder import EVENTS, LOG, run_folders
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.signals.tailing.follower import Follower, Position
from trainwarden.signals.tailing.log import Searcher, TailedLog
from trainwarden.signals.tailing.opening import OwnedRoots, Refused
from trainwarden.signals.tailing.template import InvalidTemplate, Template

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from trainwarden.actions.configuration import Configuration
    from trainwarden.actions.ledger import Ledger
    from trainwarden.signals.model import Match, Signal

log = logging.getLogger(__name__)

_PIECE_BYTES = 256 * 1024
_FIRST_READ = 64 * 2**20
_MAX_LOGS = 64
_MAX_FIELD, _MAX_FIELDS, _MAX_TEXT = 2048, 64, 400
_PLACEHOLDERS = {
    "slurm_array_job_id": "array_job_id", "slurm_array_task_id": "array_task_id", "slurm_job_name": "job_name",
    "slurm_job_user": "user",
}  # fmt: skip


@dataclass(frozen=True)
class Occurrence:
    """One event of a journal, or one match of a signal.

    Attributes:
        run_id: of the run.
        kind: EVENT or SIGNAL.
        name: of the event or the signal.
        identity: what no other occurrence of the run has, and what is the same if the file is read again.
        fields: values by name, and those of the run; foreign text.
        text: the record of a log, cut.
        signal: of the pack; None for an event.
        attempt: of the run when it was read; empty if unknown.
    """

    run_id: str
    kind: str
    name: str
    identity: str
    fields: Mapping[str, str]
    text: str = ""
    signal: Signal | None = None
    attempt: str = ""


@dataclass(frozen=True)
class Batch:
    """What is new in one file. It counts once `position` is stored with it; `passed`: it was there before the start."""

    path: str
    position: Mapping[str, Any]
    occurrences: list[Occurrence]
    passed: bool


class Sources:
    """Follows the journals and logs of all runs whose record belongs to this user.

    Args:
        configuration: which runs, signals and logs.
        ledger: how far each file was read.
    """

    def __init__(self, configuration: Configuration, ledger: Ledger) -> None:
        self._configuration = configuration
        self._ledger = ledger
        self._user = os.geteuid()
        self._roots = OwnedRoots(("/",), self._user)  # anywhere, but this user's
        self._searcher = _searcher(configuration)
        self._journals: dict[str, Follower] = {}
        self._logs: dict[str, TailedLog] = {}
        self._old: set[str] = set()  # what is in these was written before the first start
        self._refused: set[str] = set()

    def close(self) -> None:
        """Close all files."""
        for journal in self._journals.values():
            journal.close()
        for tailed in self._logs.values():
            tailed.follower.close()

    def read(self, now: float) -> Iterator[Batch]:
        """Yield what is new, one piece of one file after the other; store each before the next."""
        for folder in (folders := list(run_folders(self._configuration.runs_dir))):
            try:
                if folder.lstat().st_uid != self._user:
                    continue  # another user's own service is for that one
                metadata = read_metadata(folder)
            except OSError:
                continue
            run = metadata if isinstance(metadata, Metadata) else Metadata()
            yield from self._isolated(self._read_journal(folder, run), folder / EVENTS)
            if self._searcher is not None:
                for path in self._log_paths(folder, run):
                    yield from self._isolated(self._read_log(folder, run, path, self._searcher, now), path)

        self._forget_but({str(folder / EVENTS) for folder in folders})

    def _forget_but(self, journals: set[str]) -> None:
        """Close the journals of runs whose record is gone."""
        for path in self._journals.keys() - journals:
            self._journals.pop(path).close()

    def _isolated(self, batches: Iterator[Batch], path: object) -> Iterator[Batch]:
        """A file that cannot be read costs itself alone; the next round continues from the same place."""
        try:
            yield from batches
        except (OSError, Refused) as error:
            text = f"{path}: {error}"
            if text not in self._refused:
                self._refused.add(text)
                log.warning("%s", text)

    def _read_journal(self, folder: Path, run: Metadata) -> Iterator[Batch]:
        path = str(folder / EVENTS)
        follower = self._journals.get(path)
        if follower is None:
            stored = self._ledger.position(path)
            position = None
            with contextlib.suppress(ValueError, KeyError, TypeError):
                position = Position.of_json(stored) if stored else None
            follower = self._journals[path] = Follower(path, self._roots, position, first_read=2**62)
        follower.poll()
        while (piece := follower.read(_PIECE_BYTES)) is not None:
            end = len(piece.data) if piece.last or len(piece.data) >= _PIECE_BYTES else piece.data.rfind(b"\n") + 1
            end = piece.data.rfind(b"\n", 0, end) + 1 or end
            if not end:
                break
            lines = piece.data[:end].splitlines()
            found = [each for line in lines if (each := self._event(folder.name, run, line)) is not None]
            follower.consume(end)
            yield Batch(path, follower.position.as_json() if follower.position else {}, found, self._ledger.is_new)
        follower.close_idle()

    def _event(self, run_id: str, run: Metadata, line: bytes) -> Occurrence | None:
        try:
            document = json.loads(line)
        except (ValueError, RecursionError):
            return None
        if not isinstance(document, dict) or not isinstance(name := document.get("event_type"), str):
            return None
        when = from_iso(document["timestamp"]) if isinstance(document.get("timestamp"), str) else None
        if name == NOTED or when is None or when < self._ledger.since:
            return None
        data = document.get("data")
        values = data.items() if isinstance(data, dict) else ()
        fields = {
            str(key): _text(value)
            for key, value in itertools.islice(values, _MAX_FIELDS)
            if isinstance(value, (str, int, float)) and not isinstance(value, bool)
        }
        known = _of_the_run(run_id, run)
        identity = line.decode("utf-8", "replace")
        return Occurrence(run_id, EVENT, name, identity, {**fields, **known}, attempt=known.get("attempt", ""))

    def _log_paths(self, folder: Path, run: Metadata) -> list[str]:
        main = folder / LOG
        paths = {str(main): None}
        with contextlib.suppress(OSError):
            beside = sorted(each.name for each in main.parent.iterdir() if each.name.endswith(".txt"))
            paths |= dict.fromkeys(str(main.parent / name) for name in beside if not name.startswith("."))
        values = _of_the_run(folder.name, run)
        values |= {name: run.environment[key] for key, name in _PLACEHOLDERS.items() if run.environment.get(key)}
        for template in (*self._configuration.templates, *_stated(run)):
            paths |= dict.fromkeys(template.paths(values))
        # Of two names of one file, one is read.
        files: dict[tuple[int, int], str] = {}
        for path in itertools.islice(paths, _MAX_LOGS):
            with contextlib.suppress(OSError):
                status = os.stat(path)  # noqa: PTH116  # a text, hundreds of them
                files.setdefault((status.st_dev, status.st_ino), path)
        return list(files.values())

    def _read_log(self, folder: Path, run: Metadata, path: str, searcher: Searcher, now: float) -> Iterator[Batch]:
        tailed = self._logs.get(path)
        if tailed is None:
            tailed = self._logs[path] = TailedLog(path, self._roots, _FIRST_READ)
            if (state := self._ledger.position(path)) is not None:
                with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError):
                    tailed.restore(state, searcher.signals)
            else:
                self._old.add(path)
        tailed.poll(now)
        if not self._ledger.is_new and tailed.written is not None and tailed.written >= self._ledger.since:
            self._old.discard(path)
        passed = path in self._old
        while (taken := tailed.take(searcher, now, last=not run.is_live)) is not None:
            matches, _ = taken
            yield Batch(path, tailed.state(), [_match(folder.name, run, path, match) for match in matches], passed)
        self._old.discard(path)
        tailed.follower.close_idle()


def _searcher(configuration: Configuration) -> Searcher | None:
    """Return the compiled signals that do something; None if there are none."""
    pack = configuration.pack
    started = {name for action in configuration.actions.values() for kind, name in action.triggers if kind == SIGNAL}
    wanted = tuple(each for each in pack.signals if each.actions or each.name in started) if pack else ()
    return Searcher(replace(pack, signals=wanted)) if pack and wanted else None


def _match(run_id: str, run: Metadata, path: str, match: Match) -> Occurrence:
    known = _of_the_run(run_id, run)
    fields = {name: _text(value) for name, value in match.fields.items()}
    return Occurrence(
        run_id, SIGNAL, match.signal.name, f"{path}\0{match.offset}\0{match.text}", {**fields, **known},
        match.text.strip()[:_MAX_TEXT], match.signal, known.get("attempt", ""),
    )  # fmt: skip


def _of_the_run(run_id: str, run: Metadata) -> dict[str, str]:
    values = {"run_id": run_id}
    if run.job_id:
        values["job_id"] = run.job_id
    if run.attempt is not None:
        values["attempt"] = str(run.attempt)
    return values


def _stated(run: Metadata) -> list[Template]:
    if not run.log_path or not run.log_path.startswith("/"):
        return []
    try:
        return [Template.parse(run.log_path)]
    except InvalidTemplate:
        return []


def _text(value: object) -> str:
    return str(value)[:_MAX_FIELD]
