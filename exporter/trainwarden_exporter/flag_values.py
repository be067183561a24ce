"""The values that flags take."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from trainwarden.server.address import parse_address


def listen_address(text: str) -> tuple[str, int]:
    """Parse host:port; an IPv6 address stands in brackets."""
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


def telemetry_path(text: str) -> str:
    """Parse a path of plain characters that no other page has."""
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", text) or text in {"/-/healthy", "/-/ready"}:
        raise argparse.ArgumentTypeError(f"{text!r} is no path for metrics: expected one such as /metrics")
    return text


def some_name(text: str) -> str:
    """Parse a name: any text but none."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is no name: expected at least one character")
    return text


def some_path(text: str) -> Path:
    """Parse a path; an empty one, as of a variable that is not set, would be the folder of the start."""
    if not text.strip():
        raise argparse.ArgumentTypeError(f"{text!r} is no path: expected at least one character")
    return Path(text)


def count(text: str) -> int:
    """Parse a whole number."""
    if not re.fullmatch(r"\d{1,9}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is no count: expected a whole number from 0 on")
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
