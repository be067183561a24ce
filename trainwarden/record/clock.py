"""Times as the run record holds them; in memory a time is a float, Unix seconds."""

import re
from datetime import datetime, timedelta, timezone

_ISO_8601 = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?\s*(Z|[+-]\d\d(?::?\d\d)?)?", re.IGNORECASE
)


def to_iso(seconds: float) -> str:
    """ISO 8601 in UTC with microseconds and `Z`.

    Raises:
        ValueError, OverflowError: `seconds` is outside the years 1 to 9999.
    """
    return datetime.fromtimestamp(seconds, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def from_iso(text: str) -> float | None:
    """Unix seconds of any ISO 8601 time, with or without zone (none means UTC); None if `text` is no such time."""
    match = _ISO_8601.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    micros = int((fraction or "0")[:6].ljust(6, "0"))
    try:
        moment = datetime(
            int(year), int(month), int(day), int(hour), int(minute), int(second or 0), micros, tzinfo=timezone.utc
        )
        return (moment - _offset(zone)).timestamp()
    except (ValueError, OverflowError):
        return None


def _offset(zone: str | None) -> timedelta:
    if zone is None or zone in "Zz":
        return timedelta()
    digits = zone[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -offset if zone[0] == "-" else offset
