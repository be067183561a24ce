"""An exception, its traceback in the output of a command, and the same in a scanned log have one name."""

from __future__ import annotations

import traceback

from tests.cases import cases
from tests.unit.library.test_classify_messages import ALL, raised_as
from tests.unit.signals.verdicts import in_log, in_output
from trainwarden.classify import classify_exception

RAISED = [(kind, message) for kind, message, _ in ALL if kind != "str"]
HEAD = 'Traceback (most recent call last):\n  File "train.py", line 1, in <module>\n    main()\n'


@cases(("kind", "message"), RAISED, ids=[str(number) for number in range(len(RAISED))])
def test_an_exception_and_its_traceback_are_the_same_failure(kind: str, message: str) -> None:
    exc = raised_as(kind, message)
    printed = HEAD + "".join(traceback.format_exception_only(type(exc), exc))
    expected = classify_exception(exc).slug
    assert (in_output(printed), in_log(printed)) == (expected, expected)
