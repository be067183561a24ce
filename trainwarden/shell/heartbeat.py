"""`trainwarden heartbeat`: a shell script's run lives, and made this step."""

from __future__ import annotations

import os

from trainwarden.shell.arguments import Flag, Misuse, metric, number, parse, whole
from trainwarden.shell.command import run
from trainwarden.shell.publication import publish
from trainwarden.shell.record import say
from trainwarden.shell.speaker import OPTIONS, speaker

USAGE = """\
usage: trainwarden heartbeat [--run-id ID] [--step N] [--total-steps N] [--loss X] [--learning-rate X] [--grad-norm X]
                             [--epoch X] [--tokens-per-second X] [--samples-per-second X] [--metric NAME=X]...
                             [--runs-dir DIR] [--strict]

Says that the run lives and, with --step, that its loop has made that step. Where nothing can be recorded it says so and
ends with status 0, because a training must not end for want of a heartbeat; with --strict it ends with 1. 2 is misuse.
"""
_VALUES = {
    "--step": whole,
    "--total-steps": whole,
    "--loss": number,
    "--learning-rate": number,
    "--grad-norm": number,
    "--epoch": number,
    "--tokens-per-second": number,
    "--samples-per-second": number,
    "--metric": metric,
}


def main(arguments: list[str]) -> int:
    """Record it; returns the exit status."""

    def body() -> list[str]:
        options, others = parse(arguments, {**OPTIONS, **_VALUES, "--strict": Flag})
        if others:
            raise Misuse(f"{others[0]!r}: only options were expected")
        report = {name: value for name, value in options.items() if f"--{name}" in _VALUES}
        who = speaker(options, os.environ)
        return publish(who, say(who, report=report), strict="strict" in options)

    return run("heartbeat", USAGE, body, lenient=lambda: "--strict" not in arguments)
