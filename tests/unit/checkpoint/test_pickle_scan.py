"""Pickles are read by their opcodes: nothing in them is called, and nothing in them grows."""

import contextlib
import pickle
import random
from pathlib import Path

import pytest

from tests.cases import cases
from trainwarden.checkpoint.contents import DamagedFile
from trainwarden.checkpoint.pickle_scan import key_values
from trainwarden.deadline import Deadline, DeadlineExceeded

KEYS = {*"abcdefghi", "k" * 300, "relative_path", "key 7"}


def _pairs(data: bytes) -> list[tuple[str, object]]:
    return list(key_values(data, KEYS, Deadline(30)))


@cases("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_what_follows_a_text_is_found_in_every_protocol(protocol: int) -> None:
    values = {"a": 1, "b": 300, "c": 70_000, "d": -5, "e": 2**40, "f": True, "g": False, "h": "text", "i": "a"}
    said = _pairs(pickle.dumps([values, None, 1.5, b"x", {"a": 2}, ("k" * 300, 7)], protocol=protocol))
    for key, value in {**values, "k" * 300: 7}.items():
        assert (key, value) in said
    assert ("a", 2) in said


class _Calls:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[object, ...]]:
        return Path.touch, (self.path,)


def test_nothing_in_a_pickle_is_called(tmp_path: Path) -> None:
    data = pickle.dumps({"relative_path": "x", "bad": _Calls(tmp_path / "called")})
    assert ("relative_path", "x") in _pairs(data)
    assert not (tmp_path / "called").exists()
    pickle.loads(data)
    assert (tmp_path / "called").exists(), "it would have been, had it been unpickled"


@cases(
    "bomb",
    [
        b"\x80\x04r\xff\xff\xff\xff.",  # a memo of four thousand million places
        b"\x80\x04\x8e" + b"\xff" * 8 + b".",  # bytes without end
        b"\x80\x04X\xff\xff\xff\x7ftext.",
        b"\x80\x04T\xff\xff\xff\xfftext.",  # a negative length
        b"\x80\x04" + b"(" * 100_000,
        b"\xfe",
        b"cos\nsystem",
        b"",
    ],
)
def test_what_lies_about_lengths_is_cut_off_and_no_trouble(bomb: bytes) -> None:
    if bomb.startswith(b"\x80\x04r"):
        assert _pairs(bomb) == []
    else:
        with pytest.raises(DamagedFile):
            _pairs(bomb)


def test_a_pickle_cut_off_anywhere_is_noticed() -> None:
    data = pickle.dumps({f"key {number}": number for number in range(50)})
    for length in range(len(data)):
        with pytest.raises(DamagedFile):
            _pairs(data[:length])


def test_noise_is_damaged_or_has_a_reading_and_raises_nothing_else() -> None:
    source = random.Random(7)
    sound = 0
    for _ in range(2000):
        with contextlib.suppress(DamagedFile):
            _pairs(source.randbytes(60))
            sound += 1
    assert sound < 2000


def test_it_ends_in_time() -> None:
    with pytest.raises(DeadlineExceeded):
        list(key_values(b"\x80\x04" + b"0" * 10**6, KEYS, Deadline(0)))
