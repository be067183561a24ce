"""Times as the run record holds them; in memory a time is a float, Unix seconds."""

from __future__ import annotations

import re
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from datetime import timedelta

# Compiled when first needed, and `datetime` loaded then: shell commands read times of our own form alone.
_ISO_8601 = r"(\d{4})-(\d\d)-(\d\d)[T ](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?\s*(Z|[+-]\d\d(?::?\d\d)?)?"

_LONG_MONTHS = (1, 3, 5, 7, 8, 10, 12)


def to_iso(seconds: float) -> str:
    """Return ISO 8601 in UTC with microseconds and `Z`.

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
    """Return Unix seconds of an ISO 8601 time, with or without zone (none means UTC); None if `text` is none."""
    seconds = _from_own_form(text)
    return _from_any_form(text) if seconds is None else seconds


def _from_own_form(text: str) -> float | None:
    """Return the time if `text` is of the form that `to_iso` writes; needs neither `datetime` nor an expression."""
    if len(text) != 27 or text[4::3][:5] != "--T::" or text[19] != "." or text[26] != "Z" or not text.isascii():
        return None
    digits = text[11:13] + text[14:16] + text[17:19] + text[20:26]
    days = _days_of(text[:10])
    if days is None or not digits.isdigit():
        return None
    hour, minute, second = int(digits[:2]), int(digits[2:4]), int(digits[4:6])
    if hour > 23 or minute > 59 or second > 59:
        return None
    return ((days * 86400 + hour * 3600 + minute * 60 + second) * 1_000_000 + int(digits[6:])) / 1_000_000


# Of a date the days since 1970: the times of thousands of records are of a few days.
_days: dict[str, int] = {}
_MAX_DAYS = 1000


def _days_of(date: str) -> int | None:
    """Return the days from 1970 to a date `YYYY-MM-DD`; None for another form, and for a leap day."""
    days = _days.get(date)
    if days is not None:
        return days
    digits = date[:4] + date[5:7] + date[8:]
    if not digits.isdigit():
        return None
    year, month, day = int(digits[:4]), int(digits[4:6]), int(digits[6:])
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    if day > 28 and (month == 2 or day > 30 + (month in _LONG_MONTHS)):
        # A leap day, or none at all.
        return None
    # Days of the Gregorian calendar, with years that begin in March so that a leap day is the last of its year.
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    days = 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719469
    if len(_days) < _MAX_DAYS:
        _days[date] = days
    return days


def _from_any_form(text: str) -> float | None:
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
