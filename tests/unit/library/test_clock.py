"""Times are written one way and read in every ISO 8601 way, on every Python."""

from datetime import datetime, timezone

from hypothesis import given
from hypothesis import strategies as st

from tests.cases import cases
from trainwarden.record.clock import from_iso, to_iso

_MOMENT = 1754335425.0  # 2025-08-04 19:23:45 UTC


@cases(
    "text",
    [
        "2025-08-04T19:23:45Z",
        "2025-08-04T19:23:45",
        "2025-08-04 19:23:45z",
        "2025-08-04T19:23:45.000Z",
        "2025-08-04T19:23:45.0000001+00:00",
        "2025-08-04T21:23:45+02:00",
        "2025-08-04T14:53:45-0430",
    ],
)
def test_every_spelling_of_a_moment_reads_as_that_moment(text: str) -> None:
    assert from_iso(text) == _MOMENT


@cases("text", ["", "yesterday", "2025-13-01T00:00:00Z", "2025-08-04", "1754335425", "٢٠٢٥-08-04T19:23:45Z" + "x"])
def test_what_is_no_time_reads_as_none(text: str) -> None:
    assert from_iso(text) is None


def test_a_written_time_has_microseconds_and_z_and_reads_back() -> None:
    assert to_iso(_MOMENT + 0.25) == "2025-08-04T19:23:45.250000Z"
    assert from_iso(to_iso(_MOMENT + 0.25)) == _MOMENT + 0.25


@given(st.datetimes())
def test_our_own_form_reads_as_datetime_reads_it(moment: datetime) -> None:
    text = moment.isoformat(timespec="microseconds") + "Z"
    assert from_iso(text) == moment.replace(tzinfo=timezone.utc).timestamp()


@cases("day", ["2025-02-29", "2025-04-31", "2025-00-10", "2025-01-32", "0000-01-01", "2025-06-00"])
def test_a_day_that_no_month_has_is_no_time(day: str) -> None:
    assert from_iso(f"{day}T00:00:00.000000Z") is None
    assert from_iso("2024-02-29T00:00:00.000000Z") == 1709164800.0


@cases("time", ["24:00:00.000000", "00:60:00.000000", "00:00:60.000000"])
def test_a_time_that_no_day_has_is_no_time(time: str) -> None:
    assert from_iso(f"2025-08-04T{time}Z") is None


def test_thousands_of_minutes_are_each_read_for_themselves() -> None:
    minutes = [_MOMENT + 60 * number + 0.25 for number in range(3000)]
    assert [from_iso(to_iso(minute)) for minute in minutes + minutes] == minutes + minutes
