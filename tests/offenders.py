"""How a test that reads many rules, pages or panels in one pass reports what is wrong with them."""

from __future__ import annotations

from collections.abc import Callable, Iterable


def assert_none(offenders: Iterable[str]) -> None:
    """Fail with one line for each offender: the file, what of it is wrong, and why."""
    __tracebackhide__ = True
    found = list(offenders)
    assert not found, "\n".join([f"{len(found)} found", *found])


def raised(error: type[Exception], do: Callable[[], object]) -> str:
    """Return the message of the error that a call raises; an empty one where it raises none."""
    try:
        do()
    except error as found:
        return str(found)
    return ""
