"""The flags of the HTTP side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden_exporter.flag_values import listen_address, positive_count, telemetry_path

if TYPE_CHECKING:
    import argparse


def add_web_flags(parser: argparse.ArgumentParser) -> None:
    """Add them to the exporter's."""
    parser.add_argument(
        "--web.listen-address",
        type=listen_address,
        action="append",
        metavar="HOST:PORT",
        help="where to listen; an empty host is every address, port 0 a free one; repeatable (default: :9745)",
    )
    parser.add_argument(
        "--web.config.file",
        type=Path,
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
        type=Path,
        metavar="FILE",
        help="write the address that was bound (of several, the first), as host:port, to this file; removed at the end",
    )
