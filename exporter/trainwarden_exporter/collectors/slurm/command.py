"""Runs one client command of SLURM: no shell, a deadline, a limit on what it may answer, none of our environment."""

from __future__ import annotations

import contextlib
import os
import re
import selectors
import signal
import subprocess
import time
from typing import TYPE_CHECKING, NamedTuple

from trainwarden_exporter.collectors.slurm.errors import SlurmError
from trainwarden_exporter.core.redaction import label_text
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Sequence

# Others are options of the commands in disguise, or tell of a job that the exporter happens to run in.
KEPT_VARIABLES = ("PATH", "HOME", "LD_LIBRARY_PATH", "SLURM_CONF", "SLURM_JWT")
# About 50,000 jobs.
MAX_OUTPUT = 192 << 20
_CHUNK = 1 << 20
_AUTHENTICATION = re.compile(
    r"munge|authenticat|auth_g_|credential|jwt|permission denied|access denied|access/permission|invalid user", re.I
)


class Answer(NamedTuple):
    """What a command printed, and what it said of errors: one line, fit for a log."""

    output: bytes
    said: str


def run(argv: Sequence[str], seconds: float, limit: int = MAX_OUTPUT) -> Answer:
    """Run a command; `argv[0]` is a path. Raises `SlurmError` if it fails or gives no whole answer in `seconds`."""
    name = os.path.basename(argv[0])  # noqa: PTH119  # a name, and no path
    with calling(" ".join([name, *argv[1:]])):
        try:
            process = subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env=environment(),
                cwd="/",
                start_new_session=True,
            )
        except OSError as error:
            raise SlurmError("missing", f"{argv[0]}: {error.strerror}") from error
        try:
            output, errors = _read(process, name, time.monotonic() + seconds, limit)
        finally:
            _end(process)
    said = label_text(errors.decode("utf-8", "replace"), 300)
    if process.returncode != 0:
        raise failure(f"{name} ended with status {process.returncode}: {said}", said)
    return Answer(output, said)


def failure(message: str, said: str) -> SlurmError:
    """Return the error of a command that says it could not answer: why, as far as its words tell."""
    return SlurmError("authentication" if _AUTHENTICATION.search(said) else "failed", message)


def environment() -> dict[str, str]:
    """Return what a command may see of our environment."""
    kept = {name: os.environ[name] for name in KEPT_VARIABLES if name in os.environ}
    return {**kept, "LC_ALL": "C", "TZ": "UTC"}


def _read(process: subprocess.Popen[bytes], name: str, deadline: float, limit: int) -> tuple[bytes, bytes]:
    """Read both outputs to their ends."""
    if process.stdout is None or process.stderr is None:
        raise ValueError("both outputs are pipes")
    parts: dict[int, list[bytes]] = {process.stdout.fileno(): [], process.stderr.fileno(): []}
    size = 0
    with selectors.DefaultSelector() as selector:
        for descriptor in parts:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            remaining = deadline - time.monotonic()
            ready = selector.select(remaining) if remaining > 0 else []
            if not ready:
                raise SlurmError("timeout", f"{name} gave no answer in time")
            for key, _ in ready:
                part = os.read(key.fd, _CHUNK)
                if not part:
                    selector.unregister(key.fd)
                parts[key.fd].append(part)
                size += len(part)
            if size > limit:
                raise SlurmError("too_much", f"{name} answered more than {limit >> 20} MiB")
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(max(0.1, deadline - time.monotonic()))
    output, errors = (b"".join(found) for found in parts.values())
    return output, errors


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the command and all that it started, unless it was waited for; one that does not die is left behind."""
    for pipe in (process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
    if process.returncode is None:  # so the number of its group is still its own
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(1.0)
