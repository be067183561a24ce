"""The command lines: of each command its description, arguments, flags, values, defaults and help.

Read from the parsers as they are when a command is called: the help that argparse prints differs between versions of
Python.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Any
from unittest import mock

from tests.contracts.calling import call
from tests.contracts.compare import anywhere

# A command's first words that it looks at before it parses; each has a parser of its own.
_FIRST_WORDS = ("actions list", "checkpoints set-aside")
_BUILTIN = {int, float, str}
_ADDED_DEFAULT = re.compile(r" \(default: %\(default\)s\)$")


class _Parsing(BaseException):
    """Carries the parser of a command that begins to parse."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        super().__init__()
        self.parser = parser


def lines() -> Iterator[str]:
    """Yield one line for each command, argument and flag."""
    yield from _command("trainwarden")
    for name in (*_subcommands(), *_FIRST_WORDS):
        yield from _command("trainwarden", name.split())
    yield from _command("trainwarden-exporter")
    yield from _command("trainwarden-exporter", ["check-config"])
    yield from _command("trainwarden-remediator")


def _subcommands() -> list[str]:
    """Return the commands that the help of `trainwarden` lists."""
    listed = call("trainwarden", "--help").output.partition("\ncommands:\n")[2].partition("\n\n")[0]
    return [line.split()[0] for line in listed.splitlines()]


def _command(program: str, words: Sequence[str] = ()) -> Iterator[str]:
    name = " ".join((program, *words))

    def stop(parser: argparse.ArgumentParser, *_: Any, **__: Any) -> None:
        raise _Parsing(parser)

    try:
        with mock.patch.object(argparse.ArgumentParser, "parse_args", stop):
            text = call(program, *words, "--help").output
    except _Parsing as found:
        yield from _parser(name, found.parser)
    else:
        yield f"{name}: parses by itself"
        yield from (f"    {line}".rstrip() for line in text.splitlines())


def _parser(name: str, parser: argparse.ArgumentParser) -> Iterator[str]:
    yield f"{name}: {' '.join((parser.description or '').split())}"
    if parser.epilog:
        yield from (f"    {line}".rstrip() for line in parser.epilog.splitlines())
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            yield f"{name} | {_action(action, parser)}"
    for number, group in enumerate(parser._mutually_exclusive_groups):
        names = sorted("/".join(each.option_strings) or each.dest for each in group._group_actions)
        yield f"{name} | only one of{', required' * group.required} #{number} | {', '.join(names)}"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            about = {each.dest: each.help for each in action._choices_actions}
            for word in sorted(action.choices):
                yield f"{name} | command{'' if action.required else ', optional'} | {word} | {about.get(word)}"
            for word, below in sorted(action.choices.items()):
                yield from _parser(f"{name} {word}", below)


def _action(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    shown = "/".join(action.option_strings) or action.dest
    values = action.metavar or ("" if action.nargs == 0 else "VALUE")
    facts = [f"{shown} {values if isinstance(values, str) else ' '.join(values)}".strip()]
    if action.nargs not in (None, 0):
        facts.append(f"nargs {action.nargs}")
    if isinstance(action, argparse._AppendAction):
        facts.append("repeatable")
    if action.required and action.option_strings:
        facts.append("required")
    if action.type in _BUILTIN:
        facts.append(action.type.__name__)
    if action.choices is not None:
        facts.append(f"one of {', '.join(map(str, action.choices))}")
    if action.default not in (None, argparse.SUPPRESS) and action.nargs != 0:
        facts.append(f"default {anywhere(str(action.default))!r}")
    elif isinstance(action, argparse.BooleanOptionalAction):
        facts.append(f"default {'on' if action.default else 'off'}")
    return " | ".join([*facts, anywhere(_help(action, parser))])


def _help(action: argparse.Action, parser: argparse.ArgumentParser) -> str:
    if action.help == argparse.SUPPRESS:
        return "(not in the help)"
    text = action.help or ""
    if isinstance(action, argparse.BooleanOptionalAction):  # to which argparse added that before Python 3.13
        text = _ADDED_DEFAULT.sub("", text)
    known = {name: value for name, value in vars(action).items() if value is not argparse.SUPPRESS}
    if action.choices is not None:
        known["choices"] = ", ".join(map(str, action.choices))
    return " ".join((text % {**known, "prog": parser.prog}).split())
