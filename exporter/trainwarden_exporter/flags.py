"""The flags of `trainwarden-exporter`, each with the values it takes."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

from trainwarden import __version__
from trainwarden.identity import host_name
from trainwarden_exporter.logs.flags import add_log_flags

_UNITS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0}
_DURATION = re.compile(r"(?P<number>\d{1,9}(?:\.\d{1,9})?)(?P<unit>|ms|s|m)")


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
    _web_flags(parser)
    _runs_flags(parser)
    add_log_flags(parser, duration, positive_count)
    parser.add_argument(
        "--once",
        action="store_true",
        help="collect once, print the metrics and end: status 0, or 1 if a collector failed",
    )
    parser.add_argument(
        "--log.level", choices=("debug", "info", "warning", "error"), default="info", help="what to log"
    )
    parser.add_argument("--version", action="version", version=f"trainwarden-exporter {__version__}")
    return parser


def _web_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--web.listen-address",
        type=listen_address,
        default=":9745",
        metavar="HOST:PORT",
        help="where to listen; an empty host is every address, port 0 a free one (default %(default)s)",
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
        type=Path,
        metavar="FILE",
        help="write the address that was bound, as host:port, to this file; removed at the end",
    )


def _runs_flags(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--collector.runs",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="export the run records of a folder",
    )
    parser.add_argument(
        "--collector.runs.path",
        type=Path,
        metavar="FOLDER",
        help="the runs folder (default: $TRAINWARDEN_RUNS_DIR, else where the library puts records)",
    )
    parser.add_argument(
        "--collector.runs.scope",
        choices=("host", "all"),
        default="host",
        help="host: what belongs to this host; all: everything, for the one exporter of a shared folder (default host)",
    )
    parser.add_argument(
        "--collector.runs.interval",
        type=duration,
        default="2s",
        metavar="DURATION",
        help="pause between two samples (default %(default)s)",
    )
    parser.add_argument(
        "--collector.runs.timeout",
        type=duration,
        default="10s",
        metavar="DURATION",
        help="a sample that takes longer counts as failed (default %(default)s)",
    )
    parser.add_argument(
        "--collector.runs.max",
        type=positive_count,
        default=2000,
        metavar="N",
        help="runs exported at most, those with the latest sign of life (default %(default)s)",
    )
    parser.add_argument(
        "--instance-host",
        default=host_name(),
        metavar="NAME",
        help="this host's name in run records (default: the host name)",
    )


def listen_address(text: str) -> tuple[str, int]:
    """Parse host:port; an IPv6 address stands in brackets."""
    host, colon, port = text.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        colon = ""
    if not colon or not re.fullmatch(r"\d{1,5}", port) or int(port) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no address: expected host:port, :port or [IPv6]:port")
    return host, int(port)


def telemetry_path(text: str) -> str:
    """Parse a path of plain characters that no other page has."""
    if not re.fullmatch(r"(/[A-Za-z0-9._~-]+)+", text) or text in {"/-/healthy", "/-/ready"}:
        raise argparse.ArgumentTypeError(f"{text!r} is no path for metrics: expected one such as /metrics")
    return text


def duration(text: str) -> float:
    """Parse a duration above zero into seconds: 2, 2s, 500ms, 1m."""
    match = _DURATION.fullmatch(text)
    seconds = float(match["number"]) * _UNITS[match["unit"]] if match else 0.0
    if seconds <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: expected one above zero, such as 2s, 500ms or 1m")
    return seconds


def positive_count(text: str) -> int:
    """Parse a whole number above zero."""
    if not re.fullmatch(r"\d{1,9}", text) or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no count: expected a whole number above zero")
    return int(text)
