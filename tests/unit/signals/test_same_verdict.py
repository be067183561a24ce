"""An exception, its traceback in the output of a command, and the same in a scanned log have one name."""

from __future__ import annotations

import traceback
from functools import cache

import pytest

from tests.unit.library.test_classify_messages import ALL, raised_as
from trainwarden.classify import classify_exception
from trainwarden.failures.records import cause_in
from trainwarden.signals.diagnosis import diagnose
from trainwarden.signals.pack import load_pack
from trainwarden.signals.scanner import Scanner

RAISED = [(kind, message) for kind, message, _ in ALL if kind != "str"]
HEAD = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    main()\n'


@cache
def scanner() -> Scanner:
    return Scanner(load_pack().signals)


@pytest.mark.parametrize(("kind", "message"), RAISED, ids=[str(number) for number in range(len(RAISED))])
def test_an_exception_and_its_traceback_are_the_same_failure(kind: str, message: str) -> None:
    exc = raised_as(kind, message)
    printed = HEAD + "".join(traceback.format_exception_only(type(exc), exc))
    cause = cause_in(printed)
    reader = scanner()
    reader.restore({"offset": 0, "line": 1, "skipping": False})
    verdict = diagnose(reader.feed(printed.encode()) + reader.finish())
    expected = classify_exception(exc).slug
    assert (cause and cause.failure, verdict and verdict.failure) == (expected, expected)
