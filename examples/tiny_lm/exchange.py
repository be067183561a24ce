"""Averages gradients over TCP: rank 0 is the hub. Each rank waits for all others, as in any collective.

A frame is the magic `TWGR`, the step (uint32), the payload's bytes (uint64), all little-endian, and the payload,
float32 numbers. A connection begins with a frame of one number each way: the rank, at the step after which it goes on.
"""

import contextlib
import socket
import struct
import time
from typing import Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Address = tuple[str, int]

_HEADER = struct.Struct("<4sIQ")
_MAGIC = b"TWGR"
_RETRY_SECONDS = 0.2
RENDEZVOUS_SECONDS = 60.0


class Exchange(Protocol):
    """What the training sees of its peers."""

    def average(self, values: Floats, step: int) -> Floats:
        """The mean of every rank's `values`; the same on every rank. Blocks until all have sent theirs.

        Raises:
            ConnectionError: a peer is gone.
            ValueError: a peer is at another step, or sends something else.
        """

    def close(self) -> None:
        """Let the peers go."""


class Alone:
    """A world of one rank."""

    def average(self, values: Floats, step: int) -> Floats:
        """`values` themselves."""
        del step
        return values

    def close(self) -> None:
        """Nothing to let go."""


class Hub:
    """Rank 0: receives from every other rank, sends all of them the mean.

    Raises:
        TimeoutError: not every rank has connected in time.
    """

    def __init__(self, address: Address, world: int, step: int) -> None:
        self._peers: dict[int, Connection] = {}
        deadline = time.monotonic() + RENDEZVOUS_SECONDS
        with socket.create_server(address, backlog=world) as server:
            while len(self._peers) < world - 1:
                server.settimeout(max(0.01, deadline - time.monotonic()))
                try:
                    accepted, _ = server.accept()
                except TimeoutError:
                    missing = sorted(set(range(1, world)) - set(self._peers))
                    raise TimeoutError(
                        f"rendezvous at {address[0]}:{address[1]}: ranks {missing} did not come"
                    ) from None
                self._greet(Connection(accepted), step, world)

    def _greet(self, peer: "Connection", step: int, world: int) -> None:
        try:
            rank = int(peer.receive(1, step)[0])
            if not 0 < rank < world or rank in self._peers:
                raise ValueError(f"a peer says that it is rank {rank} of {world}, which is not awaited")
        except ConnectionError:
            # It comes again: what lies in between was up before we were.
            peer.close()
            return
        except ValueError:
            peer.close()
            raise
        peer.name = f"rank {rank}"
        peer.send(np.zeros(1, np.float32), step)
        self._peers[rank] = peer

    def average(self, values: Floats, step: int) -> Floats:
        """See `Exchange`."""
        total: Floats = values.copy()
        # In the order of ranks, so that the sum is the same every time.
        for rank in sorted(self._peers):
            total += self._peers[rank].receive(len(values), step)
        np.divide(total, np.float32(len(self._peers) + 1), out=total)
        for rank in sorted(self._peers):
            self._peers[rank].send(total, step)
        return total

    def close(self) -> None:
        """Let the peers go."""
        for peer in self._peers.values():
            peer.close()


class Spoke:
    """Every other rank: sends its values to rank 0 and receives the mean.

    Raises:
        TimeoutError: rank 0 could not be reached in time.
    """

    def __init__(self, address: Address, rank: int, step: int) -> None:
        deadline = time.monotonic() + RENDEZVOUS_SECONDS
        while True:
            connection = None
            try:
                connection = Connection(socket.create_connection(address, timeout=RENDEZVOUS_SECONDS))
                connection.send(np.array([rank], np.float32), step)
                connection.receive(1, step)
            except OSError as error:
                if connection:
                    connection.close()
                if time.monotonic() > deadline:
                    raise TimeoutError(f"rendezvous: rank 0 at {address[0]}:{address[1]} did not answer") from error
                time.sleep(_RETRY_SECONDS)
            else:
                self._hub = connection
                return

    def average(self, values: Floats, step: int) -> Floats:
        """See `Exchange`."""
        self._hub.send(values, step)
        return self._hub.receive(len(values), step)

    def close(self) -> None:
        """Let rank 0 go."""
        self._hub.close()


class Connection:
    """Frames over one socket. It blocks for as long as the peer takes: whether that is too long, others judge."""

    def __init__(self, connected: socket.socket, name: str = "rank 0") -> None:
        connected.settimeout(None)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket = connected
        self.name = name

    def send(self, values: Floats, step: int) -> None:
        """Send one frame."""
        payload = np.ascontiguousarray(values, "<f4")
        self._socket.sendall(_HEADER.pack(_MAGIC, step, payload.nbytes))
        self._socket.sendall(payload.view(np.uint8).data)

    def receive(self, count: int, step: int) -> Floats:
        """Receive the frame of `step`, which must hold `count` numbers."""
        header = bytearray(_HEADER.size)
        self._fill(memoryview(header), step)
        magic, its_step, size = _HEADER.unpack(header)
        if magic != _MAGIC or size != 4 * count:
            raise ValueError(f"{self.name} sent {size} bytes of {magic!r} where {4 * count} of {_MAGIC!r} were due")
        if its_step != step:
            raise ValueError(f"{self.name} is at step {its_step}, this rank is at step {step}")
        values = np.empty(count, "<f4")
        self._fill(values.view(np.uint8).data, step)
        return values.astype(np.float32, copy=False)

    def close(self) -> None:
        """Close the socket."""
        with contextlib.suppress(OSError):
            self._socket.close()

    def _fill(self, view: memoryview, step: int) -> None:
        while view:
            got = self._socket.recv_into(view)
            if got == 0:
                raise ConnectionResetError(f"{self.name} closed the connection at step {step}")
            view = view[got:]
