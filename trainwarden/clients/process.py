"""Run a command with a deadline and a limit on its output; leave no process behind.

Every short-lived command of the product runs through here. Long-lived children (the command of `trainwarden exec`, the
services and jobs of `trainwarden up`, a collector's own process) have code of their own: they are supervised, not
awaited.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import time
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

MAX_OUTPUT = 4 << 20
_MAX_ERRORS = 64 << 10
_CHUNK = 1 << 18
_REAP_SECONDS = 1.0


class ProcessError(Exception):
    """A command gave no complete answer. The message does not name the command."""


class CannotStart(ProcessError):
    """The program cannot be executed; the message is the system's reason."""


class ProcessTimeout(ProcessError):
    """The command, or what it started and left its output to, had not ended at the deadline."""


class TooMuchOutput(ProcessError):
    """The command wrote more than its limit."""


@dataclass(frozen=True)
class User:
    """A user that a command runs as."""

    uid: int
    gid: int
    groups: tuple[int, ...]


@dataclass(frozen=True)
class Completed:
    """How a command ended.

    Attributes:
        status: exit status; minus the signal if one ended it.
        output: all of standard output.
        errors: standard error, its first 64 KiB.
    """

    status: int
    output: bytes
    errors: bytes

    @property
    def message(self) -> str:
        """Standard error as one line."""
        return one_line(self.errors)


def keep_child_status() -> None:
    """Let the status of commands be known even if the parent of this process ignored SIGCHLD; for the main thread.

    The disposition is inherited. The kernel then discards the status of a child, and `subprocess` reports 0.
    """
    if signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)


def run(
    argv: Sequence[str],
    seconds: float,
    *,
    stdin: bytes = b"",
    environment: Mapping[str, str] | None = None,
    cwd: Path | str = "/",
    limit: int = MAX_OUTPUT,
    user: User | None = None,
) -> Completed:
    """Run a command to its end; no shell reads its arguments.

    The command leads a process group of its own, with no signal blocked. If it does not end well, the whole group is
    killed. A process that survives SIGKILL (it hangs in the kernel) is left behind after a second.

    Args:
        argv: program and arguments. A program on a file system that does not answer blocks the caller.
        seconds: until output and process must have ended.
        stdin: standard input.
        environment: all variables of the command; those of this process if None.
        cwd: working directory; `/` keeps no file system busy.
        limit: bytes of standard output and standard error together.
        user: that it runs as; only root may run a command as somebody else.

    Raises:
        CannotStart: the program cannot be executed.
        ProcessTimeout: it did not end in time.
        TooMuchOutput: it wrote more than `limit`.
    """
    with Process(argv, seconds, stdin=stdin, environment=environment, cwd=cwd, limit=limit, user=user) as process:
        output = b"".join(process.chunks())
        return Completed(process.status, output, process.errors)


class Process:
    """A command whose output is read while it runs; arguments and errors as of `run`.

    A context manager: at its exit no process of the command's group is left.
    """

    def __init__(
        self,
        argv: Sequence[str],
        seconds: float,
        *,
        stdin: bytes = b"",
        environment: Mapping[str, str] | None = None,
        cwd: Path | str = "/",
        limit: int = MAX_OUTPUT,
        user: User | None = None,
    ) -> None:
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._limit = limit
        self._stdin = memoryview(stdin)
        self._errors = bytearray()
        try:
            self._process = subprocess.Popen(
                argv,
                stdin=subprocess.PIPE if stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment,
                cwd=cwd,
                start_new_session=True,
                user=user.uid if user else None,
                group=user.gid if user else None,
                extra_groups=user.groups if user else None,
                # Only where a parent blocked signals: a fork with Python code in it is slower and less safe.
                preexec_fn=_unblock_signals if signal.pthread_sigmask(signal.SIG_BLOCK, ()) else None,  # noqa: PLW1509
            )
        except (OSError, subprocess.SubprocessError) as error:
            raise CannotStart(getattr(error, "strerror", None) or str(error)) from error

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    @property
    def status(self) -> int:
        """Exit status, minus the signal if one ended the command. Waits for the end until the deadline."""
        try:
            status = self._process.wait(max(0.1, self._deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            raise self._timeout() from None
        if status == 0 and signal.getsignal(signal.SIGCHLD) is signal.SIG_IGN:
            raise ProcessError("its exit status is unknown: SIGCHLD is ignored")
        return status

    @property
    def errors(self) -> bytes:
        """What was read of standard error so far, at most 64 KiB."""
        return bytes(self._errors)

    def chunks(self) -> Iterator[bytes]:
        """Yield standard output as it comes, to its end."""
        size = 0
        stdin, stdout, stderr = self._process.stdin, self._process.stdout, self._process.stderr
        if stdout is None or stderr is None:
            raise ValueError("both outputs are pipes")
        with selectors.DefaultSelector() as selector:
            selector.register(stdout, selectors.EVENT_READ)
            selector.register(stderr, selectors.EVENT_READ)
            if stdin is not None:
                os.set_blocking(stdin.fileno(), False)
                selector.register(stdin, selectors.EVENT_WRITE)
            while selector.get_map():
                remaining = self._deadline - time.monotonic()
                ready = selector.select(remaining) if remaining > 0 else []
                if not ready:
                    raise self._timeout()
                for key, _ in ready:
                    if key.fileobj is stdin:
                        if self._write_part(stdin):
                            selector.unregister(stdin)
                            stdin.close()
                        continue
                    part = os.read(key.fd, _CHUNK)
                    size += len(part)
                    if size > self._limit:
                        raise TooMuchOutput(f"more than {self._limit} bytes of output")
                    if not part:
                        selector.unregister(key.fileobj)
                    elif key.fileobj is stdout:
                        yield part
                    else:
                        self._errors += part[: _MAX_ERRORS - len(self._errors)]

    def _write_part(self, stdin: IO[bytes] | None) -> bool:
        """Write what the pipe takes; True once there is no more to write."""
        if stdin is None:
            return True
        try:
            self._stdin = self._stdin[os.write(stdin.fileno(), self._stdin[:_CHUNK]) :]
        except BrokenPipeError:  # the command does not read it; its standard error has the reason
            return True
        except BlockingIOError:
            return False
        return not self._stdin

    def _timeout(self) -> ProcessTimeout:
        return ProcessTimeout(f"no answer within {self._seconds:g} s")

    def _end(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        if self._process.returncode is None:  # not reaped, so its number, and that of its group, is still its own
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_REAP_SECONDS)


def one_line(text: bytes | str, limit: int = 300) -> str:
    """Return a command's message as one printable line of at most `limit` characters."""
    decoded = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    line = "".join(char if char.isprintable() else " " for char in " ".join(decoded.split()))
    return line if len(line) <= limit else line[: limit - 1] + "…"


def _unblock_signals() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
