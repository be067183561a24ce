"""Answers a request for the stacks of this process, before it is ended: where do its threads stand?

The thread that writes the record does it, so that it also works while the training hangs in native code. It cannot
where that holds the interpreter's lock, or where the process is stopped: then there is no answer, which is one, too.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import FrameType

from trainwarden.identity import host_name, local_rank
from trainwarden.record.capture import (
    FLIGHT,
    LIMITS,
    NATIVE,
    NODE,
    STACKS,
    CaptureRequest,
    StacksHeader,
    parse_request,
    read_request,
    write_answer,
)
from trainwarden.record.document import FileContent, read_file
from trainwarden.record.folder import CAPTURE, encode, replace_file
from trainwarden.training.flight_recorder import flight_recorder_dump
from trainwarden.training.node_folder import NodeFolder
from trainwarden.training.recorder import importing

# How often one rank of a node looks into the folder of the run, which may be on a file server.
LOOK_SECONDS = 2.0
# The least time between two answers.
_PAUSE_SECONDS = 10.0
_MAX_THREADS, _MAX_FRAMES = 200, 200
_NATIVE_SECONDS, _SMI_SECONDS, _KERNEL_SECONDS = 10.0, 15.0, 5.0
_PTRACE = "/proc/sys/kernel/yama/ptrace_scope"

logger = logging.getLogger("trainwarden")


class CaptureRequests:
    """Finds the requests to the ranks of an attempt, each once; of a node's ranks only one reads the run's folder.

    Args:
        folder: of the run.
        key: of the attempt.
        of_node: whether it shares what it reads with the other ranks of the node.
    """

    def __init__(self, folder: Path, key: str, *, of_node: bool = True) -> None:
        self._folder = folder
        self._key = key
        self._of_node = of_node
        self._node: NodeFolder | None = None
        self._seen: set[str] = set()
        self._looked = float("-inf")
        self._answered = float("-inf")

    def next(self) -> CaptureRequest | None:
        """Return a request that was not returned before; None if there is none. It never raises."""
        with contextlib.suppress(OSError, ValueError):
            request = self._read()
            now = time.monotonic()
            if request is None or request.attempt_key != self._key or request.intent in self._seen:
                return None
            if now - self._answered >= _PAUSE_SECONDS:
                self._seen.add(request.intent)
                self._answered = now
                return request
        return None

    def _read(self) -> CaptureRequest | None:
        if self._node is None and self._of_node:
            self._node = NodeFolder(self._folder, self._key)
        # Nothing of another user is read there, or written over.
        place = self._node.path if self._node is not None and self._node.prepare() else None
        if not self._is_my_turn(place):
            content = read_file(place / CAPTURE) if place else None
            return parse_request(content) if isinstance(content, FileContent) else None
        request = read_request(self._folder)
        if place and request and request.attempt_key == self._key and request.intent not in self._seen:
            with contextlib.suppress(OSError):
                replace_file(place / CAPTURE, encode(request.to_json()))
        return request

    def _is_my_turn(self, place: Path | None) -> bool:
        """Return whether no rank of this node has looked lately; then this one does."""
        now = time.monotonic()
        if now - self._looked < LOOK_SECONDS:
            return False
        mark = f"{place}/.looked"
        if place is not None:
            with contextlib.suppress(OSError):
                if 0 <= time.time() - os.stat(mark).st_mtime < LOOK_SECONDS:  # noqa: PTH116  # twice a second
                    return False
        self._looked = now
        if place is not None:
            with contextlib.suppress(OSError):
                os.close(os.open(mark, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600))
                os.utime(mark)
        return True


class StackAnswers:
    """Writes the stacks of this process when they are requested; `check` is called twice a second.

    Args:
        folder: of the run.
        key: of the attempt.
        rank: of this process.
        standing: returns the step, the phase and the thread of the training loop.
        environ: variables of the process.
    """

    def __init__(
        self,
        folder: Path,
        key: str,
        rank: int,
        standing: Callable[[], tuple[int | None, str, int | None]],
        environ: Mapping[str, str] = os.environ,
    ) -> None:
        self._folder = folder
        self._key = key
        self._rank = rank
        self._standing = standing
        self._environ = environ
        self._requests = CaptureRequests(folder, key)

    def check(self) -> None:
        """Answer a new request. What cannot be written is left out: the record matters more."""
        request = self._requests.next()
        if request is None:
            return
        step, phase, loop = self._standing()
        loop = loop or threading.main_thread().ident or 0
        follow = self._begin_what_takes_long()
        state, waits_in = kernel_state(os.getpid())
        header = StacksHeader(
            rank=self._rank,
            attempt_key=self._key,
            intent=request.intent,
            time=time.time(),
            host=host_name(),
            pid=os.getpid(),
            step=step,
            phase=phase,
            thread=f"{loop:#x}",
            state=state,
            waits_in=waits_in,
            follow=follow,
        )
        with contextlib.suppress(OSError):
            text = stacks_of_threads(loop).encode("utf-8", "replace")
            write_answer(self._folder, self._rank, STACKS, encode(header.to_json()) + text)

    def _begin_what_takes_long(self) -> tuple[str, ...]:
        wanted: dict[str, Callable[[], bytes]] = {}
        dump = flight_recorder_dump(self._rank, self._environ)
        if dump is not None:
            wanted[FLIGHT] = dump
        if can_read_native_frames():
            wanted[NATIVE] = lambda: output_of(["py-spy", "dump", "--native", "--pid", str(os.getpid())])
        if (local_rank(self._environ) or 0) == 0:
            wanted[NODE] = node_report
        worker = threading.Thread(target=self._write, args=(wanted,), name="trainwarden-capture", daemon=True)
        try:
            worker.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            return ()
        return tuple(wanted)

    def _write(self, wanted: Mapping[str, Callable[[], bytes]]) -> None:
        for kind, make in wanted.items():
            content = b""
            with contextlib.suppress(Exception):
                content = make()
            with contextlib.suppress(OSError):
                write_answer(self._folder, self._rank, kind, content)


def stacks_of_threads(first: int) -> str:
    """Return the stacks of all threads, innermost frame first, as faulthandler writes them, the thread `first` first.

    Nothing is read from a disk.
    """
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    frames = sys._current_frames()  # noqa: SLF001  # the documented way
    order = sorted(frames, key=lambda ident: (ident != first, ident != threading.main_thread().ident))
    lines = []
    for ident in order[:_MAX_THREADS]:
        name = "".join(char if char.isprintable() else "?" for char in names.get(ident, ""))
        lines.append(f"Thread {ident:#x} [{name[:60]}] (most recent call first):")
        frame: FrameType | None = frames[ident]
        for _ in range(_MAX_FRAMES):
            if frame is None:
                break
            code = frame.f_code
            lines.append(f'  File "{code.co_filename}", line {frame.f_lineno or 0} in {code.co_name}')
            frame = frame.f_back
        lines.append("")
    return "\n".join(lines) + "\n"


def kernel_state(pid: int) -> tuple[str | None, str | None]:
    """Return the state of a process's main thread, such as `S` or `D`, and the kernel function that it waits in."""
    state = waits_in = None
    with contextlib.suppress(OSError, IndexError):
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()[0]
    with contextlib.suppress(OSError):
        waits_in = Path(f"/proc/{pid}/wchan").read_text(encoding="utf-8", errors="replace").strip("0\n ") or None
    return state, waits_in


def can_read_native_frames() -> bool:
    """Return whether py-spy is there and the kernel lets a child of this process look into it."""
    if not is_installed("py-spy"):
        return False
    if os.geteuid() == 0:
        return True
    try:
        return Path(_PTRACE).read_bytes().strip() == b"0"
    except OSError:
        return True  # a kernel without this restriction


def is_installed(program: str) -> bool:
    """Return whether a program is on PATH."""
    return any(os.access(f"{folder}/{program}", os.X_OK) for folder in os.get_exec_path())


def output_of(argv: list[str], seconds: float = _NATIVE_SECONDS, limit: int = LIMITS[NATIVE]) -> bytes:
    """Return what a command prints; the reason where it gives no answer."""
    with importing:
        from trainwarden.clients.process import ProcessError, run  # noqa: PLC0415  # for a request alone

    try:
        done = run(argv, seconds, limit=limit)
    except ProcessError as error:
        return f"{argv[0]}: {error}\n".encode("utf-8", "replace")
    return done.output or f"{argv[0]}: status {done.status}: {done.message}\n".encode("utf-8", "replace")


def node_report() -> bytes:
    """Return what `nvidia-smi -q` and the kernel's log show of this node, where they can be had."""
    half = LIMITS[NODE] // 2
    parts = []
    if is_installed("dmesg"):
        parts.append(b"# dmesg\n" + output_of(["dmesg"], _KERNEL_SECONDS, 8 << 20)[-half // 2 :])
    if is_installed("nvidia-smi"):
        parts.append(b"# nvidia-smi -q\n" + output_of(["nvidia-smi", "-q"], _SMI_SECONDS, half))
    return b"\n".join(parts)
