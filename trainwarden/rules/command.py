"""`trainwarden rules`: the rule files with a team's own values, and values from a team's own history."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from trainwarden.clients.http import HttpAuth, HttpClient, HttpError, read_token
from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden.command_line import CommandLine, duration_seconds
from trainwarden.errors import UsageError
from trainwarden.rules.build import FORMATS, Rules, write
from trainwarden.rules.suggest import ENOUGH_MINUTES, budgets, lines, short_history, suggest, thresholds_of
from trainwarden.rules.values import table
from trainwarden.runs.arguments import service_url


def main(argv: list[str]) -> int:
    """Run one of build, suggest and values; return 0, 1 if Prometheus does not answer, 2 if a file is wrong."""
    arguments = _parser().parse_args(argv)
    try:
        return int(arguments.run(arguments))
    except UsageError as error:
        print(f"trainwarden rules: {error}", file=sys.stderr)
        return 2


def _parser() -> argparse.ArgumentParser:
    parser = CommandLine(prog="trainwarden rules", description="Make the rule files that a Prometheus loads.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    build = commands.add_parser("build", help="write the rule files with your own values")
    build.add_argument("--values", type=Path, metavar="FILE", help="your values; the defaults if not given")
    build.add_argument("--out", type=Path, metavar="DIR", required=True, help="the folder to write to")
    build.add_argument(
        "--format",
        choices=FORMATS,
        default=FORMATS[0],
        help="files as Prometheus and Thanos read them (default), PrometheusRule objects, or files for mimirtool",
    )
    build.set_defaults(run=_build)
    suggested = commands.add_parser("suggest", help="propose values from what your Prometheus has seen")
    suggested.add_argument(
        "--prometheus", type=service_url, metavar="URL", required=True, help="address of your Prometheus"
    )
    suggested.add_argument("--token-file", type=Path, metavar="FILE", help="with the bearer token that it asks for")
    suggested.add_argument("--days", type=_days, default=14, help="how far back to look (%(default)s)")
    suggested.add_argument("--margin", type=_margin, default=1.5, help="how far beyond what is usual (%(default)s)")
    suggested.add_argument("--values", type=Path, metavar="FILE", help="your present values; the defaults if not given")
    suggested.add_argument("--out", type=Path, metavar="FILE", help="the file to write; printed if not given")
    suggested.add_argument(
        "--timeout", type=duration_seconds, default=120.0, help="seconds for each query (%(default)g)"
    )
    suggested.set_defaults(run=_suggest)
    values = commands.add_parser("values", help="list the values that can be changed")
    values.set_defaults(run=_values)
    return parser


def _build(arguments: argparse.Namespace) -> int:
    rules = Rules(arguments.values)
    written = write(rules, arguments.format, arguments.out)
    for name, text in rules.settings.values.items():
        if text != rules.values[name].default:
            print(f"{name}: {text} instead of {rules.values[name].default}")
    for name, change in rules.settings.alerts.items():
        for line in change.described(rules.settled(name)):
            print(f"{name}: {line}")
    for label, text in rules.settings.labels.items():
        print(f"all alerts: label {label}={text}")
    group = max((group for file in rules.files for group in file.groups), key=lambda each: len(each["rules"]))
    print(
        f"{len(written)} files in {arguments.out}; the largest group, {group['name']}, has {len(group['rules'])} rules"
    )
    return 0


def _suggest(arguments: argparse.Namespace) -> int:
    rules = Rules(arguments.values)
    end = time.time()
    if arguments.token_file:
        try:
            read_token(arguments.token_file)  # which is read again for each request
        except HttpError as error:
            raise UsageError(f"--token-file {error}") from None
    try:
        auth = HttpAuth(token_file=arguments.token_file)
        client = PrometheusClient(HttpClient(arguments.prometheus, arguments.timeout, auth=auth))
        asked = {"end": end, "days": arguments.days, "margin": arguments.margin}
        of_rules = list(suggest(client, thresholds_of(rules, rules.values.values()), **asked))
        of_runs = list(suggest(client, budgets(client, end, arguments.days), **asked))
    except PrometheusError as error:
        print(f"trainwarden rules suggest: {error}", file=sys.stderr)
        return 1
    text = "".join(f"{line}\n" for line in lines(of_rules, of_runs, days=arguments.days))
    seen = max((each.minutes for each in [*of_rules, *of_runs]), default=0)
    if seen < ENOUGH_MINUTES:
        print(f"trainwarden rules suggest: {short_history(seen)}", file=sys.stderr)
    if arguments.out is None:
        print(text, end="")
        return 0
    try:
        arguments.out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"--out {arguments.out}: {error.strerror}, expected a file to write") from None
    proposed = sum(each.proposed is not None for each in of_rules)
    print(f"{proposed} values and {len(of_runs)} budgets of runs in {arguments.out}")
    return 0


def _days(text: str) -> int:
    if not (text.isascii() and text.isdigit()) or not 1 <= int(text) <= 366:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a number of days from 1 to 366")
    return int(text)


def _margin(text: str) -> float:
    try:
        margin = float(text)
    except ValueError:
        margin = 0.0
    if not 1 <= margin <= 100:
        raise argparse.ArgumentTypeError(f"{text!r}, expected a factor from 1 to 100")
    return margin


def _values(arguments: argparse.Namespace) -> int:  # noqa: ARG001  # called like the others
    print(table(list(Rules().values.values())), end="")
    return 0
