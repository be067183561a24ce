"""A mail server on loopback that keeps each message."""

from __future__ import annotations

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email import message_from_bytes, policy
from email.message import EmailMessage


@dataclass
class SmtpSink:
    """Where it listens, and what it took in."""

    address: str = ""
    messages: list[EmailMessage] = field(default_factory=list)


@contextmanager
def smtp_sink() -> Iterator[SmtpSink]:
    """Without TLS and without passwords: Alertmanager offers its password to a server that asks for one."""
    sink = SmtpSink()

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            self.wfile.write(b"220 sink\r\n")
            while command := self.rfile.readline().strip().upper():
                if command == b"DATA":
                    self.wfile.write(b"354 go on\r\n")
                    lines = []
                    while (line := self.rfile.readline()).strip() != b".":
                        lines.append(line.removeprefix(b"."))
                    message = message_from_bytes(b"".join(lines), policy=policy.default)
                    assert isinstance(message, EmailMessage)
                    sink.messages.append(message)
                self.wfile.write(b"221 bye\r\n" if command == b"QUIT" else b"250 ok\r\n")
                if command == b"QUIT":
                    return

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        sink.address = f"127.0.0.1:{server.server_address[1]}"
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield sink
        finally:
            server.shutdown()
            thread.join()
