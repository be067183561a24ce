"""Sockets that systemd opened for this process (`sd_listen_fds(3)`), so that no client is refused while it restarts."""

from __future__ import annotations

import os
import socket
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import MutableMapping

_FIRST = 3


def inherited_listeners(environment: MutableMapping[str, str] | None = None) -> list[socket.socket]:
    """Return the listening sockets that were passed, and take them out of the environment of child processes.

    Raises:
        ValueError: none were passed to this process, or one does not listen for streams.
    """
    environment = os.environ if environment is None else environment
    process, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if process != str(os.getpid()) or not count.isdecimal() or int(count) == 0:
        raise ValueError("systemd passed no socket to this process")
    found = []
    for number in range(_FIRST, _FIRST + int(count)):
        os.set_inheritable(number, False)
        listener = socket.socket(fileno=number)
        found.append(listener)
        is_stream = listener.type == socket.SOCK_STREAM
        if not is_stream or not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            raise ValueError(f"socket {number} of systemd's does not listen for streams")
        listener.setblocking(False)
    return found
