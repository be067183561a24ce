"""`trainwarden checkpoints`: list checkpoints, and which of them can be resumed from."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from trainwarden.checkpoint import set_aside
from trainwarden.checkpoint.find import FoundCheckpoint, SearchResult, search
from trainwarden.checkpoint.verdict import TRUSTS, CheckpointVerdict, printable
from trainwarden.checkpoint.verify import TIMEOUT_SECONDS
from trainwarden.command_line import CommandLine, timeout_seconds

_STATUS = {"complete": 0, "incomplete": 1, "unverifiable": 3}


def main(argv: list[str]) -> int:
    """Print the checkpoints. Return 0 if one is complete, 1 if none is, 2 if the path is unreadable, 3 if unknown."""
    if argv[:1] == ["set-aside"]:
        return set_aside.main(argv[1:])
    parser = CommandLine(
        prog="trainwarden checkpoints",
        description="List the checkpoints in a folder or an S3 prefix, and whether they are complete.",
        epilog="trainwarden checkpoints set-aside PATH moves a damaged one out of the way. "
        "exit status: 0 the one to resume from is complete; 1 none is; 2 PATH cannot be read; 3 cannot tell",
    )
    parser.add_argument("path", metavar="PATH|s3://BUCKET/PREFIX", help="what holds checkpoints, or is one")
    parser.add_argument("--newest", action="store_true", help="print the path to resume from, and nothing else")
    parser.add_argument("--format", choices=("text", "json"), default="text")
    parser.add_argument("--timeout", type=timeout_seconds, default=TIMEOUT_SECONDS, help="seconds for all of it (60)")
    parser.add_argument(
        "--trust",
        choices=TRUSTS,
        default=TRUSTS[0],
        help="what is complete: what a known LAYOUT promises (default); whatever shows no defect, where you vouch for "
        "it (COMPLETE); what digests prove alone (NONE)",
    )
    parser.add_argument("--whole", action="store_true", help="compare each file that has a digest as a whole")
    arguments = parser.parse_args(argv)
    result = search(
        arguments.path,
        every=not arguments.newest,
        seconds=arguments.timeout,
        trust=arguments.trust,
        whole=arguments.whole,
    )
    if result.problem:
        print(f"trainwarden checkpoints: {printable(result.problem)}", file=sys.stderr)
        return 2
    if arguments.format == "json":
        print(json.dumps(_document(arguments.path, result, newest=arguments.newest)))
    elif arguments.newest:
        _print_newest(result)
    else:
        _print_all(arguments.path, result)
    return _STATUS[result.best[1].answer] if result.best else 1


def _print_newest(result: SearchResult) -> None:
    """Print the path alone to stdout, as raw bytes for scripts; the reasons to stderr."""
    for found, verdict in _verified(result):
        print(f"{printable(found.path)} is {verdict}", file=sys.stderr)
    for remark in result.remarks:
        print(printable(remark), file=sys.stderr)
    if result.best and result.best[1].answer != "incomplete":
        sys.stdout.flush()
        sys.stdout.buffer.write(os.fsencode(result.best[0].path) + b"\n")
        sys.stdout.buffer.flush()


def _print_all(path: str, result: SearchResult) -> None:
    if not result.candidates:
        print(f"no checkpoint in {printable(path)}")
    for found, verdict in _verified(result):
        step = "-" if found.step is None else str(found.step)
        is_best = result.best is not None and found is result.best[0] and verdict.answer != "incomplete"
        mark = "*" if is_best else " "
        print(f"{mark} {verdict.answer:<12}  step {step:<10}  {printable(found.path)}")
        for line in verdict.evidence:
            print(f"      {line}")
    more = len(result.candidates) - len(result.verdicts)
    if more > 0:
        print(f"  {more} older ones were not verified")
    for remark in result.remarks:
        print(f"  {printable(remark)}")


def _verified(result: SearchResult) -> list[tuple[FoundCheckpoint, CheckpointVerdict]]:
    return [(found, result.verdicts[found.path]) for found in result.candidates if found.path in result.verdicts]


def _document(path: str, result: SearchResult, *, newest: bool) -> dict[str, Any]:
    best = result.best and _entry(*result.best)
    document: dict[str, Any] = {"path": path, "newest": best, "remarks": list(map(printable, result.remarks))}
    if not newest:
        document["checkpoints"] = [_entry(found, verdict) for found, verdict in _verified(result)]
        document["not_verified"] = len(result.candidates) - len(result.verdicts)
    return document


def _entry(found: FoundCheckpoint, verdict: CheckpointVerdict) -> dict[str, Any]:
    return {
        "path": found.path,
        "step": found.step,
        "tracked": found.tracked,
        "answer": verdict.answer,
        "layouts": list(verdict.layouts),
        "evidence": list(verdict.evidence),
    }
