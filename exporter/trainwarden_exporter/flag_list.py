"""Every flag as a page of the documents: `python -m trainwarden_exporter.flag_list > docs/exporter-flags.md`."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING

from trainwarden_exporter.configuration.settings import COMMAND_LINE_ONLY
from trainwarden_exporter.flags import build_parser
from trainwarden_exporter.registry import KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable

HEAD = """\
# Flags of the exporter

Made from the program by `python -m trainwarden_exporter.flag_list > docs/exporter-flags.md`; change them there.

Each is a key of [`--config.file`](exporter.md#configuration) too, but for those marked *command line*. Durations are
numbers of seconds or carry a unit: `500ms`, `2s`, `1m`, `1h`. Sizes are numbers of bytes or carry one: `512KiB`,
`64MiB`, `1GiB`.
"""

_DEFAULT = re.compile(r" ?\(default:? (.*)\)")


def document() -> str:
    """Return docs/exporter-flags.md."""
    actions = build_parser().flags()
    rest = {kind: [action for action in actions if _is_of(kind.flag, action)] for kind in KINDS}
    of_collectors = {id(action) for some in rest.values() for action in some}
    of_web = [action for action in actions if action.dest.startswith("web.")]
    general = [action for action in actions if id(action) not in of_collectors and action not in of_web]
    sections = [HEAD, _section("The exporter", general), _section("HTTP", of_web)]
    for kind, some in rest.items():
        sections.append(_section(f"`{kind.name}`: {kind.help}", some))
    return "\n".join(sections)


def _is_of(flag: str, action: argparse.Action) -> bool:
    return any(option == flag or option.startswith(f"{flag}.") for option in action.option_strings)


def _section(title: str, actions: Iterable[argparse.Action]) -> str:
    rows = [_row(action) for action in actions]
    return "\n".join([f"## {title}", "", "| flag | default | meaning |", "|---|---|---|", *rows, ""])


def _row(action: argparse.Action) -> str:
    options = ", ".join(f"`{option}`" for option in action.option_strings)
    values = action.metavar or ("\\|".join(map(str, action.choices)) if action.choices else "")
    # What depends on where this is written is not written.
    shown = "the host name" if action.dest == "instance_host" else action.default
    text = (action.help or "") % {"default": f"`{shown}`"}
    match = _DEFAULT.search(text)
    default = match[1] if match else ""
    if isinstance(action.default, bool):  # of which argparse says something in some versions of Python
        default = "on" if action.default else ""
    if not default and isinstance(action.default, str) and action.default != argparse.SUPPRESS:
        default = f"`{action.default}`"
    meaning = _DEFAULT.sub("", text) + ("; *command line*" if action.dest in COMMAND_LINE_ONLY else "")
    return f"| {options}{f' {values}' if values else ''} | {_cell(default)} | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").strip()


if __name__ == "__main__":
    print(document(), end="")
