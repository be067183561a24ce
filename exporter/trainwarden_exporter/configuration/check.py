"""`trainwarden-exporter check-config`: check a configuration, and start nothing."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainwarden.errors import UsageError
from trainwarden.server.web_config import access_of, read_web_settings
from trainwarden_exporter.collector_set import describe_off, select_on
from trainwarden_exporter.configuration.settings import read_flags
from trainwarden_exporter.core.node import node_from_flags
from trainwarden_exporter.core.runs_folder import UNPROTECTED, is_unprotected, runs_folder, runs_folder_exists
from trainwarden_exporter.flag_values import some_path
from trainwarden_exporter.flags import Parser

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

COMMAND = "check-config"


def check(argv: Sequence[str]) -> None:
    """Check the files that a command line names; raises `UsageError` if one is wrong, `SystemExit` if it names none."""
    parser = Parser(prog=f"trainwarden-exporter {COMMAND}", description="Checks whether a configuration is right.")
    parser.add_argument("file", type=some_path, nargs="?", metavar="FILE", help="as for --config.file")
    parser.add_argument("--web.config.file", type=some_path, metavar="FILE", help="as for trainwarden-exporter")
    given = vars(parser.parse_args(argv))
    file, web = given["file"], given["web.config.file"]
    if file is None and web is None:
        parser.error("no file is named, expected FILE or --web.config.file")
    if file is not None:
        flags = read_flags([f"--config.file={file}"])
        # As `--once` it locks and makes no folder of state, which would be this user's and not the service's.
        flags["once"] = True
        names = [spec.name for spec in select_on(node_from_flags(flags), flags)]
        warnings = list(_warnings(flags, names))
        if "logs" in names:
            _check_pack(flags["collector.logs.signals"])
        print(f"{file}: right; collectors that run here: {', '.join(names)}")
        if off := describe_off(names, flags):
            print(f"off here: {off}")
        for warning in warnings:
            print(f"{file}: warning: {warning}", file=sys.stderr)
        web = web or flags["web.config.file"]
    if web is not None:
        tls = access_of(read_web_settings(web), web).tls
        print(f"{web}: right")
        if tls is not None and tls.warning:
            print(f"{web}: warning: {tls.warning.removeprefix(f'{web}: ')}", file=sys.stderr)


def _check_pack(name: str) -> None:
    """Raise `UsageError` if the signal pack cannot be read."""
    from trainwarden.signals.pack import PackError, read_pack  # noqa: PLC0415  # YAML, for logs alone

    try:
        read_pack(name)
    except PackError as error:
        raise UsageError(f"--collector.logs.signals {name}: {error}") from error


def _warnings(flags: Mapping[str, Any], names: Container[str]) -> Iterator[str]:
    """Yield a warning for each value that is valid but seldom meant; raises `UsageError` if runs cannot be read."""
    if "runs" in names and not runs_folder_exists(runs_folder(flags)):
        yield f"--collector.runs.path {runs_folder(flags)} does not exist yet"
    if "runs" in names and is_unprotected(runs_folder(flags)):
        yield f"--collector.runs.path {runs_folder(flags)}: {UNPROTECTED}"
    for name, value in sorted(flags.items()):
        for path in value if isinstance(value, list) else [value]:
            if isinstance(path, Path) and ("$" in str(path) or str(path).startswith("~")):
                yield f"--{name.replace('_', '-')} {path} is taken letter by letter, without variables and ~"
