"""The groups of the exporter's flags, and the help that shows the usual ones, those of a group or all."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from trainwarden_exporter.registry import SPECS

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_GROUPS = {
    "general": "The exporter",
    "web": "HTTP",
    "path": "Where the node's file systems are",
    "expect": "What is expected here",
    "release": "Releasing devices",
    "log": "Its log",
}
# What most nodes set, and what one wants to try; each fits a line.
_USUAL = {
    "--config.file FILE": "flags as YAML",
    "--web.listen-address HOST:PORT": "where to listen (default :9745)",
    "--web.config.file FILE": "TLS and users",
    "--collector.runs.path FOLDER": "the records of runs",
    "--collector.runs.scope all": "for the one exporter of a shared folder",
    "--collector.logs.path TEMPLATE": "more logs: /logs/{run_id}/*.out",
    "--expect.gpus N": "GPUs that have to be here",
    "--log.level LEVEL": "debug, info, warning or error",
    "--once": "print the metrics once and end",
}


class FlagGroup(NamedTuple):
    """Flags that belong together.

    Attributes:
        name: for `--help=`.
        title: what they concern.
        collector: the collector whose flags they are; empty for the others.
    """

    name: str
    title: str
    collector: str
    flags: list[argparse.Action]


def groups(flags: Iterable[argparse.Action]) -> list[FlagGroup]:
    """Return the flags in their groups: the general ones first, each collector's last."""
    found = {name: FlagGroup(name, title, "", []) for name, title in _GROUPS.items()}
    for spec in SPECS:
        found[spec.flag[2:]] = FlagGroup(spec.flag.rpartition(".")[2], spec.help, spec.name, [])
    for flag in flags:
        first, _, rest = flag.option_strings[0].removeprefix("--").partition(".")
        name = f"{first}.{rest.partition('.')[0]}" if first == "collector" else first
        found[name if name in found else "general"].flags.append(flag)
    return list(found.values())


class HelpAction(argparse.Action):
    """Prints help and ends: `--help` the usual flags, `--help=GROUP` all of a group, `--help-all` all of all."""

    def __init__(self, option_strings: Sequence[str], dest: str, metavar: str | None = None, help: str = "") -> None:  # noqa: A002  # argparse's name
        nargs = "?" if metavar else 0
        super().__init__(
            option_strings,
            dest,
            nargs=nargs,
            default=argparse.SUPPRESS,
            metavar=metavar,
            help=help,
        )

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,  # noqa: ARG002  # argparse calls it so
        values: Any,
        option_string: str | None = None,  # noqa: ARG002  # as above
    ) -> None:
        """Print, and end with status 0; raise `argparse.ArgumentError` for a group that there is not."""
        found = groups(parser._actions)  # noqa: SLF001  # has no public name
        if self.nargs == "?" and values is None:
            text = _usual(parser, found)
        else:
            named = found if self.nargs == 0 else [group for group in found if group.name == values.replace("_", "-")]
            if not named:
                names = ", ".join(group.name for group in found)
                raise argparse.ArgumentError(self, f"there is no group {values!r}, expected one of {names}")
            text = "\n".join(_section(parser, f"{group.name}: {group.title}", group.flags) for group in named)
        sys.stdout.write(text)
        parser.exit()


def _usual(parser: argparse.ArgumentParser, found: Sequence[FlagGroup]) -> str:
    others = ", ".join(group.name for group in found if not group.collector)
    lines = [
        f"usage: {parser.prog} [FLAG ...]",
        f"       {parser.prog} check-config FILE",
        "",
        str(parser.description),
        "",
        "the usual flags; in --config.file they are keys of the same names:",
        *(f"  {flag:<33}{text}" for flag, text in _USUAL.items()),
        "",
        "collectors, on where there is something for them; --no-collector.NAME is off:",
        *(f"  --collector.{group.name:<21}{group.title}" for group in found if group.collector),
        "",
        "--help=NAME shows the flags of one of these collectors, or those of",
        f"{others}; --help-all shows all.",
    ]
    return "\n".join(lines) + "\n"


def _section(parser: argparse.ArgumentParser, title: str, flags: Iterable[argparse.Action]) -> str:
    formatter = argparse.HelpFormatter(parser.prog, max_help_position=34)
    formatter.start_section(title)
    formatter.add_arguments(flags)
    formatter.end_section()
    return formatter.format_help()
