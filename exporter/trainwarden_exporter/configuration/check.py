"""`trainwarden-exporter check-config`: tells whether a configuration is right, and starts nothing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden_exporter.configuration.settings import read_flags
from trainwarden_exporter.errors import UsageError
from trainwarden_exporter.flags import Parser
from trainwarden_exporter.members import node_of, wanted
from trainwarden_exporter.web.access import access_of
from trainwarden_exporter.web.configuration import read_web_settings

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMAND = "check-config"


def check(argv: Sequence[str]) -> None:
    """Check the files that a command line names; raises `UsageError` if one is wrong, `SystemExit` if it names none."""
    parser = Parser(prog=f"trainwarden-exporter {COMMAND}", description="Tells whether a configuration is right.")
    parser.add_argument("file", type=Path, nargs="?", metavar="FILE", help="as for --config.file")
    parser.add_argument("--web.config.file", type=Path, metavar="FILE", help="as for trainwarden-exporter")
    given = vars(parser.parse_args(argv))
    file, web = given["file"], given["web.config.file"]
    if file is None and web is None:
        parser.error("no file is named, expected FILE or --web.config.file")
    if file is not None:
        flags = read_flags([f"--config.file={file}"])
        names = [kind.name for kind in wanted(node_of(flags), flags)]
        if flags["compat.finetuning"] and "runs" not in names:
            raise UsageError(f"{file}: key compat.finetuning: expected collector.runs as well, whose runs it shows")
        print(f"{file}: right; here it runs {', '.join(names)}")
        web = web or flags["web.config.file"]
    if web is not None:
        access_of(read_web_settings(web), web)
        print(f"{web}: right")
