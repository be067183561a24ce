"""Typed parameters of commands: what a value from a log must look like before it becomes part of an argument."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainwarden.yaml_file import YamlValue

TYPES = ("int", "float", "path", "identifier")
IDENTIFIER = "[A-Za-z0-9][A-Za-z0-9._-]{0,127}"
# A script that forgets the quotes around such a path is still right.
_PATH = re.compile(r"/[A-Za-z0-9._/=+,@%:-]{0,1023}")
_INT = re.compile(r"[+-]?[0-9]{1,18}")
_FLOAT = re.compile(r"[+-]?(?:[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18})(?:[eE][+-]?[0-9]{1,3})?")
_SHOWN = 80


class WrongValue(ValueError):
    """A value does not have its parameter's type; the message names the parameter, the value and what was expected."""


@dataclass(frozen=True)
class Parameter:
    """One parameter of an action.

    Attributes:
        name: of the field of an event or signal that it takes its value from.
        type: one of TYPES.
        least: of numbers.
        most: of numbers.
        under: folders, one of which a path must be in, wherever links lead.
        pattern: of a whole identifier.
    """

    name: str
    type: str
    least: float = 0.0
    most: float = math.inf
    under: tuple[str, ...] = ()
    pattern: str = IDENTIFIER

    def checked(self, value: str) -> str:
        """Return the text that stands for the value in an argument.

        Raises:
            WrongValue: it is not of this type.
        """
        if self.type in {"int", "float"}:
            return self._number(value)
        if self.type == "path":
            return self._path(value)
        if not re.fullmatch(self.pattern, value, re.ASCII):
            raise self._wrong(value, f"an identifier that matches {self.pattern}")
        return value

    def _number(self, value: str) -> str:
        text = value.strip()
        if not (_INT if self.type == "int" else _FLOAT).fullmatch(text):
            raise self._wrong(value, f"an {self.type}" if self.type == "int" else "a float")
        number = int(text) if self.type == "int" else float(text)
        if not self.least <= number <= self.most:
            raise self._wrong(value, f"{self.least:g} to {self.most:g}")
        return str(number)

    def _path(self, value: str) -> str:
        if not _PATH.fullmatch(value):
            raise self._wrong(value, "an absolute path of letters, digits and . _ / = + , @ % : -")
        place = os.path.realpath(value)
        for root in self.under:
            real = os.path.realpath(root)
            if place == real or place.startswith(real.rstrip("/") + "/"):
                if not _PATH.fullmatch(place):
                    raise self._wrong(value, "a link to a path of the same characters")
                return place
        raise self._wrong(value, f"a path under {' or '.join(self.under)}")

    def _wrong(self, value: str, expected: str) -> WrongValue:
        return WrongValue(f"{self.name}: {value[:_SHOWN]!r}, expected {expected}")


def read_parameter(name: str, entry: YamlValue) -> Parameter:
    """Return the parameter that an entry of the configuration declares; raises `UsageError`."""
    keys = entry.mapping(("type", "min", "max", "under", "pattern"))
    if "type" not in keys:
        raise entry.wrong(f"a type, one of {', '.join(TYPES)}")
    kind = keys["type"].scalar()
    if kind not in TYPES:
        raise keys["type"].wrong(f"one of {', '.join(TYPES)}")
    allowed = {"int": {"min", "max"}, "float": {"min", "max"}, "path": {"under"}, "identifier": {"pattern"}}[kind]
    for key in keys.keys() - allowed - {"type"}:
        raise keys[key].wrong(f"no such key for the type {kind}")
    if kind == "path" and "under" not in keys:
        raise entry.wrong("under, the folders that the path may be in")
    under = tuple(_folder(each) for each in keys["under"].scalars("a list of folders")) if "under" in keys else ()
    return Parameter(
        name,
        kind,
        _bound(keys.get("min"), 0.0),
        _bound(keys.get("max"), math.inf),
        under,
        _pattern(keys["pattern"]) if "pattern" in keys else IDENTIFIER,
    )


def _folder(entry: YamlValue) -> str:
    if not entry.text.startswith("/") or os.path.realpath(entry.text) == "/":
        raise entry.wrong("an absolute path of a folder other than /")
    return entry.text


def _bound(entry: YamlValue | None, default: float) -> float:
    if entry is None:
        return default
    try:
        number = float(entry.scalar())
    except ValueError:
        raise entry.wrong("a number") from None
    if math.isnan(number):
        raise entry.wrong("a number")
    return number


def _pattern(entry: YamlValue) -> str:
    text = entry.scalar()
    try:
        pattern = re.compile(text, re.ASCII)
    except (re.error, OverflowError, RecursionError):
        raise entry.wrong("a regular expression") from None
    if any(pattern.fullmatch(each) for each in ("-x", "a b", "a\nb", "")):
        raise entry.wrong("a pattern of identifiers: none that is empty, begins with - or holds white space")
    return text
