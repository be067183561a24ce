"""Options that several commands have, and the variables behind them."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Mapping
from urllib.parse import urlsplit

from trainwarden.duration import parse_duration
from trainwarden.errors import UsageError

_MAX_SECONDS = 366 * 86400.0
GPU_HOUR_DOLLARS = 4.0  # as price.gpu_hour_dollars of rules/values.yml


def parse_minutes(text: str) -> float:
    """Return the seconds of so many minutes, or of a duration with units such as 90s or 1h; raises ValueError."""
    seconds = parse_duration(text, 60.0)
    if seconds > _MAX_SECONDS:
        raise ValueError(text)
    return seconds


def add_stale_argument(parser: argparse.ArgumentParser) -> None:
    """Add --stale-minutes."""
    parser.add_argument(
        "--stale-minutes",
        dest="stale_seconds",
        type=checked(parse_minutes, "minutes above 0, or a duration such as 90s or 1h"),
        metavar="N",
        help="a heartbeat older than this is stale (default: $STALE_MINUTES, else what the record states, else 10)",
    )


def stale_seconds(arguments: argparse.Namespace, settings: Mapping[str, str] = os.environ) -> float | None:
    """Return seconds after which a heartbeat is stale: of --stale-minutes, else STALE_MINUTES; None if neither is set.

    Raises:
        UsageError: STALE_MINUTES is no duration.
    """
    given: float | None = arguments.stale_seconds
    if given is not None:
        return given
    return stale_seconds_of(settings)


def stale_seconds_of(settings: Mapping[str, str]) -> float | None:
    """Return the seconds that STALE_MINUTES states; None if it is not set. Raises UsageError."""
    text = settings.get("STALE_MINUTES")
    try:
        return parse_minutes(text) if text else None
    except ValueError:
        raise UsageError(
            f"STALE_MINUTES={str(text)[:40]!r}: expected minutes above 0, or a duration such as 90s"
        ) from None


def checked(parse: Callable[[str], float], expected: str) -> Callable[[str], float]:
    """Return a type of an option that states what was expected."""

    def check(text: str) -> float:
        try:
            return parse(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text!r}: expected {expected}") from None

    return check


interval_seconds = checked(parse_duration, "a duration such as 30, 30s or 5m")


def service_url(text: str) -> str:
    """Return the address of a service; raise what argparse shows where it is none."""
    url = urlsplit(text)
    try:
        is_one = url.scheme in ("http", "https") and bool(url.hostname) and (url.port or 1) > 0
    except ValueError:
        is_one = False
    if not is_one or url.username is not None:
        raise argparse.ArgumentTypeError("expected http://HOST:PORT, without a password")
    return text


def gpu_count(text: str) -> int:
    """Return a number of GPUs; raise what argparse shows where it is none."""
    number = int(text) if text.isascii() and text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text!r}: expected a whole number, 1 or more")
    return number


def gpu_price(text: str) -> float:
    """Return the price of a GPU hour in dollars; raise what argparse shows where it is none."""
    try:
        price = float(text)
    except ValueError:
        price = -1.0
    if not 0 <= price < 1e6:
        raise argparse.ArgumentTypeError(f"{text!r}: expected dollars, 0 or more")
    return price
