"""One wrapped command, from before its start until the record says how it ended."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from trainwarden.record.crash import read_crash, trace_path
from trainwarden.record.folder import LOG, WRAPPER
from trainwarden.record.ownership import claim
from trainwarden.s3.mirror import S3Mirror
from trainwarden.training.outcome import AttemptOutcome, infer_outcome, reconcile
from trainwarden.training.termination import ReceivedSignal, signal_reason
from trainwarden.wrapper.child import Child, Signals
from trainwarden.wrapper.log_file import LOG_BYTES, LogFile, put_aside
from trainwarden.wrapper.output import Output
from trainwarden.wrapper.rank_file import RankFile
from trainwarden.wrapper.request import Misuse, Request
from trainwarden.wrapper.s3_copy import opening
from trainwarden.wrapper.tail import Tail
from trainwarden.wrapper.verdict import how, verdict
from trainwarden.wrapper.witness import Witness, record_ending

LIVENESS_SECONDS = 5.0
_TICK_SECONDS = 0.05
# How long an end waits for S3.
_LAST_WORD_SECONDS = 10.0
_TELLS_TO_END = frozenset((signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT))


class Wrapped:
    """What the wrapper knows and holds while its command runs.

    Raises:
        RunRefused: another live run owns the folder, or it cannot be written.
        Misuse: a log cannot be written.
    """

    def __init__(self, request: Request, signals: Signals) -> None:
        self._request = request
        self._signals = signals
        self._start = time.time()
        self._received: ReceivedSignal | None = None
        self._tail = Tail()
        self._witness: Witness | None = None
        self._mirror: S3Mirror | None = None
        self._rank_file = RankFile(request.folder, request.key, request.rank)
        environment, number = dict(request.environment), 0
        users_log = _users_log(request.log)
        try:
            request.folder.mkdir(parents=True, exist_ok=True)
            in_s3 = opening(request.environment, request.folder, request.key, self._start, rank=request.rank)
            if request.rank == 0:
                # RemoteRecord until this process ends.
                claim(request.folder, request.key, name=WRAPPER)
                if in_s3:
                    in_s3.fill()
            self._mirror = in_s3.begin() if in_s3 else None
            if request.rank == 0:
                self._witness = Witness(request.folder, request.key, request.thresholds, copy=self._mirror)
                number = self._witness.announce()
                environment["TRAINWARDEN_ATTEMPT"] = str(number)
            self._logs = self._open_logs(number, users_log)
        except OSError as error:
            what = error.filename or request.folder
            raise Misuse(f"{what}: cannot be written: {error.strerror or error}") from None
        self._request = replace(request, environment=environment)

    def run(self) -> int:
        """Run the command and return what a shell would call its status."""
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
        self._pass_the_rest_on(output)
        over.set()
        beats.join(LIVENESS_SECONDS)
        self._record(status)
        self._finish_copy()
        self._say_what_was_lost()
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
        for log in self._logs:
            log.write(data)

    def _beat(self, child: Child, over: threading.Event) -> None:
        while True:
            # A command that is stopped gives no sign of life.
            if not child.stopped:
                self._rank_file.write()
                if self._witness:
                    self._witness.alive()
            if over.wait(LIVENESS_SECONDS):
                return

    def _on_signal(self, number: int) -> None:
        if number in _TELLS_TO_END or number == signal.SIGUSR1:
            now = time.time()
            warns = number == signal.SIGUSR1
            self._received = ReceivedSignal(number, now, signal_reason(number, now), is_warning=warns)

    def _pass_the_rest_on(self, output: Output) -> None:
        output.end(self._request.grace_seconds)
        while not output.join(_TICK_SECONDS):
            # Nobody reads what is left, and somebody wants us gone.
            if self._signals.next(0) in _TELLS_TO_END:
                return

    def _not_run(self, error: OSError) -> int:
        found = error.errno != errno.ENOENT and _is_found(self._request.command[0], self._request.environment)
        status = 126 if found else 127
        why = f"cannot run {self._request.command[0]!r}: {error.strerror if found else os.strerror(errno.ENOENT)}"
        say(why)
        self._keep(f"trainwarden exec: {why}\n".encode("utf-8", "replace"))
        self._close(replace(verdict(status, self._tail), reason=why))
        self._finish_copy()
        return status

    def _record(self, status: int) -> None:
        request, now = self._request, time.time()
        crash = read_crash(trace_path(request.folder, request.rank))
        if crash is not None and crash.attempt_key != str(request.key):
            crash = None
        ending = infer_outcome(verdict(status, self._tail, crash), self._received, None, None, now)
        if ending.status == "failed" and self._is_the_trainings_own():
            ending = replace(ending, reason=f"{how(status)} and left no word; {ending.reason}")
        self._close(reconcile(ending, request.folder, str(request.key), request.rank, self._start))

    def _is_the_trainings_own(self) -> bool:
        return self._witness is not None and not self._witness.alone

    def _close(self, ending: AttemptOutcome) -> None:
        request = self._request
        if self._witness:
            self._witness.end(ending, rank=request.rank)
        elif ending.status == "failed" and ending.failure and not self._rank_file.has_spoken():
            try:
                record_ending(
                    request.folder, request.key, ending, request.rank, self._mirror.put if self._mirror else None
                )
            except OSError as error:
                say(f"{request.folder}: cannot be written: {error.strerror}")
        self._rank_file.write(ending.status)

    def _finish_copy(self) -> None:
        if self._mirror is None:
            return
        if self._witness:
            self._mirror.put_file(LOG, self._request.folder / LOG)
        if not self._mirror.close(_LAST_WORD_SECONDS):
            state = self._mirror.state()
            error = state["last_error"] or "none, no answer"
            say(f"the end of the run could not be copied to {state['url']} in time (last error: {error})")

    def _say_what_was_lost(self) -> None:
        for log in self._logs:
            if log.write_errors:
                say(f"{log.path}: {log.write_errors} pieces of output are missing: {log.last_error}")


def _users_log(path: Path | None) -> LogFile | None:
    # What our own output leads to already is not to be written twice.
    if path is None or any(_is_file(descriptor, str(path)) for descriptor in (1, 2)):
        return None
    try:
        return LogFile(path)
    except OSError as error:
        raise Misuse(f"--log {path}: a file that can be written was expected: {error.strerror or error}") from None


def say(line: str) -> None:
    """Write a line to where errors go; Python's own stream is not there if that was closed when we were started."""
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
