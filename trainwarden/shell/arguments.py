"""The arguments of shell commands: argparse takes as long to import as Python to start."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any


class Misuse(Exception):
    """The arguments are unusable; the message names option, value and what was expected."""


class Help(Exception):
    """`-h` or `--help` is among the arguments."""


class Flag:
    """The type of an option without a value."""


def parse(
    arguments: Sequence[str], types: Mapping[str, Callable[[str], Any] | type[Flag]]
) -> tuple[dict[str, Any], list[str]]:
    """Return the values of options by their names without dashes, and the other arguments.

    `--name value` and `--name=value`; `--` ends the options. An empty value counts as not given: a script passes
    on an empty variable. An option that is given again replaces the value before, or adds to a list.

    Args:
        arguments: of the command.
        types: of the options, by names with dashes; each raises ValueError, with what it expected, for other text.

    Raises:
        Misuse: an option is unknown or lacks a value, or the value is none.
        Help: `-h` or `--help` is among the arguments.
    """
    values: dict[str, Any] = {}
    others: list[str] = []
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        if argument == "--":
            others += rest
            break
        if argument in ("-h", "--help"):
            raise Help
        if not argument.startswith("-") or argument == "-":
            others.append(argument)
            continue
        name, equals, text = argument.partition("=")
        if name not in types:
            raise Misuse(f"{name}: there is no such option; expected one of {', '.join(types)}")
        convert = types[name]
        if convert is Flag:
            values[name[2:]] = True
            continue
        if not equals:
            if not rest:
                raise Misuse(f"{name}: a value was expected")
            text = rest.pop(0)
        if text:
            _add(values, name, text, convert)
    return values, others


def _add(values: dict[str, Any], name: str, text: str, convert: Callable[[str], Any]) -> None:
    try:
        value = convert(text)
    except (ValueError, OverflowError) as error:
        raise Misuse(f"{name} {text[:80]!r}: {error}") from None
    key = name[2:]
    values[key] = {**values.get(key, {}), **value} if isinstance(value, dict) else value


def whole(text: str) -> int:
    """Return a whole number, 0 or more."""
    if text.isascii() and text.isdigit() and len(text) < 19:
        return int(text)
    raise ValueError("a whole number, 0 or more, was expected")


def number(text: str) -> float:
    """Return a number; nan and inf are numbers here."""
    try:
        return float(text)
    except ValueError:
        raise ValueError("a number was expected") from None


def metric(text: str) -> dict[str, float]:
    """Return the name and the number of `NAME=NUMBER`."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise ValueError("NAME=NUMBER was expected")
    return {name[:200]: number(value)}
