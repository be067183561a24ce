"""The way to Ray's dashboard where only its head pod leads to it: `kubectl exec`."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, cast

from trainwarden_exporter.collectors.ray import request
from trainwarden_exporter.collectors.ray.reach import MAX_BODY, Answer, Unreachable
from trainwarden_exporter.core.redaction import label_text
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trainwarden_exporter.collectors.ray.reach import Question


class Exec:
    """Within a pod: one `kubectl exec` for all paths, the token on its standard input and on no command line.

    Args:
        question: as over HTTP, its URL as the pod sees it.
        command: kubectl with its arguments, up to the `--`.
    """

    def __init__(self, question: Question, command: Sequence[str]) -> None:
        self._question = question
        self._argv = [*command, "--", "python3", "-c", Path(request.__file__).read_text()]

    def get(self, paths: Sequence[str]) -> list[Answer]:
        """Ask for all paths at once."""
        ask = json.dumps({**self._question.ask(paths), "seconds": self._question.seconds * 0.8}).encode()
        with calling("kubectl exec"):
            output = run(self._argv, ask, self._question.seconds, MAX_BODY * 2)
        try:
            return _answers(output, len(paths))
        except (ValueError, TypeError):
            raise Unreachable("kubectl exec: the answer from the pod is cut off or none of ours") from None


def _answers(output: bytes, count: int) -> list[Answer]:
    answers = []
    for _ in range(count):
        head, newline, rest = output.partition(b"\n")
        status, error, length = json.loads(head)
        if not newline or not 0 <= length <= len(rest):
            raise ValueError("cut off")
        answers.append(Answer(int(status), rest[:length], str(error)))
        output = rest[length:]
    return answers


def run(argv: Sequence[str], stdin: bytes, seconds: float, limit: int) -> bytes:
    """Return what a command writes; raises `Unreachable` if it fails, takes too long or writes too much.

    Nothing of it is left running: it and what it started, such as a helper for credentials, are ended together.
    """
    pipe = subprocess.PIPE
    try:
        process = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True)
    except OSError as error:
        raise Unreachable(f"{argv[0]}: {error.strerror}") from None
    try:
        output, errors = _talk(process, stdin, time.monotonic() + seconds, limit)
        status = process.wait(timeout=1)
    except OverflowError:
        raise Unreachable(f"{argv[0]} exec: more than {limit} bytes") from None
    except TimeoutError:
        raise Unreachable(f"{argv[0]} exec: no answer for {seconds:.0f} s") from None
    except subprocess.TimeoutExpired:
        raise Unreachable(f"{argv[0]} exec: does not end") from None
    finally:
        _end(process)
    if status:
        said = label_text(errors.decode("utf-8", "replace"))
        raise Unreachable(f"{argv[0]} exec ended with status {status}: {said}")
    return output


def _talk(process: subprocess.Popen[bytes], stdin: bytes, until: float, limit: int) -> tuple[bytes, bytes]:
    """Write the one and read the others; a question is shorter than a pipe takes at once."""
    ours = [cast("IO[bytes]", pipe) for pipe in (process.stdin, process.stdout, process.stderr)]
    with contextlib.suppress(BrokenPipeError):  # it says on standard error why
        ours[0].write(stdin)
        ours[0].close()
    found = {ours[1].fileno(): bytearray(), ours[2].fileno(): bytearray()}
    with selectors.DefaultSelector() as selector:
        for descriptor in found:
            selector.register(descriptor, selectors.EVENT_READ)
        while selector.get_map():
            left = until - time.monotonic()
            if left <= 0:
                raise TimeoutError
            for key, _ in selector.select(left):
                chunk = os.read(key.fd, 65536)
                found[key.fd] += chunk
                if not chunk:
                    selector.unregister(key.fd)
            if sum(map(len, found.values())) > limit:
                raise OverflowError
    output, errors = found.values()
    return bytes(output), bytes(errors)


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        _quietly(cast("IO[bytes]", pipe).close)
    if process.returncode is None:  # not asked for before: while it is not, its number, and its group's, is its own
        _quietly(lambda: os.killpg(process.pid, signal.SIGKILL))
        process.wait()


def _quietly(call: Callable[[], None]) -> None:
    with contextlib.suppress(OSError):
        call()
