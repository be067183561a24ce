"""A YAML file as its reader wants it: every value with its key and line, so that what is wrong can be named."""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.core.errors import UsageError
from trainwarden_exporter.core.files import read_plain

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

MAX_BYTES = 2**20
MAX_DEPTH = 8
# Aliases of aliases make millions of a few lines.
MAX_VALUES = 10_000
# What no file's name can hold.
_NO_TEXT = re.compile("[\0\ud800-\udfff]")
_BOOLEANS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


@dataclass(frozen=True)
class Value:
    """One value of a file: a text as it is written, a list or a mapping; `kind` says which, or `nothing`."""

    file: Path
    line: int
    key: str
    kind: str
    text: str = ""
    items: tuple[Value, ...] = ()
    entries: Mapping[str, Value] = field(default_factory=dict)

    def wrong(self, expected: str, shown: str | None = None) -> UsageError:
        """Return the error that names file, line, key, value and what was expected."""
        if shown is None:
            kinds = {"text": repr(self.text) if self.key else "a text", "list": "a list", "mapping": "a mapping"}
            shown = kinds.get(self.kind, "nothing")
        place = f"key {self.key}: " if self.key else ""
        return UsageError(f"{self.file}: line {self.line}: {place}{shown}, expected {expected}")

    def scalar(self, expected: str = "one value") -> str:
        """Return the text."""
        if self.kind != "text":
            raise self.wrong(expected)
        return self.text

    def boolean(self) -> bool:
        """Return true or false."""
        found = _BOOLEANS.get(self.text.lower()) if self.kind == "text" else None
        if found is None:
            raise self.wrong("true or false")
        return found

    def scalars(self, expected: str = "a list") -> list[Value]:
        """Return the texts of a list."""
        if self.kind != "list":
            raise self.wrong(expected)
        for item in self.items:
            item.scalar()
        return list(self.items)

    def mapping(self, known: Collection[str] | None = None) -> Mapping[str, Value]:
        """Return the entries, none of them unknown; no value at all is an empty mapping."""
        if self.kind not in {"mapping", "nothing"}:
            raise self.wrong("a mapping of keys")
        for name, entry in self.entries.items():
            if known is not None and name not in known:
                raise entry.unknown(name, known)
        return self.entries

    def unknown(self, name: str, known: Collection[str]) -> UsageError:
        """Return the error that says that there is no such key."""
        import difflib  # noqa: PLC0415  # for mistakes alone

        near = difflib.get_close_matches(name, known, 1)
        expected = (
            f"{near[0]}?" if near else f"one of {', '.join(sorted(known))}" if len(known) <= 16 else "a flag's name"
        )
        return UsageError(f"{self.file}: line {self.line}: key {self.key}: there is no such key, expected {expected}")


def read_document(file: Path) -> Value:
    """Read a file; raises `UsageError` if it cannot be read or is no YAML with one mapping."""
    try:
        # A pipe in its place would hold up whoever reads it again on a signal, the end included.
        content = read_plain(file, MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}, expected a file that this user can read") from error
    if len(content) > MAX_BYTES:
        raise UsageError(f"{file}: more than {MAX_BYTES} bytes, expected a configuration")
    try:
        import yaml  # noqa: PLC0415  # not installed with the library alone
    except ImportError as error:
        raise UsageError(f"{file}: PyYAML is not installed, expected trainwarden[exporter]") from error
    try:
        node = yaml.compose(content, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        # Not the error itself, nor words that it quotes: they are the file's, which may hold secrets.
        mark = getattr(error, "problem_mark", None)
        line = f"line {mark.line + 1}: " if mark else ""
        said: str = getattr(error, "problem", None) or "no text"
        if r"'\t'" in said:
            raise UsageError(f"{file}: {line}a tab, expected spaces") from None
        problem = re.sub(r"'[^' <]{2,}'", "it", said)
        raise UsageError(f"{file}: {line}{problem}, expected YAML") from None
    if node is None:
        return Value(file, 1, "", "nothing")
    document = _value(file, node, "", 0, itertools.count())
    document.mapping()
    return document


def _value(file: Path, node: Any, key: str, depth: int, values: Iterator[int]) -> Value:
    line = node.start_mark.line + 1
    if next(values) > MAX_VALUES:
        raise UsageError(f"{file}: line {line}: key {key}: one value too many, expected at most {MAX_VALUES}")
    if depth > MAX_DEPTH:
        raise UsageError(f"{file}: line {line}: key {key}: nested too deep, expected at most {MAX_DEPTH} levels")
    if node.id == "scalar":
        is_nothing = node.tag == "tag:yaml.org,2002:null"
        return Value(file, line, key, "nothing" if is_nothing else "text", "" if is_nothing else _text(file, node))
    if node.id == "sequence":
        items = tuple(_value(file, each, key, depth + 1, values) for each in node.value)
        return Value(file, line, key, "list", items=items)
    entries: dict[str, Value] = {}
    for name_node, value_node in node.value:
        name = _text(file, name_node) if name_node.id == "scalar" else "?"
        inner = f"{key}.{name}" if key else name
        if name in entries:
            line = name_node.start_mark.line + 1
            raise UsageError(f"{file}: line {line}: key {inner}: given twice, expected once")
        entries[name] = _value(file, value_node, inner, depth + 1, values)
    return Value(file, line, key, "mapping", entries=entries)


def _text(file: Path, node: Any) -> str:
    text: str = node.value
    if wrong := _NO_TEXT.search(text):
        raise UsageError(f"{file}: line {node.start_mark.line + 1}: a text with {wrong[0]!r}, expected plain text")
    return text
