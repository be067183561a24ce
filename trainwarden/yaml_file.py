"""The YAML files of users: configuration, web configuration, signal packs and restart policies.

Each value keeps its file, line and key, so that an error names them. What a file may cost is bounded: its size, how
deep it nests, and how many values there are once aliases are expanded. A duplicate key is an error, not the last one.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainwarden.duration import parse_duration
from trainwarden.errors import UsageError
from trainwarden.regular_file import read_regular_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping
    from pathlib import Path

MAX_BYTES = 2**20
MAX_DEPTH = 20
# A few lines of aliases of aliases expand to millions of values.
MAX_VALUES = 10_000
# No file name can hold these.
_UNUSABLE = re.compile("[\0\ud800-\udfff]")
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_PREFIX = "tag:yaml.org,2002:"
# `=` and a `<<` that is no key have tags of their own, and no other meaning than their text.
_SCALARS = {"null", "bool", "int", "float", "binary", "timestamp", "str", "value", "merge"}


@dataclass(frozen=True)
class YamlValue:
    """One value of a file.

    Attributes:
        line: where its key stands, or the item of a list begins; counted from 1.
        key: its whole name, such as `web.listen-address[1]`; empty for the whole file.
        kind: `text` (any scalar), `list`, `mapping` or `nothing` (null).
        text: a scalar as it is written, before YAML's rules make a number or a date of it.
        tag: what YAML's rules make of a scalar: `int`, `float`, `bool`, `str`, …
    """

    file: Path
    line: int
    key: str
    kind: str
    text: str = ""
    tag: str = "str"
    items: tuple[YamlValue, ...] = ()
    entries: Mapping[str, YamlValue] = field(default_factory=dict)

    @property
    def place(self) -> str:
        """`file:line`."""
        return f"{self.file}:{self.line}"

    def wrong(self, expected: str, shown: str | None = None) -> UsageError:
        """Return the error that names file, line, key, value and what was expected; `shown` stands for the value."""
        if shown is None:
            kinds = {"text": repr(self.text) if self.key else "a text", "list": "a list", "mapping": "a mapping"}
            shown = kinds.get(self.kind, "nothing")
        place = f"key {self.key}: " if self.key else ""
        return UsageError(f"{self.file}: line {self.line}: {place}{shown}, expected {expected}")

    def scalar(self, expected: str = "one value") -> str:
        """Return the text of a scalar."""
        if self.kind != "text":
            raise self.wrong(expected)
        return self.text

    def absolute(self) -> str:
        """Return an absolute path."""
        if not self.scalar().startswith("/"):
            raise self.wrong("an absolute path")
        return self.text

    def count(self, most: int) -> int:
        """Return a whole number from 1 to `most`."""
        if not self.scalar().isdecimal() or len(self.text) > 18 or not 1 <= int(self.text) <= most:
            raise self.wrong(f"a number from 1 to {most}")
        return int(self.text)

    def seconds(self) -> float:
        """Return the seconds of a duration above zero."""
        try:
            return parse_duration(self.scalar())
        except ValueError as error:
            raise self.wrong(str(error).partition("expected ")[2]) from None

    def boolean(self) -> bool:
        """Return true or false."""
        found = _BOOLEANS.get(self.text.lower()) if self.kind == "text" else None
        if found is None:
            raise self.wrong("true or false")
        return found

    def scalars(self, expected: str = "a list") -> list[YamlValue]:
        """Return the items of a list of scalars."""
        if self.kind != "list":
            raise self.wrong(expected)
        for item in self.items:
            item.scalar()
        return list(self.items)

    def mapping(self, known: Collection[str] | None = None) -> Mapping[str, YamlValue]:
        """Return the entries of a mapping; none for null. Raises `UsageError` for a key outside `known`."""
        if self.kind not in {"mapping", "nothing"}:
            raise self.wrong("a mapping of keys")
        for name, entry in self.entries.items():
            if known is not None and name not in known:
                raise entry.unknown(name, known)
        return self.entries

    def unknown(self, name: str, known: Collection[str], expected: str = "a known key") -> UsageError:
        """Return the error for a key `name` outside `known`; it names a near one, or all, or else `expected`."""
        near = near_match(name, known)
        if near is not None:
            expected = f"{near}?"
        elif len(known) <= 16:
            expected = f"one of {', '.join(sorted(known))}"
        return UsageError(f"{self.file}: line {self.line}: key {self.key}: there is no such key, expected {expected}")

    def at(self, path: Iterable[str | int]) -> YamlValue:
        """Return the value at `path` (keys and indices, as pydantic gives them), as far as the file has it."""
        found = self
        for part in path:
            if isinstance(part, int) and part < len(found.items):
                found = found.items[part]
            elif part in found.entries:
                found = found.entries[str(part)]
            else:
                break
        return found

    def data(self) -> Any:
        """Return plain Python data by the rules of YAML 1.1: dict, list, str, int, float, bool, date, bytes or None.

        The keys of a dict are always texts. Raises `UsageError` for a scalar that is not what its tag or form promises.
        """
        if self.kind == "mapping":
            return {name: entry.data() for name, entry in self.entries.items()}
        if self.kind == "list":
            return [item.data() for item in self.items]
        if self.kind == "nothing":
            return None
        if self.tag in {"str", "value", "merge"}:
            return self.text
        import yaml  # noqa: PLC0415  # imported already by `read_yaml`

        try:
            return yaml.constructor.SafeConstructor().construct_object(yaml.ScalarNode(_PREFIX + self.tag, self.text))
        except (yaml.YAMLError, ValueError, OverflowError, LookupError) as error:
            raise self.wrong(f"a valid {self.tag}") from error


def near_match(name: str, known: Iterable[str]) -> str | None:
    """Return the name of `known` that `name` may be a misspelling of."""
    import difflib  # noqa: PLC0415  # needed for errors alone

    near = difflib.get_close_matches(name, list(known), 1)
    return near[0] if near else None


def read_yaml(file: Path, max_values: int = MAX_VALUES) -> YamlValue:
    """Read a file that holds one mapping, or nothing.

    Raises:
        UsageError: it cannot be read, is no YAML, or costs more than it may. The message never quotes a value.
    """
    try:
        # Waits for no pipe in its place: the exporter reads its file again where it waits for SIGTERM.
        content = read_regular_file(file, MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}, expected a file that this user can read") from error
    return parse_yaml(content, file, max_values)


def parse_yaml(content: bytes, file: Path, max_values: int = MAX_VALUES) -> YamlValue:
    """Return what was read of a file, which is one mapping or nothing; raise `UsageError` as `read_yaml`."""
    if len(content) > MAX_BYTES:
        raise UsageError(f"{file}: more than {MAX_BYTES} bytes, expected a configuration")
    try:
        import yaml  # noqa: PLC0415  # 28 ms and 3 MiB, and not installed with the library alone
    except ImportError as error:
        raise UsageError(f"{file}: PyYAML is not installed; pip install 'trainwarden[exporter]' brings it") from error
    try:
        node = yaml.compose(content, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError) as error:
        # Neither the error itself nor a word that it quotes: they are the file's, which may hold secrets.
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        problem: str = getattr(error, "problem", None) or "no text"
        if r"'\t'" in problem:
            raise UsageError(f"{file}: {line}a tab, expected spaces") from None
        problem = re.sub(r"'[^' <]{2,}'", "it", problem)
        raise UsageError(f"{file}: {line}{problem}, expected YAML") from None
    if node is None:
        return YamlValue(file, 1, "", "nothing")
    document = _ValueReader(file, max_values).value(node, "", 0)
    document.mapping()
    return document


class _ValueReader:
    """Turns the nodes of one file into values, within the limits."""

    def __init__(self, file: Path, max_values: int) -> None:
        self._file = file
        self._max_values = max_values
        self._values = itertools.count()

    def value(self, node: Any, key: str, depth: int, line: int = 0) -> YamlValue:
        line = line or node.start_mark.line + 1
        if next(self._values) > self._max_values:
            raise self._error(node, key, f"one value too many, expected at most {self._max_values}")
        if depth > MAX_DEPTH:
            raise self._error(node, key, f"nested too deep, expected at most {MAX_DEPTH} levels")
        tag = node.tag.removeprefix(_PREFIX)
        if node.id == "scalar":
            if tag not in _SCALARS:
                raise self._error(node, key, "a tag that is not known, expected a plain value")
            if tag == "null":
                return YamlValue(self._file, line, key, "nothing")
            return YamlValue(self._file, line, key, "text", self._text(node), tag)
        if tag != {"sequence": "seq", "mapping": "map"}[node.id]:
            raise self._error(node, key, "a tag that is not known, expected a plain list or mapping")
        if node.id == "sequence":
            items = (self.value(each, f"{key}[{index}]", depth + 1) for index, each in enumerate(node.value))
            return YamlValue(self._file, line, key, "list", items=tuple(items))
        return YamlValue(self._file, line, key, "mapping", entries=self._entries(node, key, depth))

    def _entries(self, node: Any, key: str, depth: int) -> dict[str, YamlValue]:
        own: dict[str, YamlValue] = {}
        merged: dict[str, YamlValue] = {}
        for name_node, value_node in node.value:
            if name_node.id != "scalar":
                raise self._error(name_node, key, "a key of several values, expected a name")
            if name_node.tag == _PREFIX + "merge":
                for each in self._merged(self.value(value_node, key, depth + 1)):
                    merged = {**each.entries, **merged}  # of several, the first counts
                continue
            name = self._text(name_node)
            inner = f"{key}.{name}" if key else name
            if name in own:
                raise self._error(name_node, inner, "given twice, expected once")
            own[name] = self.value(value_node, inner, depth + 1, name_node.start_mark.line + 1)
        return {**merged, **own}

    def _merged(self, value: YamlValue) -> Iterator[YamlValue]:
        """Yield the mappings that a `<<` names: one, or a list of them."""
        for each in value.items if value.kind == "list" else (value,):
            if each.kind != "mapping":
                raise each.wrong("a mapping, or a list of them, to merge")
            yield each

    def _text(self, node: Any) -> str:
        text: str = node.value
        if unusable := _UNUSABLE.search(text):
            line = node.start_mark.line + 1
            raise UsageError(f"{self._file}: line {line}: a text with {unusable[0]!r}, expected plain text")
        return text

    def _error(self, node: Any, key: str, problem: str) -> UsageError:
        place = f"key {key}: " if key else ""
        return UsageError(f"{self._file}: line {node.start_mark.line + 1}: {place}{problem}")
