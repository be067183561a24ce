"""The Python names that users import, with their signatures, fields and values, however the modules behind them lie.

The names are those that the documents import and those in `__all__` of the modules that users know.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import importlib
import importlib.util
import inspect
import re
import typing
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import trainwarden
from tests.contracts.compare import ROOT

_KNOWN = (
    "trainwarden", "trainwarden.checkpoint", "trainwarden.integrations.modal_monitor", "trainwarden.monitor",
    "trainwarden.ray", "trainwarden_exporter",
)  # fmt: skip
# They import what is not installed here, so their source is read.
_SOURCES = ("trainwarden.integrations.huggingface", "trainwarden.integrations.lightning")
# `run()` makes it.
_NOT_CALLED = {trainwarden.Run}
_IMPORT = re.compile(r"^ *from (trainwarden[\w.]*) import (\([^)]*\)|.*)$", re.MULTILINE)
_MODULE = re.compile(r"\b(?:[a-z_]\w*\.)+(?=\w)")
_ADDRESS = re.compile(r" at 0x\w+")


def lines() -> Iterator[str]:
    """Yield a line for each name, method, property, field and member of an enumeration."""
    names = {(module, name) for module in _KNOWN for name in _public(importlib.import_module(module))}
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))):
        for module, listed in _IMPORT.findall(page.read_text(encoding="utf-8")):
            words = re.sub(r"#.*", "", listed).strip("( )").split(",")
            names.update((module, word.split()[0]) for word in words if word.strip())
    for module, name in sorted(names):
        if module in _SOURCES:
            yield from _source(module, name)
        else:
            yield from _shown(f"{module}.{name}", getattr(importlib.import_module(module), name))


def _public(module: Any) -> Iterable[str]:
    if listed := getattr(module, "__all__", None):
        return list(listed)
    own = module.__name__
    found = {name: each for name, each in vars(module).items() if inspect.isclass(each) or inspect.isfunction(each)}
    return [name for name, each in found.items() if name[0] != "_" and each.__module__ == own]


def _shown(name: str, value: Any) -> Iterator[str]:
    if inspect.isclass(value):
        yield from _class(name, value)
    elif callable(value):
        yield f"{name}{_signature(value)}"
    else:
        yield f"{name}: {type(value).__name__}"


def _class(name: str, found: type[Any]) -> Iterator[str]:
    bases = [each.__name__ for each in found.__mro__[1:] if each in {Exception, str, dict, tuple, enum.Enum}]
    yield f"class {name}({', '.join(bases)})"
    if issubclass(found, enum.Enum):
        yield from (f"{name}.{member.name} = {member.value!r}" for member in found)
        return
    if found in _NOT_CALLED:
        pass
    elif inspect.isfunction(found.__init__) or inspect.isfunction(found.__new__):
        yield f"{name}{_signature(found)}"
    if issubclass(found, dict):
        yield from _keys(name, found)
    members: dict[str, Any] = {}
    for each in reversed(found.__mro__):
        if each.__module__.partition(".")[0].startswith("trainwarden"):
            members |= {word: member for word, member in vars(each).items() if word[0] != "_"}
    for word, member in sorted(members.items()):
        if isinstance(member, (staticmethod, classmethod)):
            yield f"{name}.{word}{_signature(getattr(found, word))} ({type(member).__name__})"
        elif inspect.isfunction(member):
            yield f"{name}.{word}{_signature(member)}"
        elif isinstance(member, property) or inspect.isdatadescriptor(member):
            yield f"{name}.{word} (attribute)"
        elif not dataclasses.is_dataclass(found) and not _ADDRESS.search(repr(member)):  # whose fields are arguments
            yield f"{name}.{word} = {member!r}"


def _keys(name: str, found: type[Any]) -> Iterator[str]:
    """Yield the keys of a typed dict, and of those in it."""
    hints = typing.get_type_hints(found)
    for word, kind in found.__annotations__.items():
        yield f"{name}[{word!r}]: {_annotation(kind)}"
        for each in (hints[word], *typing.get_args(hints[word])):
            if typing.is_typeddict(each):
                yield from _keys(f"{name}[{word!r}]", each)


def _annotation(kind: Any) -> str:
    """Return an annotation without the modules of its names: these may move."""
    text = kind if isinstance(kind, str) else getattr(kind, "__forward_arg__", None) or inspect.formatannotation(kind)
    return _MODULE.sub("", text).replace("NoneType", "None")


def _signature(function: Any) -> str:
    found = inspect.signature(function)
    parts: list[str] = []
    last: Any = None
    for each in found.parameters.values():
        if each.kind is each.KEYWORD_ONLY and last not in (each.KEYWORD_ONLY, each.VAR_POSITIONAL):
            parts.append("*")
        mark = "*" if each.kind is each.VAR_POSITIONAL else "**" if each.kind is each.VAR_KEYWORD else ""
        kind = "" if each.annotation is each.empty else f": {_annotation(each.annotation)}"
        default = "" if each.default is each.empty else f" = {_default(each.default)}"
        parts.append(f"{mark}{each.name}{kind}{default}")
        last = each.kind
    returned = "" if found.return_annotation is found.empty else f" -> {_annotation(found.return_annotation)}"
    return f"({', '.join(parts)}){returned}"


def _default(value: Any) -> str:
    if isinstance(value, (tuple, list)):
        return f"({', '.join(map(_default, value))})"
    return getattr(value, "__name__", None) or _ADDRESS.sub("", repr(value))


def _source(module: str, name: str) -> Iterator[str]:
    """Yield what a module defines under a name, itself or by an import of it, from the sources."""
    spec = importlib.util.find_spec(module)
    assert spec is not None
    assert spec.origin is not None
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, ast.ClassDef) and node.name == name:
            yield f"class {module}.{name}({', '.join(map(ast.unparse, node.bases))})"
            yield from _functions(f"{module}.{name}", node.body)
        elif isinstance(node, ast.ImportFrom) and node.module and name in {each.name for each in node.names}:
            yield f"{module}.{name} is:"
            yield from _source(node.module, name)


def _functions(name: str, nodes: Sequence[ast.stmt]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and (node.name[0] != "_" or node.name == "__init__"):
            is_property = any(ast.unparse(each) == "property" for each in node.decorator_list)
            returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
            shown = " (attribute)" if is_property else f"({ast.unparse(node.args)}){returned}"
            yield f"{name}.{node.name}{shown}"
