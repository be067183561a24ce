"""Addresses to listen on: as users write them, and in the file that names the one bound."""

from __future__ import annotations

import contextlib
import re
from typing import TYPE_CHECKING

from trainwarden.errors import UsageError
from trainwarden.record.folder import replace_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


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
