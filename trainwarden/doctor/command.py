"""The command `trainwarden doctor`."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from trainwarden.clients.http import HttpClient
from trainwarden.clients.prometheus import PrometheusClient
from trainwarden.clients.s3_location import InvalidLocation, S3Location, records_location
from trainwarden.command_line import CommandLine
from trainwarden.doctor import Finding
from trainwarden.doctor.node import check_folder, check_gpus, check_library, check_network, check_s3
from trainwarden.doctor.permissions import ENV_FILE, check_permissions
from trainwarden.doctor.services import (
    EXPORTER,
    REMEDIATOR,
    check_alertmanager,
    check_exporter,
    check_prometheus,
    check_remediator,
)
from trainwarden.errors import UsageError
from trainwarden.record.folder import runs_dir
from trainwarden.redaction import plain
from trainwarden.runs.arguments import service_url
from trainwarden.runs.table import shown, write

_SECONDS = 5.0


def main(argv: list[str]) -> int:
    """Print what was found. Return 0 if all is well, 1 if something is wrong, 2 for misuse, 3 if unseen."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    try:
        location = None if arguments.s3 is None else records_location(arguments.s3)
        if arguments.s3 == "" and location is None:
            parser.error("--s3: expected s3://BUCKET/PREFIX, or TRAINWARDEN_S3_URL or MONITORING_BUCKET set")
        location = location or records_location(None)
    except InvalidLocation as error:
        parser.error(plain(str(error)))
    try:
        found = list(_findings(arguments, location))
    except UsageError as error:
        parser.error(plain(str(error)))
    if arguments.json:
        print(json.dumps({"findings": [vars(each) for each in found], "status": _status(found)}))
    else:
        _print(found)
    return _status(found)


def _parser() -> CommandLine:
    parser = CommandLine(
        prog="trainwarden doctor",
        description="Find what is wrong with this installation, and name the command that mends it.",
        epilog="exit status: 0 all is well; 1 something is wrong; 2 misuse; 3 something cannot be seen from here",
    )
    parser.add_argument("--runs-dir", type=Path, help="the folder of the run records (default: as `trainwarden runs`)")
    parser.add_argument(
        "--s3", nargs="?", const="", metavar="s3://BUCKET/PREFIX", help="records there; also where variables name it"
    )
    for name, default, what in (
        ("exporter", EXPORTER, "of this node"),
        ("prometheus", None, "that scrapes the exporters and has the rules"),
        ("alertmanager", None, "that routes the alerts"),
        ("remediator", REMEDIATOR, "of this cluster"),
    ):
        stated = f" (default: {default}, where it answers)" if default else ""
        parser.add_argument(f"--{name}", type=service_url, metavar="URL", help=f"the one {what}{stated}")
    parser.add_argument(
        "--values",
        type=Path,
        metavar="FILE",
        help="with which the rules were built (`trainwarden rules build --values`)",
    )
    parser.add_argument(
        "--remediator-env",
        type=Path,
        default=Path(ENV_FILE),
        metavar="FILE",
        help="the file with the flags of the remediator's service (default: %(default)s)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    return parser


def _findings(arguments: argparse.Namespace, location: S3Location | None) -> Iterator[Finding]:
    yield from check_library()
    yield from check_folder(arguments.runs_dir or runs_dir())
    if location is not None:
        yield from check_s3(location)
    yield from check_network()
    yield from check_gpus()
    yield from check_exporter(arguments.exporter)
    if arguments.prometheus:
        yield from check_prometheus(PrometheusClient(HttpClient(arguments.prometheus, _SECONDS)), arguments.values)
    else:
        yield Finding("prometheus", None, "not looked at", "trainwarden doctor --prometheus URL")
    if arguments.alertmanager:
        yield from check_alertmanager(arguments.alertmanager)
    yield from check_remediator(arguments.remediator)
    yield from check_permissions(arguments.remediator_env)


def _status(found: Sequence[Finding]) -> int:
    if any(each.ok is False for each in found):
        return 1
    return 3 if any(each.ok is None for each in found) else 0


def _print(found: Sequence[Finding]) -> None:
    words = {True: "ok", False: "WRONG", None: "?"}
    for each in found:
        write(f"{words[each.ok]:<6}{each.check:<12}{shown(each.message)}\n")
        if each.fix and each.ok is not True:
            write(f"      {'':<12}do: {shown(each.fix)}\n")
