"""The flags of `trainwarden-exporter`, each with the values it takes."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden import __version__
from trainwarden.command_line import CommandLine, duration_seconds
from trainwarden.identity import host_name
from trainwarden.service_log import FORMATS
from trainwarden_exporter.flag_groups import HelpAction
from trainwarden_exporter.flag_values import (
    count,
    listen_address,
    positive_count,
    some_name,
    some_path,
    telemetry_path,
)
from trainwarden_exporter.registry import SPECS

if TYPE_CHECKING:
    from collections.abc import Sequence


class Parser(CommandLine):
    """The flags, and what the configuration file needs of them."""

    def flags(self) -> list[argparse.Action]:
        """Return the flags, in the order in which they were added."""
        return list(self._actions)

    def repeats(self, action: argparse.Action) -> bool:
        """Return whether a flag may be given several times."""
        return isinstance(action, argparse._AppendAction)  # noqa: SLF001  # has no public name

    def value_of(self, action: argparse.Action, text: str) -> Any:
        """Return the value of a flag, of one given time; raises `argparse.ArgumentError`."""
        value = self._get_value(action, text)
        self._check_value(action, value)
        return value

    def given(self, argv: Sequence[str] | None) -> frozenset[str]:
        """Return the names of the flags that a command line gives itself. Leaves the parser without defaults."""
        for action in self._actions:
            action.default = argparse.SUPPRESS
        return frozenset(vars(self.parse_args(argv)))


def build_parser() -> Parser:
    """Return the parser; its defaults are the exporter's."""
    parser = Parser(
        prog="trainwarden-exporter",
        description="Exports what runs on this node as Prometheus metrics.",
        add_help=False,
        allow_abbrev=False,
    )
    parser.add_argument(
        "-h", "--help", action=HelpAction, metavar="NAME", help="show the usual flags, or those of a group"
    )
    parser.add_argument("--help-all", action=HelpAction, help="show all flags")
    parser.add_argument(
        "--config.file",
        type=some_path,
        metavar="FILE",
        help="flags as YAML; those of the command line take precedence",
    )
    _web_flags(parser)
    _node_flags(parser)
    _release_flags(parser)
    _collector_flags(parser)
    parser.add_argument(
        "--once",
        action="store_true",
        help="wait for the first sample of each collector, or its deadline, print the metrics and end with status 0",
    )
    parser.add_argument(
        "--log.level", choices=("debug", "info", "warning", "error"), default="info", help="what to log"
    )
    parser.add_argument(
        "--log.format",
        choices=FORMATS,
        default="text",
        help="of the log; json and logfmt have the fields time, level, logger and msg",
    )
    parser.add_argument("--version", action="version", version=f"trainwarden-exporter {__version__}")
    return parser


def _web_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--web.listen-address",
        type=listen_address,
        action="append",
        metavar="HOST:PORT",
        help="where to listen; an empty host is every address, port 0 a free one; repeatable (default: :9745)",
    )
    parser.add_argument(
        "--web.systemd-socket",
        action="store_true",
        help="listen on the sockets that systemd passes, in place of --web.listen-address",
    )
    parser.add_argument(
        "--web.config.file",
        type=some_path,
        metavar="FILE",
        help="TLS, client certificates and users, in exporter-toolkit's format; read again when it changes",
    )
    parser.add_argument(
        "--web.telemetry-path",
        type=telemetry_path,
        default="/metrics",
        metavar="PATH",
        help="path of the metrics (default %(default)s)",
    )
    parser.add_argument(
        "--web.max-requests",
        type=positive_count,
        default=40,
        metavar="N",
        help="requests answered at the same time, more get 503 (default %(default)s)",
    )
    parser.add_argument(
        "--web.port-file",
        type=some_path,
        metavar="FILE",
        help="write the address that was bound (of several, the first), as host:port, to this file; removed at the end",
    )


def _node_flags(parser: argparse.ArgumentParser) -> None:
    for name, default in (("sysfs", "/sys"), ("procfs", "/proc"), ("rootfs", "/")):
        parser.add_argument(
            f"--path.{name}",
            type=some_path,
            default=Path(default),
            metavar="FOLDER",
            help=f"where the node's {default} is mounted (default %(default)s)",
        )
    parser.add_argument(
        "--path.state",
        type=some_path,
        metavar="FOLDER",
        help="where it is kept over a restart which GPUs this node has and what was counted (default: $STATE_DIRECTORY,"
        " /var/lib/trainwarden/exporter or ~/.local/state/trainwarden/exporter)",
    )
    for name, what in (("gpus", "GPUs"), ("efa-devices", "EFA devices")):
        parser.add_argument(
            f"--expect.{name}",
            type=count,
            metavar="N",
            help=f"{what} that are expected on this node (default: by its instance type, else what its PCI bus shows)",
        )
    parser.add_argument(
        "--instance-host",
        type=some_name,
        default=host_name(),
        metavar="NAME",
        help="this host's name in run records (default: the host name)",
    )
    parser.add_argument(
        "--instance-slurm-node",
        type=some_name,
        metavar="NAME",
        help="this host's name in SLURM (default: $SLURMD_NODENAME, else --instance-host without its domain)",
    )


def _release_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--release.seconds",
        type=duration_seconds,
        default="5m",
        metavar="DURATION",
        help="after SIGUSR1 every device is released for this long, or until a second SIGUSR1 (default %(default)s)",
    )
    parser.add_argument(
        "--release.file",
        type=some_path,
        metavar="FILE",
        help="every device is released while this file exists; checked each second",
    )


def _collector_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--collector.disable-defaults",
        action="store_true",
        help="run only the collectors that are switched on by name",
    )
    for spec in SPECS:
        name = spec.flag
        parser.add_argument(
            name,
            action=argparse.BooleanOptionalAction,
            default=None,
            help=f"export {spec.help} (default: where there is something of it)",
        )
        parser.add_argument(
            f"{name}.interval",
            type=duration_seconds,
            default=spec.interval,
            metavar="DURATION",
            help=(
                "pause between two samples at least, one being taken shortly before each scrape (default %(default)s)"
                if spec.follows_scrapes
                else "pause between two samples (default %(default)s)"
            ),
        )
        parser.add_argument(
            f"{name}.timeout",
            type=duration_seconds,
            default=spec.timeout,
            metavar="DURATION",
            help="a sample that takes longer counts as failed (default %(default)s)",
        )
        spec.add_flags(parser)
    parser.add_argument("--compat.finetuning", action="store_true", help="export runs as finetuning_… as well")
    parser.add_argument(
        "--compat.dcgm",
        action="store_true",
        help="export NVIDIA's GPUs as DCGM_FI_… as well, with dcgm-exporter's labels",
    )
