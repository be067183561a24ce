"""Addresses to listen on: as users write them, as systemd passes them, and in the file that names the one bound."""

from __future__ import annotations

import contextlib
import os
import re
import socket
from typing import TYPE_CHECKING

from trainwarden.errors import UsageError
from trainwarden.record.folder import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator, MutableMapping
    from pathlib import Path

_FIRST_INHERITED = 3


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port of `host:port`, `:port` or `[IPv6]:port`; raises `ValueError` for anything else."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not re.fullmatch(r"\d{1,5}", port, re.ASCII) or int(port) > 65535:
        raise ValueError(f"{text!r} is no address: expected host:port, :port or [IPv6]:port")
    return host, int(port)


def shown_address(host: str, port: int) -> str:
    """Return `host:port`, an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def inherited_listeners(environment: MutableMapping[str, str] | None = None) -> list[socket.socket]:
    """Return the listening sockets that systemd opened for this process, and take them out of the environment.

    So no client is refused while the process restarts (`sd_listen_fds(3)`); no child process takes them for its own.

    Raises:
        ValueError: none were passed to this process, or one does not listen for streams.
    """
    environment = os.environ if environment is None else environment
    process, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if process != str(os.getpid()) or not count.isdecimal() or int(count) == 0:
        raise ValueError("systemd passed no socket to this process")
    found = []
    for number in range(_FIRST_INHERITED, _FIRST_INHERITED + int(count)):
        os.set_inheritable(number, False)
        listener = socket.socket(fileno=number)
        found.append(listener)
        is_stream = listener.type == socket.SOCK_STREAM
        if not is_stream or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise ValueError(f"socket {number} of systemd's does not listen for streams")
        listener.setblocking(False)
    return found


@contextlib.contextmanager
def port_file(path: Path | None, address: str) -> Iterator[None]:
    """Keep the address of a server in the file of `--web.port-file` while the block lasts; no file if None."""
    if path is None:
        yield
        return
    try:
        replace_file(path, address.encode() + b"\n")
    except OSError as error:
        raise UsageError(f"--web.port-file {path}: {error.strerror}; expected a file in a writable folder") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
