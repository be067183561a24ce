"""Flags from the command line and from a file: the same names, the same values, and the command line wins."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from trainwarden.errors import UsageError
from trainwarden.yaml_file import read_yaml
from trainwarden_exporter.flags import Parser, build_parser
from trainwarden_exporter.registry import SPECS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from trainwarden.yaml_file import YamlValue

# These concern one start, not the node.
COMMAND_LINE_ONLY = {"config.file", "once", "help", "help_all", "version"}
ENABLED = ".enabled"


def read_flags(argv: Sequence[str] | None = None) -> dict[str, Any]:
    """Return the flags by name, those that the command line does not give as `--config.file` has them.

    Raises:
        UsageError: the file cannot be read or something in it is wrong.
        SystemExit: the command line is wrong.
    """
    parser = build_parser()
    flags = vars(parser.parse_args(argv))
    file: Path | None = flags["config.file"]
    if file is not None:
        given = parser.given(argv)
        flags.update({name: value for name, value in read_settings(file).items() if name not in given})
    return flags


def read_settings(file: Path) -> dict[str, Any]:
    """Return the flags that a file gives; raises `UsageError`."""
    parser = build_parser()
    actions = {option[2:]: action for action in parser.flags() for option in action.option_strings}
    actions = {
        key: action
        for key, action in actions.items()
        if action.dest not in COMMAND_LINE_ONLY and not key.startswith("no-")
    }
    switches = {spec.flag[2:] for spec in SPECS}
    found: dict[str, tuple[YamlValue, Any]] = {}
    for key, value in _leaves(read_yaml(file), ""):
        name = key[: -len(ENABLED)] if key.endswith(ENABLED) and key[: -len(ENABLED)] in switches else key
        action = None if value.kind == "mapping" else actions.get(name)
        if action is None and not value.text and _is_section(value.key, actions):
            continue
        if action is None:
            raise value.unknown(key, [*actions, *(switch + ENABLED for switch in switches)], "a flag's name")
        if action.dest in found:
            before = found[action.dest][0].line
            raise value.wrong(f"it once: line {before} has it too")
        found[action.dest] = value, _parsed(parser, action, value)
    return {name: parsed for name, (_, parsed) in found.items()}


def _leaves(value: YamlValue, key: str) -> Iterator[tuple[str, YamlValue]]:
    """Yield each value with its whole name; a mapping is only a way to write a long name."""
    if value.entries or not key:
        for name, entry in value.entries.items():
            yield from _leaves(entry, f"{key}.{name}" if key else name)
    else:
        yield key, value


def _is_section(key: str, names: Iterable[str]) -> bool:
    """Return whether a key without a value is the beginning of flags' names: all that is below it is left out."""
    return any(name.startswith(f"{key}.") for name in names)


def _parsed(parser: Parser, action: argparse.Action, value: YamlValue) -> Any:
    if action.nargs == 0:  # a switch
        return value.boolean()
    if parser.repeats(action):
        if value.kind == "text":
            raise value.wrong("a list, for the flag may be repeated")
        return [_one(parser, action, item) for item in value.scalars()]
    return _one(parser, action, value)


def _one(parser: Parser, action: argparse.Action, value: YamlValue) -> Any:
    text = value.scalar(f"a value such as {action.option_strings[0]} takes")
    try:
        return parser.value_of(action, text)
    except argparse.ArgumentError as error:
        raise UsageError(f"{value.file}: line {value.line}: key {value.key}: {error.message}") from error
