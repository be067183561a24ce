"""The flags of `trainwarden-exporter`, each with the values it takes."""

from __future__ import annotations

import argparse
from pathlib import Path

from trainwarden import __version__
from trainwarden.identity import host_name
from trainwarden_exporter.flag_values import count, duration
from trainwarden_exporter.registry import KINDS
from trainwarden_exporter.web.flags import add_web_flags


class Parser(argparse.ArgumentParser):
    """Ends with status 2 and one line that names flag, value and what was expected."""

    def error(self, message: str) -> None:  # type: ignore[override]  # NoReturn by self.exit
        """Print one line and end."""
        self.exit(2, f"{self.prog}: {message}\n")


def build_parser() -> argparse.ArgumentParser:
    """Return the parser; its defaults are the exporter's."""
    parser = Parser(
        prog="trainwarden-exporter",
        description="Exports what runs on this node as Prometheus metrics.",
        allow_abbrev=False,
    )
    add_web_flags(parser)
    _node_flags(parser)
    _collector_flags(parser)
    parser.add_argument(
        "--once",
        action="store_true",
        help="wait for the first sample of each collector, or its deadline, print the metrics and end with status 0",
    )
    parser.add_argument(
        "--log.level", choices=("debug", "info", "warning", "error"), default="info", help="what to log"
    )
    parser.add_argument("--version", action="version", version=f"trainwarden-exporter {__version__}")
    return parser


def _node_flags(parser: argparse.ArgumentParser) -> None:
    for name, default in (("sysfs", "/sys"), ("procfs", "/proc"), ("rootfs", "/")):
        parser.add_argument(
            f"--path.{name}",
            type=Path,
            default=Path(default),
            metavar="FOLDER",
            help=f"where the node's {default} is mounted (default %(default)s)",
        )
    for name, what in (("gpus", "GPUs"), ("efa-devices", "EFA devices")):
        parser.add_argument(
            f"--expect.{name}",
            type=count,
            metavar="N",
            help=f"{what} that this node should have (default: by its instance type, else what its PCI bus shows)",
        )
    parser.add_argument(
        "--instance-host",
        default=host_name(),
        metavar="NAME",
        help="this host's name in run records (default: the host name)",
    )


def _collector_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--collector.disable-defaults",
        action="store_true",
        help="run only the collectors that are switched on by name",
    )
    for kind in KINDS:
        name = kind.flag
        parser.add_argument(
            name,
            action=argparse.BooleanOptionalAction,
            default=None,
            help=f"export {kind.help} (default: where there is something of it)",
        )
        parser.add_argument(
            f"{name}.interval",
            type=duration,
            default=kind.interval,
            metavar="DURATION",
            help="pause between two samples (default %(default)s)",
        )
        parser.add_argument(
            f"{name}.timeout",
            type=duration,
            default=kind.timeout,
            metavar="DURATION",
            help="a sample that takes longer counts as failed (default %(default)s)",
        )
        kind.wiring.add_flags(parser)
    parser.add_argument("--compat.finetuning", action="store_true", help="export runs as finetuning_… as well")
