"""Whatever an exception is made of, classifying it neither raises nor takes long."""

import sys
from typing import Any, NoReturn

import pytest

from tests.cases import cases
from trainwarden.classify import classify_exception, classify_message, recovery_suggestion
from trainwarden.failures.chain import text_of


def _refuse(*_: object) -> NoReturn:
    raise RuntimeError("no")


def _leave(*_: object) -> NoReturn:
    sys.exit(3)


class Mute(Exception):
    __str__ = _refuse


class Leaver(Exception):
    __str__ = _leave


class Trickster(Exception):
    """Every attribute of it raises."""

    __cause__: Any = property(_refuse)
    __context__: Any = property(_refuse)
    args: Any = property(_refuse)

    def __getattribute__(self, name: str) -> Any:
        _refuse()


class Text(str):
    """A string whose methods do not work."""

    __slots__ = ()
    lower = __len__ = __getitem__ = __contains__ = _refuse


class Wordy(Exception):
    def __str__(self) -> str:
        return Text("CUDA out of memory. Tried to allocate")


class Path:
    __str__ = _refuse


class Pathless(FileNotFoundError):
    """It is about a path that cannot be printed."""


class Numberless(OSError):
    errno = "two"  # type: ignore[assignment]  # the point of it


class Nameless(Exception):
    __module__ = 3  # type: ignore[assignment]  # the point of it


class Group(Exception):
    exceptions = 7


Group.__name__ = "BaseExceptionGroup"


CASES: dict[str, tuple[BaseException, str]] = {
    "mute": (Mute(), "user_exception"),
    "one that exits when printed": (Leaver(), "user_exception"),
    "one whose attributes raise": (Trickster(), "user_exception"),
    "one whose text does not work": (Wordy(), "cuda_oom"),
    "one whose number is a word": (Numberless(), "user_exception"),
    "one whose path does not work": (Pathless(2, "No such file", Path()), "storage_missing"),
    "one of no module": (Nameless(), "user_exception"),
    "a group without members": (Group(), "user_exception"),
    "text that is not UTF-8": (RuntimeError("\ud800 CUDA out of memory. \x00"), "cuda_oom"),
    "bytes for a text": (RuntimeError(b"\xff\xfe"), "user_exception"),
    "a number of no system": (OSError(10**30, "x"), "user_exception"),
    "bytes for a path": (FileNotFoundError(2, "x", b"\xff/__0_0.distcp"), "ckpt_missing"),
}


@cases("case", CASES)
def test_an_exception_of_whatever_making_is_classified(case: str) -> None:
    error, slug = CASES[case]
    assert classify_exception(error).slug == slug
    assert len(recovery_suggestion(error)) > 30


def test_causes_and_contexts_that_form_a_ring_end() -> None:
    first, second = ValueError(), KeyError()
    first.__cause__, second.__cause__ = second, first
    assert classify_exception(first).slug == "user_exception"
    first.__cause__ = second.__cause__ = None
    first.__suppress_context__ = second.__suppress_context__ = False
    first.__context__, second.__context__ = second, first
    assert classify_exception(first).slug == "user_exception"


def test_a_chain_of_ten_thousand_ends_soon() -> None:
    error: BaseException = MemoryError()
    for _ in range(10_000):
        outer = ValueError()
        outer.__cause__ = error
        error = outer
    assert classify_exception(error).slug == "user_exception"


TEXTS = ("x", "loss ", "loss is ", "gradient norm ", "\n", "checkpoint ", "*** job ", "nccl ", "process 1 has 1 gib ")


# Milliseconds where the work is linear and bounded; minutes where it is not.
@pytest.mark.timeout(20)
@cases("text", TEXTS)
def test_a_message_of_a_million_characters_is_read_at_both_ends(text: str) -> None:
    filling = text * (10**6 // len(text))
    assert classify_message(filling) is None
    assert classify_exception(RuntimeError(filling + " CUDA out of memory. Tried to allocate")).slug == "cuda_oom"
    assert classify_exception(RuntimeError("CUDA out of memory. Tried to allocate " + filling)).slug == "cuda_oom"


def test_of_a_long_message_no_more_than_the_limit_is_looked_at() -> None:
    text = text_of(ValueError("begin" + "x" * 10**6 + "end"), 1000)
    assert len(text) <= 1001
    assert text.startswith("begin")
    assert text.endswith("end")
