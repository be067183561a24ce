"""One service of the local stack: a child process with its own log, which ends with this process."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from trainwarden.clients.http import HttpClient, HttpError

_POLL_SECONDS = 0.05


class ServiceFailed(Exception):
    """A service did not start; the message names it and holds the end of its log."""


@dataclass(frozen=True)
class Service:
    """A running child process."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    command: Sequence[str] = ()

    def wait_for(self, url: str, seconds: float = 60) -> None:
        """Wait until `url` answers 200; raise ServiceFailed if the process ends or the time is over."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.process.poll() is not None:
                message = f"{self.name} ended with status {self.process.returncode}: {self.log_end()}"
                raise ServiceFailed(message)
            if _answers(url):
                return
            time.sleep(_POLL_SECONDS)
        message = f"{self.name} gave no answer at {url} within {seconds:.0f} s: {self.log_end()}"
        raise ServiceFailed(message)

    def wait_for_file(self, path: Path, seconds: float = 60) -> str:
        """Wait for a file that the service writes once it listens, and return its text. Raises ServiceFailed."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if path.is_file() and (text := path.read_text(encoding="utf-8").strip()):
                return text
            if self.process.poll() is not None:
                message = f"{self.name} ended with status {self.process.returncode}: {self.log_end()}"
                raise ServiceFailed(message)
            time.sleep(_POLL_SECONDS)
        message = f"{self.name} did not listen within {seconds:.0f} s: {self.log_end()}"
        raise ServiceFailed(message)

    def log_end(self) -> str:
        """Return the last lines of the log, as one line."""
        text = self.log.read_text(encoding="utf-8", errors="replace") if self.log.exists() else ""
        return " | ".join(text.strip().splitlines()[-3:])

    def stop(self, seconds: float = 10) -> None:
        """Terminate it; kill it after `seconds`."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
        self.process.wait()


def start(name: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str], folder: Path) -> Service:
    """Start a service in `folder`, with its output in `log`; raise ServiceFailed if the program cannot be run."""
    try:
        with log.open("ab") as output:
            process = subprocess.Popen(
                tethered(command, "KILL"),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=folder,
                start_new_session=True,
            )
    except OSError as error:
        message = f"{name} cannot be started: {error}"
        raise ServiceFailed(message) from None
    return Service(name, process, log, command)


def tethered(command: Sequence[str], signal_name: str = "TERM") -> list[str]:
    """Return `command`, signalled by the kernel if this process dies without stopping it (where setpriv exists)."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", signal_name, "--", *command] if setpriv else list(command)


def _answers(url: str) -> bool:
    try:
        return HttpClient(url, timeout=2).get("").status == 200
    except HttpError:
        return False
