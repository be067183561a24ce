"""The values that flags take."""

from __future__ import annotations

import argparse
import re

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
_DURATION = re.compile(r"(?P<number>\d{1,9}(?:\.\d{1,9})?)(?P<unit>|ms|s|m|h)")


def listen_address(text: str) -> tuple[str, int]:
    """Parse host:port; an IPv6 address stands in brackets."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no address: expected host:port, :port or [IPv6]:port")
    return host, int(port)


def telemetry_path(text: str) -> str:
    """Parse a path of plain characters that no other page has."""
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", text) or text in {"/-/healthy", "/-/ready"}:
        raise argparse.ArgumentTypeError(f"{text!r} is no path for metrics: expected one such as /metrics")
    return text


def duration(text: str) -> float:
    """Parse a duration above zero into seconds: 2, 2s, 500ms, 1m, 1h."""
    match = _DURATION.fullmatch(text)
    seconds = float(match["number"]) * _UNITS[match["unit"]] if match else 0.0
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: expected one above zero, such as 2s, 500ms or 1m")
    return seconds


def some_name(text: str) -> str:
    """Parse a name: any text but none."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is no name: expected at least one character")
    return text


def count(text: str) -> int:
    """Parse a whole number."""
    if not re.fullmatch(r"\d{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no count: expected a whole number")
    return int(text)


def positive_count(text: str) -> int:
    """Parse a whole number above zero."""
    if not re.fullmatch(r"\d{1,9}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no count: expected a whole number above zero")
    return int(text)


def size(text: str) -> int:
    """Parse a size into bytes: 65536, 512KiB, 64MiB, 1GiB."""
    match = re.fullmatch(r"(\d{1,12})(KiB|MiB|GiB|)", text)
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no size: expected one such as 512KiB, 64MiB or 1GiB")
    return int(match[1]) * {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}[match[2]]
