"""`trainwarden complete`: a shell script's run has finished its work."""

from __future__ import annotations

import os

from trainwarden.shell.arguments import Misuse, parse, whole
from trainwarden.shell.command import run
from trainwarden.shell.completion import complete
from trainwarden.shell.publication import publish
from trainwarden.shell.speaker import OPTIONS, speaker

USAGE = """\
usage: trainwarden complete [--step N] [--run-id ID] [--runs-dir DIR]

Says that the run has finished its work. An attempt that has failed stays failed.
Status 1: nothing was recorded. 2 is misuse.
"""


def main(arguments: list[str]) -> int:
    """Record it; returns the exit status."""

    def body() -> list[str]:
        options, others = parse(arguments, {**OPTIONS, "--step": whole})
        if others:
            raise Misuse(f"{others[0]!r}: only options were expected")
        who = speaker(options, os.environ)
        written = complete(who, options.get("step"))
        if written is not None:
            return publish(who, written)
        from trainwarden.shell.ending import SUCCEEDED, record_end  # noqa: PLC0415  # takes long to load

        return record_end(who, SUCCEEDED, step=options.get("step"))

    return run("complete", USAGE, body, lenient=lambda: False)
