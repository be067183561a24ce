"""`trainwarden fail MESSAGE`: a shell script's run has failed."""

from __future__ import annotations

import os
import sys

from trainwarden.shell.arguments import Misuse, parse, whole
from trainwarden.shell.command import run
from trainwarden.shell.failure import record, tell
from trainwarden.shell.publication import publish
from trainwarden.shell.speaker import OPTIONS, speaker

USAGE = """\
usage: trainwarden fail MESSAGE [--failure SLUG | --error-type TYPE] [--exit-code N] [--run-id ID] [--runs-dir DIR]

Says that the run has failed, and why. MESSAGE `-` is read from standard input: a whole traceback will do. What kind of
failure it is follows from --failure or --error-type, else from MESSAGE, else from --exit-code. An exit code that stands
for a request to end (130, 143, ...) makes the run cancelled, as does the
traceback of a KeyboardInterrupt. The first failure of an attempt counts.
Status 1: nothing was recorded. 2 is misuse.
"""
_MAX_BYTES = 2**20


def main(arguments: list[str]) -> int:
    """Record it; returns the exit status."""

    def body() -> list[str]:
        options, others = parse(arguments, {**OPTIONS, "--failure": str, "--error-type": str, "--exit-code": whole})
        if len(others) != 1:
            raise Misuse(f"{len(others)} messages: one was expected, or - to read it from standard input")
        who = speaker(options, os.environ)
        message = sys.stdin.buffer.read(_MAX_BYTES) if others == ["-"] else os.fsencode(others[0])
        told = tell(message, options)
        written = record(who, told) if told else None
        if written is not None:
            return publish(who, written)
        from trainwarden.shell.ending import cancelled, failed, record_end  # noqa: PLC0415  # takes long to load

        return record_end(who, failed(told) if told else cancelled(options.get("exit-code")))

    return run("fail", USAGE, body, lenient=lambda: False)
