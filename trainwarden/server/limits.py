"""What clients of a server may take."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """What clients may take; times are in seconds.

    Attributes:
        connections: at a time, and no more than half of the file descriptors that the process may have; one more costs
            a waiting one its place, or is closed.
        requests: answered at the same time; one more gets 503.
        sending_bytes: of the responses that are being sent, together; beyond it the slowest is cut.
        head_bytes: of a request's line and headers together.
        head_seconds: for the first byte, for a TLS handshake, and for a head from its first byte on.
        body_seconds: for a body.
        send_seconds: for a whole response.
        idle_seconds: between a response and the first byte of the next request. Longer than scrapers keep a connection
            (Prometheus: 5 minutes), for one that is closed at the moment of a request costs a scrape.
    """

    connections: int = 512
    requests: int = 40
    sending_bytes: int = 32 * 2**20
    head_bytes: int = 32768
    head_seconds: float = 20.0
    body_seconds: float = 10.0
    send_seconds: float = 30.0
    idle_seconds: float = 330.0
