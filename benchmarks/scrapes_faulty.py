"""What a hundred thousand faulty scrapes leave behind in an exporter, and whether good ones go on among them.

The environment says how many: `FAULTY_SCRAPES`.
"""

import contextlib
import itertools
import os
import socket
import struct
import tempfile
from pathlib import Path

from benchmarks.scrapes_client import Client
from benchmarks.scrapes_node import Node
from benchmarks.scrapes_process import GROWTH, GROWTH_TARGETS, Growth
from benchmarks.tables import Table, verdict

_SAMPLES = 2_000
_BESIDE_EACH = 100
_SLOWEST_SECONDS = 1.0
_TIMEOUT_SECONDS = 30.0
_HOST = b"Host: x\r\n\r\n"
_ASK = b"GET /metrics HTTP/1.1\r\n"
# Of each the response is read.
_FAULTY: dict[str, bytes] = {
    "a path that is none": b"GET /metric HTTP/1.1\r\n" + _HOST,
    "a collector that is none": b"GET /metrics?collect[]=nope HTTP/1.1\r\n" + _HOST,
    "another method": b"DELETE /metrics HTTP/1.1\r\n" + _HOST,
    "a body": b"POST /metrics HTTP/1.1\r\nContent-Length: 10\r\nHost: x\r\n\r\nshort",
    "no host": _ASK + b"\r\n",
    "a version that is none": b"GET /metrics HTTP/9.9\r\n" + _HOST,
    "a header without a colon": _ASK + b"no colon\r\n" + _HOST,
    "weights that are none": _ASK + b"Accept: text/plain;q=x,*/*;q=7\r\nAccept-Encoding: gzip;q=-1\r\n" + _HOST,
    "a time-out that is none": _ASK + b"X-Prometheus-Scrape-Timeout-Seconds: nan\r\n" + _HOST,
    "a head that is too long": _ASK + b"X: " + b"x" * 40_000 + b"\r\n" + _HOST,
    "a handshake of TLS": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(256)),
    "bytes": bytes(range(1, 256)) + b"\r\n\r\n",
}
# Sent by clients that are gone before the response.
_ABANDONED: dict[str, bytes] = {"nothing": b"", "half a head": _ASK + b"Host", "a scrape": _ASK + _HOST}


def faulty() -> Table:
    """One exporter: faulty scrapes, each on a connection of its own, with a good one beside each hundred."""
    count = int(os.environ.get("FAULTY_SCRAPES", "100000"))
    kinds = itertools.cycle([(sent, each is _FAULTY) for each in (_FAULTY, _ABANDONED) for sent in each.values()])
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder))
        node.fill(_SAMPLES)
        with node.exporter() as (pid, port):
            client = Client(port)
            slowest, errors, good = 0.0, 0, 0
            growth = Growth(pid, count)
            for number in range(count):
                sent, reads = next(kinds)
                _ask(port, sent, reads=reads)
                if number % _BESIDE_EACH == 0:
                    good += 1
                    try:
                        slowest = max(slowest, client.scrape())
                    except (OSError, RuntimeError, ValueError):
                        errors += 1
                        client.close()
                        client = Client(port)
                growth.scraped(number)
            client.close()
            grown = growth.rows()
    rows = [
        ["faulty scrapes", f"{count:,}", ""],
        ["good ones among them", f"{good:,}", ""],
        ["… that failed", f"{errors}", verdict(errors == 0)],
        ["… slowest", f"{1e3 * slowest:.0f} ms", verdict(slowest < _SLOWEST_SECONDS)],
        *grown,
    ]
    note = (
        f"In turn: {', '.join(_FAULTY)}; and clients that are gone before the response, after {', '.join(_ABANDONED)}. "
        f"{GROWTH} The whole process tree. Targets: no good scrape fails or takes over a second; {GROWTH_TARGETS}."
    )
    return Table(["", "measured", "target"], rows, note)


def _ask(port: int, sent: bytes, *, reads: bool) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_SECONDS) as connection:
        with contextlib.suppress(ConnectionError):  # refused before all was sent
            connection.sendall(sent)
            if reads:
                connection.recv(65536)
        # Reset rather than ended, whatever is under way.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
