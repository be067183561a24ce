"""A line is strict JSON of bounded size, for any value."""

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np

from tests.cases import cases
from trainwarden.record.lines import MAX_LINE, encode_line


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("not to be asked")


def _nested(depth: int) -> Any:
    value: Any = "bottom"
    for _ in range(depth):
        value = [value, {"again": value}] if depth < 15 else {"deeper": value}
    return value


def _refuse(name: str) -> None:
    raise AssertionError(f"{name} is not strict JSON")


def _read(line: bytes) -> dict[str, Any]:
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    document: dict[str, Any] = json.loads(line, parse_constant=_refuse)
    return document


ODD: dict[str, tuple[Any, Any]] = {
    "NaN": (math.nan, None),
    "infinity": (-math.inf, None),
    "a number of numpy": (np.float32(0.5), 0.5),
    "NaN of numpy": (np.float64("nan"), None),
    "a whole number of numpy": (np.int64(7), 7),
    "an array": (np.zeros((2, 2)), None),
    "a truth": (True, True),
    "a huge number": (10**400, None),
    "a large number": (2**80, float(2**80)),
    "a decimal": (Decimal("1.5"), 1.5),
    "a path": (Path("/a/b"), "/a/b"),
    "bytes that are not UTF-8": (b"a\xff", "a�"),
    "a lone surrogate": ("a\udc80", "a?"),
    "a line break": ("a\nb\u2028c", "a\nb\u2028c"),
    "what cannot be printed": (Hostile(), "Hostile"),
    "a set": ({3}, [3]),
    "keys of all kinds": ({1: {None: "x"}}, {"1": {"None": "x"}}),
}


@cases("case", ODD)
def test_odd_values_become_what_json_can_hold(case: str) -> None:
    value, said = ODD[case]
    assert _read(encode_line({"data": {"value": value}})) == {"data": {"value": said}}


HUGE: dict[str, Any] = {
    "a long text": "begin" + "x" * 10**6 + "end",
    "a long text that takes twelve bytes for each character": "\U0001f525" * 10**6,
    "many texts": ["y" * 1000] * 10_000,
    "many entries": {str(number): number for number in range(100_000)},
    "long keys": {"k" * 10**6 + str(number): number for number in range(3)},
    "a deep nest": _nested(200),
    "a wide and deep nest": _nested(14),
    "many objects with many texts": [{str(at): "\u2028" * 5000 for at in range(20)} for _ in range(20)],
}


@cases("case", HUGE)
def test_what_is_too_long_is_shortened_and_stays_valid(case: str) -> None:
    line = encode_line({"timestamp": "2026-01-01T00:00:00.000000Z", "event_type": "big", "data": {"value": HUGE[case]}})
    assert len(line) <= MAX_LINE
    said = _read(line)
    assert (said["timestamp"], said["event_type"]) == ("2026-01-01T00:00:00.000000Z", "big")
    assert "data" in said


def test_a_long_text_keeps_its_beginning_and_its_end() -> None:
    said = _read(encode_line({"message": HUGE["a long text"]}))["message"]
    assert said.startswith("beginxxx")
    assert said.endswith("xxxend")
    assert "characters left out" in said
    assert len(said) > 10_000


def test_a_document_of_huge_keys_and_texts_throughout_still_gives_a_line() -> None:
    line = encode_line({"\u2028" * 2000 + str(at): {"x": "\u2028" * 2000} for at in range(400)})
    assert len(line) <= MAX_LINE
    _read(line)
