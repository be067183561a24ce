"""The process that ends what a run of the tests has started and removes its folders, however the run ends.

usage: python -I keeper.py FOLDER MARK

It waits until its parent, which runs the tests, is gone or writes `end`. The line `interrupted` gives the run some
seconds to end by itself. A process belongs to the run if a variable of its environment begins with MARK, its working
folder lies below FOLDER, or its parent belongs to the run: some daemons overwrite their environment, others are given
one of their own.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

POLL_SECONDS = 0.5
INTERRUPTED_SECONDS = 15.0
# Longer than a process that is killed, and the one that waits for it, need to go.
LAST_SECONDS = 20.0


def processes_of_the_run(folder: str, mark: str) -> set[int]:
    """The ids of all processes that belong to the run, but for this one and those that have ended."""
    parents: dict[int, int] = {}
    found: set[int] = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError, ValueError):  # it ended meanwhile, or is another user's
            pid = int(process.name)
            state, parent = (process / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state in "ZX" or pid == os.getpid():
                continue
            parents[pid] = int(parent)
            in_folder = str((process / "cwd").readlink()).startswith(folder)
            if in_folder or f"\0{mark}" in f"\0{(process / 'environ').read_text(errors='replace')}":
                found.add(pid)
    grown = True
    while grown:
        children = {pid for pid, parent in parents.items() if parent in found} - found
        found |= children
        grown = bool(children)
    return found


def end(folder: str, mark: str) -> None:
    """Kill the processes of the run until none is left, and remove its folders."""
    deadline = time.monotonic() + LAST_SECONDS
    while (left := processes_of_the_run(folder, mark)) and time.monotonic() < deadline:
        # All are stopped before the first is killed: none shall start another in the place of one that died.
        for sent in (signal.SIGSTOP, signal.SIGKILL):
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, sent)
        time.sleep(0.05)
    for line in Path("/proc/self/mounts").read_text(encoding="utf-8", errors="replace").splitlines():
        place = line.split()[1]
        if place.startswith(f"{folder}/"):
            subprocess.run(["umount", "--lazy", place], check=False, stderr=subprocess.DEVNULL)
    for parent, folders, _ in os.walk(folder):
        for inner in (Path(parent, name) for name in folders):
            with suppress(OSError):
                if not inner.is_symlink():
                    inner.chmod(0o700)  # some tests make folders that nobody may enter
    shutil.rmtree(folder, ignore_errors=True)
    for memory in Path("/dev/shm").glob(f"{Path(folder).name}*"):
        shutil.rmtree(memory, ignore_errors=True)


def main() -> None:
    """Wait for the end of the run."""
    folder, mark = sys.argv[1:]
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    parent, deadline = os.getppid(), float("inf")
    # Input may stay open after its writer is gone: a process that it has forked holds it too.
    while os.getppid() == parent and time.monotonic() < deadline:
        if select.select([0], [], [], POLL_SECONDS)[0]:
            said = os.read(0, 64)
            if b"interrupted" not in said:
                break
            deadline = time.monotonic() + INTERRUPTED_SECONDS
    end(folder, mark)


if __name__ == "__main__":
    main()
