"""The service: claims what happened, starts what is allowed for it, and stores how it ended."""

from __future__ import annotations

import contextlib
import logging
import re
import threading
import time
from typing import TYPE_CHECKING

from trainwarden.actions import ledger as states
from trainwarden.actions.configuration import NOTED, SIGNAL
from trainwarden.actions.execution import Execution
from trainwarden.actions.ledger import Claim, claim_id
from trainwarden.actions.parameters import WrongValue
from trainwarden.actions.sources import Sources
from trainwarden.clients.process import one_line
from trainwarden.clients.slurm.client import is_not_submitted
from trainwarden.identity import InvalidRunId
from trainwarden.record.append import append_line
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import EVENTS, run_folder
from trainwarden.record.lines import encode_line
from trainwarden.redaction import redact

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from trainwarden.actions.configuration import Action, Configuration
    from trainwarden.actions.ledger import Ledger
    from trainwarden.actions.sources import Occurrence

log = logging.getLogger(__name__)

# Files with output; the oldest beyond are removed.
MAX_OUTPUTS = 500
_NOTING = ("ErrorNoteAction", "RestartAction", "TerminationAction")
_JOB_ID = re.compile(rb"^([0-9]{1,10})(?:;\S*)?$", re.MULTILINE)
_PAUSE = 0.1


class ActionService:
    """Follows the runs and runs commands.

    Args:
        configuration: what is allowed.
        ledger: of this service.
        max_running: limit of the commands of all actions that run at the same time.
    """

    def __init__(self, configuration: Configuration, ledger: Ledger, *, max_running: int = 4) -> None:
        self._configuration = configuration
        self._ledger = ledger
        self._max_running = max_running
        self._sources = Sources(configuration, ledger)
        self._running: dict[str, tuple[Claim, Execution]] = {}
        self._outputs = ledger.folder / "output"
        self._outputs.mkdir(mode=0o700, exist_ok=True)
        for claim in ledger.recover():
            log.warning(
                "%s of run %s (%s) is in doubt: the service ended while it was started or ran; it is not run again",
                claim.action, claim.run_id, claim.id,
            )  # fmt: skip

    def run(
        self, stop: threading.Event, interval: float, *, before: Callable[[], None], after: Callable[[], None]
    ) -> None:
        """Serve until `stop` is set; look for events each `interval` seconds, with a call before and one after."""
        due = 0.0
        while not stop.is_set():
            now = time.monotonic()
            if now >= due:
                before()
                self.look()
                after()
                due = now + interval
            self.advance()
            stop.wait(_PAUSE if self._running else max(0.0, min(interval, due - time.monotonic())))

    def reconfigure(self, configuration: Configuration) -> None:
        """Go on with another configuration, from where each file was read; what runs is left to run."""
        self._sources.close()
        self._configuration, self._sources = configuration, Sources(configuration, self._ledger)

    def run_once(self, stop: threading.Event) -> None:
        """Look once, and wait until everything that follows from it has ended."""
        self.look()
        self.advance()
        while not stop.is_set() and (self._running or next(self._ledger.claims(states=(states.WAITING,)), None)):
            stop.wait(_PAUSE)
            self.advance()

    def look(self) -> None:
        """Claim what is new in the journals and logs."""
        for batch in self._sources.read(time.time()):
            claims = [] if batch.passed else [claim for each in batch.occurrences for claim in self._claims(each)]
            for claim in self._ledger.take(claims, batch.path, batch.position):
                if claim.state == states.REFUSED:
                    log.warning("%s of run %s is refused: %s", claim.action, claim.run_id, claim.detail)
                elif claim.state == states.NOTE:
                    self._note(claim)
        self._ledger.finish_round()

    def advance(self) -> None:
        """Store what has ended, and start what waits as far as there is room."""
        for key, (claim, execution) in list(self._running.items()):
            if (end := execution.ended()) is not None:
                del self._running[key]
                self._finish(claim, execution, *end)
        if len(self._running) >= self._max_running:
            return
        for claim in self._ledger.claims(states=(states.WAITING,)):
            action = self._configuration.actions.get(claim.action)
            if action is None:
                self._refuse(claim, "the configuration no longer has this action")
                continue
            running = sum(other.action == claim.action for other, _ in self._running.values())
            if running < action.max_running and len(self._running) < self._max_running:
                self._start(claim, action)

    def close(self, grace: float) -> None:
        """Let running commands end for `grace` seconds, then end them; what waits is kept for the next start."""
        deadline = time.monotonic() + grace
        while self._running:
            if time.monotonic() >= deadline:
                for _, execution in self._running.values():
                    execution.stop()
            for key, (claim, execution) in list(self._running.items()):
                if (end := execution.ended()) is not None:
                    del self._running[key]
                    self._finish(claim, execution, *end)
            time.sleep(_PAUSE)
        self._sources.close()

    def _claims(self, occurrence: Occurrence) -> Iterator[Claim]:
        now = time.time()
        cause = {
            "kind": occurrence.kind, "name": occurrence.name, "fields": dict(occurrence.fields),
            "text": redact(occurrence.text),
        }  # fmt: skip
        for action in self._configuration.triggered(occurrence.kind, occurrence.name, occurrence.run_id):
            key = [action.name, occurrence.run_id, occurrence.kind, occurrence.name, occurrence.identity]
            try:
                argv = action.arguments(occurrence.fields)
            except WrongValue as error:
                state, detail, argv = states.REFUSED, str(error), list(action.argv)
            else:
                state, detail = states.WAITING, ""
                if action.once_per == "arguments":
                    key = [action.name, occurrence.run_id, *argv]
            yield Claim(claim_id(*key), now, action.name, occurrence.run_id, cause, argv, state, detail)
        signal = occurrence.signal
        noting = [each for each in (signal.actions if signal else ()) if each.get("class_name") in _NOTING]
        if noting and signal is not None:
            cause |= {
                "actions": [str(each["class_name"]) for each in noting],
                "note": next((str(each["note"]) for each in noting if each.get("note")), ""),
                "error_type": signal.error_type or "", "severity": signal.severity or "",
            }  # fmt: skip
            name = f"note:{occurrence.name}"
            key = [name, occurrence.run_id, SIGNAL, occurrence.name, occurrence.identity]
            yield Claim(claim_id(*key), now, name, occurrence.run_id, cause, (), states.NOTE, occurrence.attempt)

    def _note(self, claim: Claim) -> None:
        """Write what a signal's actions say into the journal of the run, where its user looks."""
        cause = claim.cause
        data = {
            "signal": cause["name"], "note": cause["note"], "error_type": cause["error_type"],
            "severity": cause["severity"], "actions": cause["actions"], "text": cause["text"],
            "fields": {name: redact(value) for name, value in cause["fields"].items()}, "mark": claim.id,
        }  # fmt: skip
        if {"RestartAction", "TerminationAction"} & set(cause["actions"]):
            data["decided_by"] = "the restart policy of the remediator"
        line = encode_line({"timestamp": to_iso(claim.time), "event_type": NOTED, "data": data})
        try:
            append_line(run_folder(claim.run_id, self._configuration.runs_dir), EVENTS, line, claim.id)
        except (OSError, InvalidRunId) as error:
            log.warning("run %s: the note of signal %s cannot be written: %s", claim.run_id, cause["name"], error)

    def _refuse(self, claim: Claim, why: str) -> None:
        log.warning("%s of run %s is refused: %s", claim.action, claim.run_id, why)
        self._ledger.change(claim, states.REFUSED, why)

    def _start(self, claim: Claim, action: Action) -> None:
        if why := _no_longer_allowed(claim, action):
            self._refuse(claim, why)
            return
        output = self._outputs / f"{claim.action}-{claim.id}.log"
        directory = action.directory
        argv = list(claim.argv)
        if claim.submits:
            argv[1:1] = ["--parsable", f"--comment=trainwarden-action:{claim.id}"]
        # From here on it may have been started, whatever happens to this process.
        self._ledger.change(claim, states.STARTING, "", str(output))
        try:
            if directory is None:
                own = self._outputs / f"{claim.action}-{claim.id}"
                own.mkdir(mode=0o700, exist_ok=True)
                directory = str(own)
            execution = Execution(argv, action.timeout, directory, output)
        except OSError as error:
            detail = f"cannot be started: {error.strerror or error}"
            log.warning("%s of run %s: %s", claim.action, claim.run_id, detail)
            self._ledger.change(claim, states.FAILED, detail)
            return
        self._running[claim.id] = claim, execution
        self._ledger.change(claim, states.RUNNING, f"pid {execution.pid}")
        log.info("%s of run %s started (%s)", claim.action, claim.run_id, claim.id)
        self._prune()

    def _finish(self, claim: Claim, execution: Execution, state: str, detail: str) -> None:
        if claim.submits:
            state, detail = _submission(state, detail, execution.first)
        level = logging.INFO if state in {states.SUCCEEDED, states.SUBMITTED} else logging.WARNING
        log.log(level, "%s of run %s: %s%s", claim.action, claim.run_id, state, f": {detail}" if detail else "")
        self._ledger.change(claim, state, detail)
        with contextlib.suppress(OSError):
            (self._outputs / f"{claim.action}-{claim.id}").rmdir()  # if it left nothing there

    def _prune(self) -> None:
        kept = sorted(self._outputs.glob("*.log"), key=_changed)
        for path in kept[:-MAX_OUTPUTS]:
            with contextlib.suppress(OSError):
                path.unlink()


def _no_longer_allowed(claim: Claim, action: Action) -> str:
    """Return why a command that waits is not started; it may have been claimed by another configuration."""
    try:
        argv = action.arguments(claim.cause["fields"])
    except WrongValue as error:
        return f"no longer allowed: {error}"
    return "" if argv == list(claim.argv) else "the configuration has changed: the command of this action is another"


def _submission(state: str, detail: str, printed: bytes) -> tuple[str, str]:
    """Return state and detail of a submission, for those of its sbatch and the beginning of what that printed."""
    job = _JOB_ID.search(printed)
    if state == states.SUCCEEDED:
        return (states.SUBMITTED, f"job {job[1].decode()}") if job else (states.IN_DOUBT, "no job id")
    message = redact(one_line(printed))
    why = f"sbatch: {detail}" + (f": {message}" if message else "")
    if state == states.FAILED and is_not_submitted(message):
        return state, why
    # slurmctld may have taken the job all the same.
    return states.IN_DOUBT, f"{why}; it is not submitted again"


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0
