"""The numbers in the rules that a team may change: where they stand, what they may be, and how they are put in."""

from __future__ import annotations

import re
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

from trainwarden.duration import parse_duration
from trainwarden.errors import UsageError
from trainwarden.yaml_file import YamlValue, read_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from trainwarden.rules.files import RuleFile

# What a value of each unit looks like, for errors.
UNITS = {
    "seconds": "seconds, or a duration such as 10m",
    "duration": "a duration such as 5m",
    "ratio": "a number",
    "count": "a whole number",
    "celsius": "degrees Celsius",
    "watts": "watts",
    "bytes": "bytes",
    "bytes_per_second": "bytes per second",
    "per_second": "a number per second",
    "price": "a price in US dollars",
    "factor": "a factor",
}
_FIELDS = ("default", "unit", "least", "most", "meaning", "history", "fires")
# Without leading zeros: to Prometheus 0300 is octal.
_NUMBER = re.compile(r"(?:0|[1-9]\d{0,14})(?:\.\d{1,9})?", re.ASCII)
# As Prometheus reads one: each unit once at most, from the longest on.
DURATION = re.compile(
    r"(?=\d)" + "".join(rf"(?:\d{{1,9}}{unit})?" for unit in ("y", "w", "d", "h", "m", "s", "ms")), re.ASCII
)
# A wait of longer is a mistake, and Prometheus refuses one of centuries.
LONGEST_SECONDS = 365 * 86400.0
# A number at the end of its line; what closes after it is not of it.
_MARKER = re.compile(
    r"(?<![\w.:])(?P<number>\d[\w.]*)(?P<closing>[)\]},]*)(?P<blank>[ \t]+)# values: (?P<name>[^\s]+)[ \t]*$",
    re.MULTILINE,
)
_ANY_MARKER = re.compile(r"#\s*values?:\s*(\S+)", re.IGNORECASE)


@dataclass(frozen=True)
class Value:
    """A number in the rules.

    Attributes:
        default: as the rules have it.
        unit: one of `UNITS`.
        least, most: what it may be, both included.
        meaning: one line.
        history: a query for what is compared with the value, from which `rules suggest` proposes one; empty if none.
        is_ceiling: whether what is above it fires; else what is below.
    """

    name: str
    default: str
    unit: str
    least: float
    most: float
    meaning: str
    history: str = ""
    is_ceiling: bool = True

    @property
    def expected(self) -> str:
        """What a value must look like."""
        bounds = f" of at least {self.least:g}" if self.least else ""
        if self.most == LONGEST_SECONDS:
            bounds += ", of a year at most"
        elif self.most != inf:
            bounds = f" from {self.least:g} to {self.most:g}"
        return UNITS[self.unit] + bounds

    @staticmethod
    def size(text: str) -> float:
        """Return the number; seconds for a duration."""
        return parse_duration(text) if DURATION.fullmatch(text) else float(text)

    def text(self, given: YamlValue) -> str:
        """Return a team's value as it stands in a rule. Raises `UsageError`."""
        text = given.scalar(self.expected)
        is_duration = bool(DURATION.fullmatch(text))
        try:
            if self.unit == "duration":
                fits = is_duration
            elif self.unit == "seconds" and is_duration:
                fits, text = True, f"{parse_duration(text):g}"
            else:
                fits = bool(_NUMBER.fullmatch(text)) and (self.unit != "count" or "." not in text)
            fits = fits and self.least <= self.size(text) <= self.most
        except ValueError:  # a duration of zero
            fits = False
        if not fits:
            raise given.wrong(self.expected)
        return text


def read_values(file: Path) -> dict[str, Value]:
    """Return the values that `rules/values.yml` lists, by name."""
    listed = read_yaml(file).mapping(["values"]).get("values")
    return {name: _value(name, entry) for name, entry in (listed.mapping() if listed else {}).items()}


def _value(name: str, entry: YamlValue) -> Value:
    fields = entry.mapping(_FIELDS)
    for needed in ("default", "unit", "meaning"):
        if needed not in fields:
            raise UsageError(f"{entry.file}: line {entry.line}: key {entry.key}: no {needed}, expected one")
    unit = fields["unit"].scalar()
    if unit not in UNITS:
        raise fields["unit"].unknown(unit, UNITS)
    least = Value.size(fields["least"].scalar()) if "least" in fields else 0.0
    most = {"ratio": 1.0, "seconds": LONGEST_SECONDS, "duration": LONGEST_SECONDS}.get(unit, inf)
    if "most" in fields:
        most = Value.size(fields["most"].scalar())
    history = fields["history"].scalar("a query") if "history" in fields else ""
    fires = fields["fires"].scalar() if "fires" in fields else "above"
    if fires not in {"above", "below"}:
        raise fields["fires"].wrong("above or below")
    value = Value(
        name,
        fields["default"].scalar(),
        unit,
        least,
        most,
        fields["meaning"].scalar(),
        history,
        is_ceiling=fires == "above",
    )
    if value.text(fields["default"]) != value.default:
        raise fields["default"].wrong("the default as it stands in the rules")
    return value


def check_markers(files: Iterable[RuleFile], values: Mapping[str, Value]) -> None:
    """Raise `UsageError` unless each marker has a value, each value a marker, and the rules hold the defaults."""
    unused = dict(values)
    for file in files:
        for number, line in enumerate(file.text.splitlines(), 1):
            named = _ANY_MARKER.search(line)
            if named is None or line.lstrip().startswith("#"):
                continue
            place = f"{file.name}: line {number}"
            marker = _MARKER.search(line)
            if marker is None:
                raise UsageError(f"{place}: {line.strip()!r}, expected a number and `# values: NAME` at the end")
            value = values.get(marker["name"])
            if value is None:
                raise UsageError(f"{place}: values.yml has no {marker['name']}, expected it there")
            if marker["number"] != value.default:
                raise UsageError(f"{place}: {marker['number']}, expected {value.default}, the default of {value.name}")
            unused.pop(value.name, None)
    if unused:
        raise UsageError(f"values.yml: {', '.join(sorted(unused))}: no rule holds it, expected `# values: NAME` in one")


def home(files: Iterable[RuleFile], name: str) -> list[str]:
    """Return the names of the rules, alerts or recordings, in which a value stands."""
    homes = []
    for file in files:
        rule = ""
        for line in file.text.splitlines():
            if match := re.match(r"\s*- (?:alert|record): *(\S+)", line):
                rule = match[1]
            marker = _MARKER.search(line)
            if marker is not None and marker["name"] == name:
                homes.append(rule)
    return homes


def substitute(text: str, changed: Mapping[str, str]) -> str:
    """Return the text of a rule file with other numbers; all else stays as it is, byte for byte."""
    return _MARKER.sub(
        lambda match: (
            f"{changed.get(match['name'], match['number'])}{match['closing']}{match['blank']}# values: {match['name']}"
        ),
        text,
    )


def table(values: Sequence[Value]) -> str:
    """Return the values as a table in Markdown."""
    rows = "".join(f"| `{each.name}` | {each.default} | {each.unit} | {each.meaning} |\n" for each in values)
    return f"| value | default | unit | meaning |\n|---|---|---|---|\n{rows}"
