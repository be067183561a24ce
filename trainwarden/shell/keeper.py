"""`trainwarden keep`: begins an attempt for a shell script, and keeps it alive for as long as the script runs.

A process of its own, which holds none of the script's files open and which the script does not wait for. It watches a
descriptor of the script's process, so that it ends with the script even after `kill -9`.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trainwarden.exec.rank_writer import ExternalRankWriter
from trainwarden.exec.record_writer import ExternalRecordWriter, s3_startup
from trainwarden.identity import process_start_ticks
from trainwarden.record.folder import LIVENESS_SECONDS, WRAPPER
from trainwarden.record.ownership import RunRefused, claim
from trainwarden.record.store import RecordStore
from trainwarden.record.thresholds import InvalidThreshold, choose
from trainwarden.shell.arguments import Help, Misuse, parse, whole
from trainwarden.shell.command import OPTIONS, CommandContext, command_context

USAGE = """\
usage: trainwarden keep --pid PID [--run-id ID] [--runs-dir DIR]

Begins an attempt of the run and records every five seconds that it lives, until process PID has ended. Prints the key
of the attempt and the folder of records, one a line, and returns as soon as the attempt has begun. For trainwarden.sh.
Status 1: the folder cannot be written. 2: another live run owns it, or misuse.
"""
_POLL_SECONDS = 1.0
# The keeper of a script that was killed ends with it; the next script may start before that.
_HANDOVER_SECONDS = 2.0
# Meant for the script, and sent to its whole process group; the keeper ends when the script has.
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main(arguments: list[str]) -> int:
    """Begin; returns the exit status of the process that was called, which is not the one that stays."""
    try:
        options, others = parse(arguments, {**OPTIONS, "--pid": whole})
        if others or "pid" not in options:
            raise Misuse("--pid: the process id of the script was expected, and nothing but options")
        started = process_start_ticks(options["pid"])
        if started is None:
            raise Misuse(f"--pid {options['pid']}: there is no such process")
        context = command_context(options, os.environ, options["pid"])
    except Help:
        sys.stdout.write(USAGE)
        return 0
    except Misuse as error:
        print(f"trainwarden keep: {error}", file=sys.stderr)
        return 2
    return _in_background(lambda answer: _keep(context, options["pid"], started, answer))


def _in_background(body: Callable[[Callable[[int, str], None]], None]) -> int:
    """Run `body` in a child that outlives this process; print its answer, a text, and return its status."""
    reader, writer = os.pipe()
    sys.stdout.flush()
    if os.fork() == 0:
        os.close(reader)
        try:
            body(lambda status, text: _answer(writer, status, text))
        finally:
            os._exit(0)
    os.close(writer)
    with open(reader, "rb") as answer:  # noqa: PTH123  # a descriptor has no path
        status, _, text = answer.read().decode("utf-8", "replace").partition("\n")
    if status == "0":
        print(text)
        return 0
    print(f"trainwarden keep: {text or 'it ended unexpectedly'}", file=sys.stderr)
    return int(status or 1)


def _answer(writer: int, status: int, text: str) -> None:
    os.write(writer, f"{status}\n{text}".encode("utf-8", "replace")[:4096])
    os.close(writer)


def _keep(context: CommandContext, pid: int, started: int, answer: Callable[[int, str], None]) -> None:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    folder = Path(context.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        writer = _begin(context, folder, pid) if context.rank == 0 else None
    except (RunRefused, InvalidThreshold) as error:
        answer(2, str(error))
        return
    except OSError as error:
        answer(1, f"{error.filename or folder}: {error.strerror or error}")
        return
    rank = ExternalRankWriter(context.store, context.key, context.rank, pid)
    _write_life(writer, rank)
    answer(0, f"{context.key}\n{folder.parent}")
    wait_alive = _liveness(pid, started)
    while wait_alive(LIVENESS_SECONDS):
        _write_life(writer, rank)


def _liveness(pid: int, started: int) -> Callable[[float], bool]:
    """Return a function that waits for so many seconds, or until the process has ended; True if it lives."""

    def wait_polling(seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while process_start_ticks(pid) == started and time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
        return process_start_ticks(pid) == started

    try:
        poll = select.poll()
        poll.register(os.pidfd_open(pid), select.POLLIN)
    except (AttributeError, OSError):
        return wait_polling
    # The pid may have come to mean another process before it was opened.
    return lambda seconds: process_start_ticks(pid) == started and not poll.poll(seconds * 1000)


def _begin(context: CommandContext, folder: Path, pid: int) -> ExternalRecordWriter:
    thresholds = choose(None, context.environ)
    deadline = time.monotonic() + _HANDOVER_SECONDS
    while True:
        try:
            # Held until this process ends.
            claim(folder, context.key, name=WRAPPER)
            break
        except RunRefused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    in_s3 = s3_startup(context.environ, folder, context.key, time.time(), rank=context.rank)
    if in_s3:
        in_s3.restore()
    store = RecordStore(folder, in_s3.begin() if in_s3 else None)
    writer = ExternalRecordWriter(store, context.key, thresholds, pid=pid)
    writer.announce()
    return writer


def _write_life(writer: ExternalRecordWriter | None, rank: ExternalRankWriter) -> None:
    rank.write()
    if writer:
        writer.alive()
