"""`trainwarden scan`: name the cause of a failure from the logs that it left behind.

Exit status: 0 nothing is wrong, 1 a failure was found, 2 misuse or a log that can't be read to its end, 3 nothing was
found, but a part of a log could not be searched.
"""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence

from trainwarden.command_line import CommandLine
from trainwarden.scan.meter import Meter
from trainwarden.scan.reading import Log, read_log
from trainwarden.scan.report import printable, report, report_document
from trainwarden.scan.source import UnreadableLog, open_source
from trainwarden.scan.verdicts import Finding, of_one, of_ranks
from trainwarden.signals.model import Signal
from trainwarden.signals.pack import DEFAULT_PACK, PackError, load_pack, shipped_packs
from trainwarden.signals.scanner import Scanner

# Of several logs, the status of the one that is the last here.
_STATUSES = (0, 3, 1, 2)
_BEGINNING = {"offset": 0, "line": 1, "skipping": False, "off": {}}


def main(argv: list[str]) -> int:
    """Scan the files and print a report of each."""
    parser = _parser()
    arguments = parser.parse_args(argv)
    files: list[str] = arguments.files
    if files.count("-") > 1:
        parser.error("standard input can be read once only: - stands there twice")
    try:
        signals = _signals(arguments.signals or [DEFAULT_PACK])
    except PackError as error:
        parser.error(str(error))
    return _scan(files, signals, arguments)


def _parser() -> argparse.ArgumentParser:
    parser = CommandLine(
        prog="trainwarden scan",
        description="Name the cause of a failure from logs.",
        epilog="exit status: 0 nothing is wrong; 1 a failure was found; 2 misuse, or a log that can't be read; "
        "3 nothing was found, but a part could not be searched.",
    )
    parser.add_argument("files", nargs="+", metavar="FILE", help="a log, compressed or not; - is standard input")
    parser.add_argument(
        "--signals", action="append", metavar="PACK",
        help=f"a file of signals, or one of {', '.join(shipped_packs())}; several add up (default: {DEFAULT_PACK})",
    )  # fmt: skip
    parser.add_argument("--format", choices=("text", "json"), default="text", help="json: one object a line, per FILE")
    parser.add_argument("--explain", action="store_true", help="say why it counts, and why the rest does not")
    parser.add_argument("--together", action="store_true", help="the logs are of one attempt's ranks: one verdict")
    return parser


def _signals(packs: Sequence[str]) -> tuple[Signal, ...]:
    """Return the signals by name; the later pack wins."""
    signals: dict[str, Signal] = {}
    for pack in packs:
        signals.update((signal.name, signal) for signal in load_pack(pack).signals)
    if not signals:
        raise PackError(f"--signals {', '.join(packs)}: holds no signal that can be used")
    return tuple(signals.values())


def _scan(files: Sequence[str], signals: Sequence[Signal], arguments: argparse.Namespace) -> int:
    status = 0
    is_text = arguments.format == "text"
    for finding in _findings(files, signals, with_context=is_text, together=arguments.together):
        for log in finding.logs:
            if log.error is not None:
                print(f"trainwarden scan: {printable(log.name)}: {printable(log.error)}", file=sys.stderr)
            if log.blind is not None:
                print(f"trainwarden scan: {printable(log.name)}: {printable(log.blind)}", file=sys.stderr)
        status = max(status, _status(finding), key=_STATUSES.index)
        if is_text and all(log.is_unread for log in finding.logs):
            # The reason was printed already.
            continue
        text = report(finding, explain=arguments.explain) if is_text else json.dumps(report_document(finding)) + "\n"
        # The terminal's encoding may lack characters of the log.
        sys.stdout.write(text.encode(sys.stdout.encoding, "backslashreplace").decode(sys.stdout.encoding))
        sys.stdout.flush()
    return status


def _status(finding: Finding) -> int:
    if any(log.error is not None for log in finding.logs):
        return 2
    if finding.verdict:
        return 1
    return 0 if finding.is_whole else 3


def _findings(
    files: Sequence[str], signals: Sequence[Signal], *, with_context: bool, together: bool
) -> Iterator[Finding]:
    scanner = Scanner(signals)
    logs = (_log(file, scanner, with_context) for file in files)
    if together:
        yield of_ranks(tuple(logs))
    else:
        yield from map(of_one, logs)


def judge_log(file: str) -> Finding:
    """Return what the default signals find in one log; its `logs` hold the error of one that cannot be read."""
    return of_one(_log(file, Scanner(_signals([DEFAULT_PACK])), with_context=False))


def _log(file: str, scanner: Scanner, with_context: bool) -> Log:
    # Reuse the scanner: building one takes as long as reading many megabytes. A pattern too slow for one log stays off.
    scanner.restore(_BEGINNING)
    try:
        with open_source(file) as source:
            meter = Meter(source.size)
            try:
                return read_log(file, source, scanner, with_context=with_context, on_read=meter.update)
            finally:
                meter.clear()
    except UnreadableLog as error:
        return Log(file, error=str(error), is_unread=True)
