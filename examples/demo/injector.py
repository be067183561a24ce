"""Breaks one training from outside and reports that to nobody: a network path between the ranks, signals and limits.

The ranks' gradient exchange passes through here as through a switch. When the training has reached a step, the fault
happens once; after that this is an honest switch again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import resource
import select
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from trainwarden.record.rank import RankBeat, read_rank

_POLL_SECONDS = 0.05
_HEADER = struct.Struct("<4sIQ")  # magic, step, bytes of payload: the exchange's frame
_MAGIC = b"TWGR"
_NAN = struct.pack("<f", float("nan"))
_CHUNK_BYTES = 64 * 1024
_HEADROOM_BYTES = 192 * 1024
_STEPS_SAMPLED = 5  # of the address space, over so many steps: the least of them is one between two steps


class Switch:
    """Forwards frames between rank 1, which connects here, and rank 0, which listens behind."""

    def __init__(self, listen: int, forward: int) -> None:
        self.flowing = threading.Event()
        self.flowing.set()
        self.corrupt = threading.Event()
        self.held = threading.Event()
        self._forward = forward
        self._pair: tuple[socket.socket, ...] = ()
        self._listener = socket.create_server(("127.0.0.1", listen))

    def serve(self) -> None:
        """Accept connections for ever."""
        while True:
            near, _ = self._listener.accept()
            far = self._connect()
            if far is None:
                near.close()
                continue
            self._pair = (near, far)
            for source, target in ((near, far), (far, near)):
                threading.Thread(target=self._pump, args=(source, target), daemon=True).start()

    def reset(self) -> None:
        """Cut the connection the hard way: both ends see a reset."""
        for end in self._pair:
            with contextlib.suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                os.close(end.detach())

    def _connect(self) -> socket.socket | None:
        with contextlib.suppress(OSError):
            return socket.create_connection(("127.0.0.1", self._forward), timeout=5)
        return None

    def _pump(self, source: socket.socket, target: socket.socket) -> None:
        source.settimeout(None)
        target.settimeout(None)
        try:
            while header := _read(source, _HEADER.size):
                magic, _, size = _HEADER.unpack(header)
                if magic != _MAGIC:
                    break
                self._hold_if_asked()
                target.sendall(header)
                while size:
                    data = _receive(source, min(size, _CHUNK_BYTES))
                    if not data:
                        return
                    size -= len(data)
                    self._hold_if_asked()
                    target.sendall(self._perhaps_corrupt(data))
        except (OSError, ValueError):  # ValueError: select() of a socket that reset() has taken away
            pass
        finally:
            for end in (source, target):
                with contextlib.suppress(OSError):
                    end.close()

    def _hold_if_asked(self) -> None:
        if not self.flowing.is_set():
            self.held.set()
            self.flowing.wait()

    def _perhaps_corrupt(self, data: bytes) -> bytes:
        if self.corrupt.is_set() and len(data) > 4 * len(_NAN):
            self.corrupt.clear()
            return _NAN + data[len(_NAN) :]
        return data


def _receive(source: socket.socket, size: int) -> bytes:
    """Like recv(), but never inside a system call for long: a socket closes only when nobody waits in it."""
    while not select.select([source], [], [], _POLL_SECONDS)[0]:
        pass
    return source.recv(size)


def _read(source: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = _receive(source, size - len(data))
        if not part:
            return b""
        data += part
    return data


def hang(switch: Switch, run: Path) -> None:
    """Stop rank 1 while it waits inside a collective."""
    switch.flowing.clear()
    switch.held.wait()
    time.sleep(_POLL_SECONDS)  # what is in flight has arrived: both ranks wait for the rest of a frame
    os.kill(_pid(run, 1), signal.SIGSTOP)
    switch.flowing.set()


def crash(switch: Switch, run: Path) -> None:
    """Reset the connection between the ranks in the middle of a frame."""
    del run
    switch.flowing.clear()
    switch.held.wait()
    switch.reset()
    switch.flowing.set()


def kill9(switch: Switch, run: Path) -> None:
    """Kill rank 1."""
    del switch
    os.kill(_pid(run, 1), signal.SIGKILL)


def oom(switch: Switch, run: Path) -> None:
    """Leave rank 0 no memory for the arrays of a step, but enough for its stack to grow by a page."""
    del switch
    pid = _pid(run, 0)
    space, data = _memory(pid)
    with contextlib.suppress(OSError):  # it has ended
        while space:
            # On a busy machine no reading may be one between two steps: while it goes on, the limit was too high.
            until = _step(run) + _STEPS_SAMPLED
            while space and _step(run) < until:
                space, data = map(min, (space, data), _memory(pid))
            resource.prlimit(pid, resource.RLIMIT_AS, (space + _HEADROOM_BYTES, resource.RLIM_INFINITY))
            # The C library reserves address space for each thread, and falls back to that of threads that have ended.
            resource.prlimit(pid, resource.RLIMIT_DATA, (data + _HEADROOM_BYTES, resource.RLIM_INFINITY))


def nan(switch: Switch, run: Path) -> None:
    """Turn one number of an exchanged gradient into NaN."""
    del run
    switch.corrupt.set()


FAULTS: dict[str, Callable[[Switch, Path], None]] = {
    "hang": hang,
    "crash": crash,
    "kill9": kill9,
    "oom": oom,
    "nan": nan,
}


def _memory(pid: int) -> tuple[int, int]:
    """Return the bytes of a process's address space, and those that it may write to; 0 where it has ended."""
    time.sleep(_POLL_SECONDS / 50)
    pages = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    return int(pages[0]) * resource.getpagesize(), int(pages[5]) * resource.getpagesize()


def _pid(run: Path, rank: int) -> int:
    beat = read_rank(run, rank)
    if not isinstance(beat, RankBeat) or beat.pid is None:
        raise SystemExit(f"{run}: rank {rank} has no process in the record")
    return beat.pid


def _step(run: Path) -> int:
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        return int(json.loads((run / "progress.json").read_text(encoding="utf-8"))["step"])
    return -1


def main() -> int:
    """Forward until the end; break once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("scenario", choices=["none", *FAULTS])
    parser.add_argument("--run", type=Path, required=True, help="the run's folder, to see its step and its processes")
    parser.add_argument("--listen", type=int, required=True, help="the port rank 1 connects to")
    parser.add_argument("--forward", type=int, required=True, help="the port rank 0 listens on")
    parser.add_argument("--at-step", type=int, required=True)
    options = parser.parse_args()
    switch = Switch(options.listen, options.forward)
    threading.Thread(target=switch.serve, daemon=True).start()
    if options.scenario != "none":
        while _step(options.run) < options.at_step:
            time.sleep(_POLL_SECONDS)
        FAULTS[options.scenario](switch, options.run)
    signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
