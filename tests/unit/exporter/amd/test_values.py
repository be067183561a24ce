"""Values of amdsmi, blanks among them."""

from __future__ import annotations

from typing import Any

from tests.cases import cases
from trainwarden_exporter.collectors.gpu.amdsmi.values import celsius, generation, hertz, number, ratio, text, watts

NOTHING = ["N/A", None, "", True, -1, 0xFFFFFFFF, 0xFFFFFFFFFFFFFFFF, [1]]


@cases("value", NOTHING)
def test_what_is_no_number_is_none(value: Any) -> None:
    assert number(value) is None
    assert [read(value) for read in (ratio, celsius, hertz, watts, generation)] == [None] * 5


@cases("read", [ratio, celsius, hertz, watts, generation])
def test_all_bits_of_sixteen_are_no_value(read: Any) -> None:
    assert read(0xFFFF) is None or read is celsius


def test_what_is_a_value_has_its_base_unit() -> None:
    assert (number(0), number(65536)) == (0, 65536)
    assert (ratio(0), ratio(100), ratio(101)) == (0, 1, None)
    assert (celsius(71), celsius(71_000), celsius(0)) == (71, 71, None)
    assert hertz(2100) == 2.1e9
    assert watts("N/A", 640, 1) == 640
    assert watts(0, "N/A") is None, "a GPU that draws nothing has not been asked yet"
    assert (generation(32000), generation(16000), generation(1)) == (5, 4, None)
    assert (text("N/A"), text(" x "), text(b"y")) == ("", "x", "y")
