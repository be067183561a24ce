"""Times as the run record holds them; in memory a time is a float, Unix seconds."""

from __future__ import annotations

import re
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta

# Compiled when it is first needed, and `datetime` loaded then: shell commands write times and read none.
_ISO_8601 = r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?\s*(Z|[+-]\d\d(?::?\d\d)?)?"


def to_iso(seconds: float) -> str:
    """ISO 8601 in UTC with microseconds and `Z`.

    Raises:
        ValueError, OverflowError: `seconds` is outside the years 1 to 9999.
    """
    whole = int(seconds // 1)
    micros = round((seconds - whole) * 1_000_000)
    if micros == 1_000_000:
        whole, micros = whole + 1, 0
    try:
        year, month, day, hour, minute, second, *_ = time.gmtime(whole)
    except OSError as error:
        raise OverflowError(f"{seconds!r} seconds are no time") from error
    if not 1 <= year <= 9999:
        raise ValueError(f"the year {year} is out of range")
    return f"{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z"


def from_iso(text: str) -> float | None:
    """Unix seconds of any ISO 8601 time, with or without zone (none means UTC); None if `text` is no such time."""
    from datetime import datetime, timezone  # noqa: PLC0415  # see above

    match = re.fullmatch(_ISO_8601, text.strip(), re.IGNORECASE)
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
    from datetime import timedelta  # noqa: PLC0415  # see above

    if zone is None or zone in "Zz":
        return timedelta()
    digits = zone[1:].replace(":", "").ljust(4, "0")
    offset = timedelta(hours=int(digits[:2]), minutes=int(digits[2:]))
    return -offset if zone[0] == "-" else offset
