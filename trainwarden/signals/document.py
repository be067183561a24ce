"""A YAML file whose entries know on which line they stand."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml


class PackError(ValueError):
    """A signal file that can't be read at all; the message names the file, and line where there is one."""


@dataclass(frozen=True)
class Entry:
    """A value of a YAML file and its place, `file:line`."""

    value: Any
    place: str


@dataclass(frozen=True)
class Document:
    """The mapping at the top of a YAML file, with the places of its keys and of the items of its lists."""

    path: Path
    entries: dict[str, Entry]
    items: dict[str, tuple[Entry, ...]]


def read_document(path: Path) -> Document:
    """Read a YAML file whose top is a mapping.

    Raises:
        PackError: it can't be read, is no YAML, or has something else at the top.
    """
    try:
        loader = yaml.SafeLoader(path.read_text(encoding="utf-8-sig"))
    except (OSError, UnicodeDecodeError) as error:
        raise PackError(f"{path}: can't be read: {error}") from error
    except yaml.YAMLError as error:
        raise PackError(f"{path}: is no YAML: {error}") from error
    try:
        return _document(path, loader)
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        mark = getattr(error, "problem_mark", None)
        place = f"{path}:{mark.line + 1}" if mark else str(path)
        raise PackError(f"{place}: is no YAML: {getattr(error, 'problem', None) or error}") from error
    finally:
        loader.dispose()


def _document(path: Path, loader: yaml.SafeLoader) -> Document:
    node = loader.get_single_node()
    if node is None:
        return Document(path, {}, {})
    if not isinstance(node, yaml.MappingNode):
        raise yaml.MarkedYAMLError(problem="a mapping was expected at the top", problem_mark=node.start_mark)
    loader.flatten_mapping(node)
    entries, items = {}, {}
    for key_node, value_node in node.value:
        key = str(loader.construct_object(key_node, deep=True))
        entries[key] = _entry(path, loader, value_node, key_node)
        if isinstance(value_node, yaml.SequenceNode):
            items[key] = tuple(_items(path, loader, value_node))
    return Document(path, entries, items)


def _items(path: Path, loader: yaml.SafeLoader, node: yaml.SequenceNode) -> Iterator[Entry]:
    for item in node.value:
        yield _entry(path, loader, item, item)


def _entry(path: Path, loader: yaml.SafeLoader, value: yaml.Node, where: yaml.Node) -> Entry:
    return Entry(loader.construct_object(value, deep=True), f"{path}:{where.start_mark.line + 1}")
