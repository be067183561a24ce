"""The remediator, which kills itself at the point of this number: before and after each commit and each call.

usage: python -m tests.integration.remediator.dying_remediator NUMBER POINTS [FLAG ...]

Appends the name of each point that it passes to the file POINTS. A negative NUMBER: at none.
"""

from __future__ import annotations

import functools
import os
import signal
import sys
import threading
from pathlib import Path

from trainwarden_remediator import app
from trainwarden_remediator.act.act import Actor
from trainwarden_remediator.cli import main
from trainwarden_remediator.store.store import Store


def _crashpoint(number: int, points: Path, lock: threading.Lock, passed: list[str], name: str) -> None:
    with lock:
        if len(passed) == number:
            os.kill(os.getpid(), signal.SIGKILL)
        passed.append(name)
        with points.open("a", encoding="utf-8") as file:
            file.write(f"{name}\n")


if __name__ == "__main__":
    point = functools.partial(_crashpoint, int(sys.argv[1]), Path(sys.argv[2]), threading.Lock(), [])
    # A service has no such points.
    vars(app).update({each.__name__: functools.partial(each, crashpoint=point) for each in (Store, Actor)})
    sys.exit(main(sys.argv[3:]))
