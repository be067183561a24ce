"""`trainwarden phase NAME`: what a shell script's run does now."""

from __future__ import annotations

import os

from trainwarden.record.place import PHASES
from trainwarden.shell.arguments import Flag, Misuse, parse
from trainwarden.shell.command import run
from trainwarden.shell.publication import publish
from trainwarden.shell.record import say
from trainwarden.shell.speaker import OPTIONS, speaker

USAGE = f"""\
usage: trainwarden phase NAME [--run-id ID] [--runs-dir DIR] [--strict]

Says what the run does now: {", ".join(PHASES)}. Each has its own stall budget.
Where nothing can be recorded it says so and ends with status 0; with --strict it ends with 1. 2 is misuse.
"""


def main(arguments: list[str]) -> int:
    """Record it; returns the exit status."""

    def body() -> list[str]:
        options, others = parse(arguments, {**OPTIONS, "--strict": Flag})
        name = others[0].strip().lower() if others else ""
        name = "train" if name == "training" else name
        if len(others) != 1 or name not in PHASES:
            raise Misuse(f"{' '.join(others)!r}: one phase was expected, of {', '.join(PHASES)}")
        who = speaker(options, os.environ)
        return publish(who, say(who, phase=name), strict="strict" in options)

    return run("phase", USAGE, body, lenient=lambda: "--strict" not in arguments)
