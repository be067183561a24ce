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
    seconds = from_own_form(text)
    return _from_any_form(text) if seconds is None else seconds


def from_own_form(text: str) -> float | None:
    """Return the time if `text` is of the form that `to_iso` writes; needs neither `datetime` nor an expression."""
    if len(text) != 27 or text[19] != "." or text[26] != "Z":
        return None
    start = text[:17]
    minute = _minutes.get(start)
    if minute is None:
        minute = _minute_of(start)
        if minute is None:
            return None
        if len(_minutes) >= _MAX_MINUTES:
            _minutes.clear()
        _minutes[start] = minute
    micros = text[17:19] + text[20:26]
    if not micros.isascii() or not micros.isdigit() or micros[0] > "5":
        return None
    return (minute * 60_000_000 + int(micros)) / 1_000_000


# Of a minute, as `YYYY-MM-DDTHH:MM:`, the minutes since 1970: most times of thousands of records are of the last ones.
_minutes: dict[str, int] = {}
_MAX_MINUTES = 1000


def _minute_of(text: str) -> int | None:
    """Return the minutes from 1970 to a minute `YYYY-MM-DDTHH:MM:`; None for another form, and for a leap day."""
    if text[4::3] != "--T::" or not text.isascii():
        return None
    digits = text[:4] + text[5:7] + text[8:10] + text[11:13] + text[14:16]
    days = _days_of(digits[:8]) if digits.isdigit() else None
    if days is None or digits[8:10] > "23" or digits[10:] > "59":
        return None
    return (days * 24 + int(digits[8:10])) * 60 + int(digits[10:])


def _days_of(digits: str) -> int | None:
    """Return the days from 1970 to a date YYYYMMDD; None for a leap day, and for no date."""
    year, month, day = int(digits[:4]), int(digits[4:6]), int(digits[6:])
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= 31:
        return None
    if day > 28 and (month == 2 or day > 30 + (month in _LONG_MONTHS)):
        # A leap day, or none at all.
        return None
    # Days of the Gregorian calendar, with years that begin in March so that a leap day is the last of its year.
    year, month = (year, month - 3) if month > 2 else (year - 1, month + 9)
    return 365 * year + year // 4 - year // 100 + year // 400 + (153 * month + 2) // 5 + day - 719469


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
