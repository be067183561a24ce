"""Validation errors as lines that a person can act on: key, value, what was expected."""

from __future__ import annotations

from pydantic import ValidationError

_MAX_VALUE = 60


def problems_of(error: ValidationError) -> list[str]:
    """One line per problem, in the order of the input."""
    return [_line(each) for each in error.errors(include_url=False)]


def _line(each: object) -> str:
    assert isinstance(each, dict)  # noqa: S101  # pydantic's ErrorDetails is a dict at run time
    path = ""
    for part in each["loc"]:
        path += f"[{part}]" if isinstance(part, int) else f".{part}" if path else str(part)
    path = path or "the file"
    if each["type"] == "extra_forbidden":
        return f"{path}: unknown key"
    if each["type"] == "missing":
        return f"{path}: missing"
    message = str(each["msg"]).removeprefix("Value error, ").replace("Input should be", "expected", 1)
    if each["type"] == "value_error":
        return f"{path}: {message}"
    value = repr(each["input"])
    if len(value) > _MAX_VALUE:
        value = f"{value[:_MAX_VALUE]}…"
    return f"{path}: {value}: {message}"
