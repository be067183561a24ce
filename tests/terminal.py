"""A terminal in which a shell runs, driven through tmux: what is typed, what is shown, how wide it is."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import wait_until

PROMPT = "ready>"


class Terminal:
    """One window of a tmux server of its own."""

    def __init__(self, folder: Path, environment: dict[str, str], *, columns: int, rows: int) -> None:
        self._socket = folder / "tmux"
        self._environment = {**os.environ, **environment, "TERM": "xterm-256color", "LC_ALL": "C.UTF-8"}
        shell = f"env PS1='{PROMPT} ' bash --norc --noprofile"
        self.tmux("-f", os.devnull, "new-session", "-d", "-x", str(columns), "-y", str(rows), shell)
        wait_until(lambda: PROMPT in self.screen(), "the shell")

    def tmux(self, *arguments: str) -> str:
        """Run a command of tmux, and return what it prints."""
        command = ["tmux", "-S", str(self._socket), *arguments]
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def type(self, *words: str) -> None:
        """Enter a command line."""
        self.tmux("send-keys", "-l", shlex.join(words))
        self.tmux("send-keys", "Enter")

    def interrupt(self) -> None:
        """Press Ctrl-C."""
        self.tmux("send-keys", "C-c")

    def screen(self) -> str:
        """Return what is shown now."""
        return self.tmux("capture-pane", "-p")

    def resize(self, columns: int, rows: int) -> None:
        """Make the window so large."""
        self.tmux("resize-window", "-x", str(columns), "-y", str(rows))

    def status(self) -> int:
        """Return the exit status of the command that has ended."""
        self.tmux("send-keys", "-l", "echo status=$?.")
        self.tmux("send-keys", "Enter")
        screen = wait_until(lambda: text if "\nstatus=" in (text := self.screen()) else "", self.screen)
        return int(screen.rpartition("\nstatus=")[2].partition(".")[0])

    def close(self) -> None:
        """End the shell and the server."""
        self.tmux("kill-server")


@contextlib.contextmanager
def terminal(folder: Path, environment: dict[str, str], *, columns: int = 100, rows: int = 30) -> Iterator[Terminal]:
    """Give a terminal; skip where there is no tmux."""
    if shutil.which("tmux") is None:
        pytest.skip("no tmux is here")
    started = Terminal(folder, environment, columns=columns, rows=rows)
    try:
        yield started
    finally:
        started.close()
