"""`trainwarden exec -- COMMAND`: runs a command that cannot be changed, and records its run."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from trainwarden.exec.child import Child, Signals
from trainwarden.exec.log_file import LOG_BYTES, LogFile, put_aside
from trainwarden.exec.outcome import command_outcome, status_text
from trainwarden.exec.output import Output
from trainwarden.exec.printed_progress import PrintedProgress
from trainwarden.exec.rank_writer import ExternalRankWriter
from trainwarden.exec.record_writer import ExternalRecordWriter, record_ending, s3_startup
from trainwarden.exec.request import ExecRequest, InvalidExecRequest, parser, to_request
from trainwarden.exec.stacks import CommandStacks
from trainwarden.exec.tail import Tail
from trainwarden.identity import world_size
from trainwarden.record.crash import read_crash, trace_path
from trainwarden.record.folder import LIVENESS_SECONDS, LOG, WRAPPER
from trainwarden.record.ownership import RunRefused, claim
from trainwarden.record.store import RecordStore
from trainwarden.training.outcome import AttemptOutcome, infer_outcome, reconcile
from trainwarden.training.termination import ReceivedSignal, signal_reason

MISUSE = 2
_TICK_SECONDS = 0.05
# How often the output is searched for steps.
_READ_SECONDS = 1.0
# How long an end waits for S3.
_COPY_SECONDS = 10.0
_ENDING_SIGNALS = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))


class WrappedCommand:
    """A command, from before its start until the record has its end.

    Raises:
        RunRefused: another live run owns the folder, or it cannot be written.
        InvalidExecRequest: a log cannot be written.
    """

    def __init__(self, request: ExecRequest, signals: Signals) -> None:
        self._request = request
        self._signals = signals
        self._start = time.time()
        self._received: ReceivedSignal | None = None
        self._tail = Tail()
        self._printed = PrintedProgress() if request.rank == 0 else None
        self._writer: ExternalRecordWriter | None = None
        self._store = RecordStore(request.folder)
        self._rank = ExternalRankWriter(self._store, request.key, request.rank)
        self._stacks = CommandStacks(
            request.folder, str(request.key), request.rank, request.environment, lambda: self._rank.is_anothers
        )
        environment, number = dict(request.environment), 0
        users_log = _users_log(request.log)
        try:
            request.folder.mkdir(parents=True, exist_ok=True)
            in_s3 = s3_startup(request.environment, request.folder, request.key, self._start, rank=request.rank)
            if request.rank == 0:
                # Held until this process ends.
                claim(request.folder, request.key, name=WRAPPER)
                if in_s3:
                    in_s3.restore()
            if in_s3:
                self._store = RecordStore(request.folder, in_s3.begin())
            if request.rank == 0:
                self._writer = ExternalRecordWriter(
                    self._store, request.key, request.thresholds, printed=self._printed, given=request.given
                )
                number = self._writer.announce()
                if self._writer.restarted:
                    print_error(str(self._writer.restarted))
                environment["TRAINWARDEN_ATTEMPT"] = str(number)
            self._logs = self._open_logs(number, users_log)
        except OSError as error:
            what = error.filename or request.folder
            raise InvalidExecRequest(f"{what}: cannot be written: {error.strerror or error}") from None
        self._request = replace(request, environment=environment)

    def run(self) -> int:
        """Run the command; returns its exit status as a shell shows it."""
        output = Output(self._keep)
        ends = output.pipes((1, 2))
        try:
            child = Child(self._request.command, self._request.environment, ends, self._signals)
        except OSError as error:
            return self._not_run(error)
        finally:
            for end in set(ends):
                os.close(end)
        output.start()
        over = threading.Event()
        beats = threading.Thread(target=self._beat, args=(child, over), name="trainwarden-beats", daemon=True)
        beats.start()
        status = child.wait(self._on_signal)
        self._drain(output)
        over.set()
        beats.join(LIVENESS_SECONDS)
        self._record(status)
        self._finish_copy()
        self._report_lost_output()
        return 128 - status if status < 0 else status

    def _open_logs(self, attempt: int, users_log: LogFile | None) -> list[LogFile]:
        rank, folder = self._request.rank, self._request.folder
        path = folder / (LOG if rank == 0 else f"logs/rank_{rank}.txt")
        logs = []
        if not any(_is_file(descriptor, str(path)) for descriptor in (1, 2)):
            if rank == 0:
                put_aside(path, attempt)
            logs.append(LogFile(path, LOG_BYTES))
        if users_log and not any(log.is_same_as(users_log) for log in logs):
            logs.append(users_log)
        return logs

    def _keep(self, data: bytes) -> None:
        self._tail.add(data)
        self._stacks.add(data)
        if self._printed:
            self._printed.add(data)
        for log in self._logs:
            log.write(data)

    def _beat(self, child: Child, over: threading.Event) -> None:
        written = -LIVENESS_SECONDS
        while True:
            self._stacks.check(child.pid)
            # A stopped command makes no progress: no sign of life.
            if not child.stopped:
                changed = self._writer is not None and self._writer.read_output()
                if changed or time.monotonic() - written >= LIVENESS_SECONDS:
                    written = time.monotonic()
                    self._rank.write()
                    if self._writer:
                        self._writer.alive()
            if over.wait(_READ_SECONDS):
                return

    def _on_signal(self, number: int) -> None:
        if number in _ENDING_SIGNALS or number == signal.SIGUSR1:
            now = time.time()
            warns = number == signal.SIGUSR1
            self._received = ReceivedSignal(number, now, signal_reason(number, now), is_warning=warns)

    def _drain(self, output: Output) -> None:
        output.end(self._request.grace_seconds)
        while not output.join(_TICK_SECONDS):
            # The reader of our output is slow, and this process is to end.
            if self._signals.next(0) in _ENDING_SIGNALS:
                return

    def _not_run(self, error: OSError) -> int:
        found = error.errno != errno.ENOENT and _is_found(self._request.command[0], self._request.environment)
        status = 126 if found else 127
        why = f"cannot run {self._request.command[0]!r}: {error.strerror if found else os.strerror(errno.ENOENT)}"
        print_error(why)
        self._keep(f"trainwarden exec: {why}\n".encode("utf-8", "replace"))
        self._close(replace(command_outcome(status, self._tail), reason=why))
        self._finish_copy()
        return status

    def _record(self, status: int) -> None:
        request, now = self._request, time.time()
        crash = read_crash(trace_path(request.folder, request.rank))
        if crash is not None and crash.attempt_key != str(request.key):
            crash = None
        ending = infer_outcome(command_outcome(status, self._tail, crash), self._received, None, None, now)
        if ending.status == "failed" and self._writer is not None and not self._writer.alone:
            # A training with the library writes into the record, and has not written its end.
            what = "after its training had completed" if self._writer.completed else "and did not record its end"
            why = (ending.reason or "").removeprefix(status_text(status)).removeprefix("; ")
            ending = replace(ending, reason=f"{status_text(status)} {what}" + (f"; {why}" if why else ""))
        ending = reconcile(
            ending,
            request.folder,
            str(request.key),
            request.rank,
            self._start,
            world_size=world_size(request.environment),
        )
        self._close(ending)

    def _close(self, ending: AttemptOutcome) -> None:
        request = self._request
        if self._writer:
            self._writer.end(ending, rank=request.rank)
        elif ending.status == "failed" and ending.failure and not self._rank.has_failed():
            try:
                record_ending(self._store, request.key, ending, request.rank)
            except OSError as error:
                print_error(f"{request.folder}: cannot be written: {error.strerror}")
        self._rank.write(ending.status, over=ending.status == "failed")

    def _finish_copy(self) -> None:
        if not self._store.has_copy:
            return
        if self._writer:
            self._store.put_file(LOG)
        if not self._store.close(_COPY_SECONDS):
            state = self._store.copy_state() or {}
            error = state.get("last_error") or "none, no answer"
            print_error(f"the end of the run could not be copied to {state.get('url')} in time (last error: {error})")

    def _report_lost_output(self) -> None:
        for log in self._logs:
            if log.write_errors:
                print_error(f"{log.path}: {log.write_errors} pieces of output are missing: {log.last_error}")


def _users_log(path: Path | None) -> LogFile | None:
    # A file that our own output goes to already is not written twice.
    if path is None or any(_is_file(descriptor, str(path)) for descriptor in (1, 2)):
        return None
    try:
        return LogFile(path)
    except OSError as error:
        reason = error.strerror or error
        raise InvalidExecRequest(f"--log {path}: a file that can be written was expected: {reason}") from None


def print_error(line: str) -> None:
    """Write a line to descriptor 2; `sys.stderr` is None where that was closed when this process started."""
    with contextlib.suppress(OSError):
        os.write(2, f"trainwarden exec: {line}\n".encode("utf-8", "replace"))


def _is_found(program: str, environment: Mapping[str, str]) -> bool:
    """Return whether the file exists, executable or not; in a folder of PATH that cannot be read it does not."""
    if "/" in program:
        return True
    folders = os.get_exec_path(environment)
    return any(os.path.exists(f"{folder}/{program}") for folder in folders)  # noqa: PTH110  # Path.exists() raises there


def _is_file(descriptor: int, path: str) -> bool:
    try:
        return os.path.samestat(os.fstat(descriptor), os.stat(path))  # noqa: PTH116  # what may be no file at all
    except OSError:
        return False


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its own status: 128 and more for a signal, 126 and 127 as a shell, 2 for misuse."""
    options = parser().parse_args(arguments)
    _open_standard_files()
    signals = Signals()
    try:
        return WrappedCommand(to_request(options), signals).run()
    except (InvalidExecRequest, RunRefused) as error:
        print_error(str(error))
        return MISUSE
    finally:
        signals.restore()


def _open_standard_files() -> None:
    """Open descriptors 0 to 2 where this process was started without: the next pipe must not take their numbers."""
    while (descriptor := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(descriptor, True)
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
