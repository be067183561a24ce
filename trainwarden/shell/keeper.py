"""`trainwarden keep`: begins an attempt for a shell script, and keeps it alive for as long as the script runs.

A process of its own, which nobody waits for and which holds none of the script's files open. The kernel tells it of the
script's end, so that it ends with it even after `kill -9`.
"""

from __future__ import annotations

import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from trainwarden.identity import process_start_ticks
from trainwarden.record.folder import WRAPPER
from trainwarden.record.ownership import RunRefused, claim
from trainwarden.record.thresholds import InvalidThreshold, choose
from trainwarden.shell.arguments import Help, Misuse, parse, whole
from trainwarden.shell.speaker import OPTIONS, Speaker, speaker
from trainwarden.wrapper.rank_file import RankFile
from trainwarden.wrapper.s3_copy import opening
from trainwarden.wrapper.witness import Witness

USAGE = """\
usage: trainwarden keep --pid PID [--run-id ID] [--runs-dir DIR]

Begins an attempt of the run and says every five seconds that it lives, until process PID has ended. Prints the key of
the attempt and the folder of records, one a line, and returns as soon as the attempt has begun. For trainwarden.sh.
Status 1: the folder cannot be written. 2: another live run owns it, or misuse.
"""
LIVENESS_SECONDS = 5.0
_LOOK_SECONDS = 1.0
# A script that was killed takes its keeper along; the next one may be quicker.
_HANDOVER_SECONDS = 2.0
# They are meant for the script; this ends when that has.
_DEAF_TO = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


def main(arguments: list[str]) -> int:
    """Begin; returns the exit status of the process that was called, which is not the one that stays."""
    try:
        options, others = parse(arguments, {**OPTIONS, "--pid": whole})
        if others or "pid" not in options:
            raise Misuse("--pid: the process id of the script was expected, and nothing but options")
        started = process_start_ticks(options["pid"])
        if started is None:
            raise Misuse(f"--pid {options['pid']}: there is no such process")
        who = speaker(options, os.environ, options["pid"])
    except Help:
        sys.stdout.write(USAGE)
        return 0
    except Misuse as error:
        print(f"trainwarden keep: {error}", file=sys.stderr)
        return 2
    return _in_background(lambda tell: _keep(who, options["pid"], started, tell))


def _in_background(body: Callable[[Callable[[int, str], None]], None]) -> int:
    """Run `body` in a child that outlives this process, until it tells its first word: a status and a text."""
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
    print(f"trainwarden keep: {text or 'it ended without a word'}", file=sys.stderr)
    return int(status or 1)


def _answer(writer: int, status: int, text: str) -> None:
    os.write(writer, f"{status}\n{text}".encode("utf-8", "replace")[:4096])
    os.close(writer)


def _keep(who: Speaker, pid: int, started: int, tell: Callable[[int, str], None]) -> None:
    for number in _DEAF_TO:
        signal.signal(number, signal.SIG_IGN)
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    folder = Path(who.folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        witness = _begun(who, folder, pid) if who.rank == 0 else None
    except (RunRefused, InvalidThreshold) as error:
        tell(2, str(error))
        return
    except OSError as error:
        tell(1, f"{error.filename or folder}: {error.strerror or error}")
        return
    rank_file = RankFile(folder, who.key, who.rank, pid)
    _say(witness, rank_file)
    tell(0, f"{who.key}\n{folder.parent}")
    lives = _liveness(pid, started)
    while lives(LIVENESS_SECONDS):
        _say(witness, rank_file)


def _liveness(pid: int, started: int) -> Callable[[float], bool]:
    """A function that waits for so many seconds, or until the process has ended, and says whether it lives."""

    def look(seconds: float) -> bool:
        deadline = time.monotonic() + seconds
        while process_start_ticks(pid) == started and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)
        return process_start_ticks(pid) == started

    try:
        poll = select.poll()
        poll.register(os.pidfd_open(pid), select.POLLIN)
    except (AttributeError, OSError):
        return look
    # The pid may have come to mean another process before it was opened.
    return lambda seconds: process_start_ticks(pid) == started and not poll.poll(seconds * 1000)


def _begun(who: Speaker, folder: Path, pid: int) -> Witness:
    thresholds = choose(None, who.environ)
    deadline = time.monotonic() + _HANDOVER_SECONDS
    while True:
        try:
            # Held until this process ends.
            claim(folder, who.key, name=WRAPPER)
            break
        except RunRefused:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
    in_s3 = opening(who.environ, folder, who.key, time.time(), rank=who.rank)
    if in_s3:
        in_s3.fill()
    witness = Witness(folder, who.key, thresholds, pid=pid, copy=in_s3.begin() if in_s3 else None)
    witness.announce()
    return witness


def _say(witness: Witness | None, rank_file: RankFile) -> None:
    rank_file.write()
    if witness:
        witness.alive()
