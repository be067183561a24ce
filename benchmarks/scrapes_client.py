"""Scrapes as Prometheus makes them: one connection that stays, compressed, in the format that it likes best."""

import gzip
import socket
import time

# What Prometheus 2.42 sends.
_REQUEST = (
    "GET /metrics HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUser-Agent: Prometheus/2.42.0\r\n"
    "Accept: application/openmetrics-text;version=1.0.0,application/openmetrics-text;version=0.0.1;q=0.75,"
    "text/plain;version=0.0.4;q=0.5,*/*;q=0.1\r\nAccept-Encoding: gzip\r\n"
    "X-Prometheus-Scrape-Timeout-Seconds: 10\r\n{more}\r\n"
)
_TIMEOUT_SECONDS = 30.0


class Client:
    """One connection to an exporter on loopback; `authorization` is that header's value."""

    def __init__(self, port: int, authorization: str = "") -> None:
        more = f"Authorization: {authorization}\r\n" if authorization else ""
        self._request = _REQUEST.format(port=port, more=more).encode()
        self._socket = socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_SECONDS)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb", buffering=1 << 20)

    def scrape(self) -> float:
        """Scrape once; the seconds until the last byte has come."""
        return self._get()[0]

    def page(self) -> bytes:
        """The page, uncompressed."""
        return gzip.decompress(self._get()[1])

    def close(self) -> None:
        """End the connection."""
        self._file.close()
        self._socket.close()

    def _get(self) -> tuple[float, bytes]:
        begun = time.perf_counter()
        self._socket.sendall(self._request)
        status = self._file.readline()
        headers = {}
        while (line := self._file.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.lower()] = value.strip().lower()
        body = self._body(headers)
        took = time.perf_counter() - begun
        if b" 200 " not in status or headers.get("content-encoding") != "gzip":
            raise RuntimeError(f"not a compressed page: {status!r} {headers}")
        return took, body

    def _body(self, headers: dict[str, str]) -> bytes:
        if headers.get("transfer-encoding") != "chunked":
            return bytes(self._file.read(int(headers["content-length"])))
        chunks = []
        while size := int(self._file.readline(), 16):
            chunks.append(self._file.read(size))
            self._file.readline()
        self._file.readline()
        return b"".join(chunks)


def is_listening(port: int) -> bool:
    """Whether somebody takes connections there."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True
