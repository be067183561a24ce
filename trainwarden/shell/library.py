"""`trainwarden shell-init`: where the functions for shell scripts are."""

from __future__ import annotations

import os
import sys

_USAGE = 'usage: . "$(trainwarden shell-init)"\n'


def main(arguments: list[str]) -> int:
    """Print the path of trainwarden.sh; returns the exit status."""
    if arguments in ([], ["--path"]):
        print(os.path.join(os.path.dirname(os.path.abspath(__file__)), "trainwarden.sh"))  # noqa: PTH100, PTH118, PTH120  # pathlib is slow to import
        return 0
    stream = sys.stdout if arguments in (["-h"], ["--help"]) else sys.stderr
    stream.write(_USAGE)
    return 0 if stream is sys.stdout else 2
