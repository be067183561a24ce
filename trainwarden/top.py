"""`trainwarden top`: all runs and, with a Prometheus, their nodes, as a table that is kept up to date.

The live view needs rich (`pip install 'trainwarden[top]'`); `--once` and `--json` need nothing.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden.command_line import CommandLine
from trainwarden.errors import UsageError
from trainwarden.redaction import plain
from trainwarden.runs.arguments import add_stale_argument, interval_seconds, service_url, stale_seconds
from trainwarden.runs.assessment import BAD, ENDED, UNKNOWN, Assessment, assess, eta_seconds
from trainwarden.runs.places import CannotRead, RecordFolder, RecordPrefix, add_place_arguments, open_place
from trainwarden.runs.status import step_text
from trainwarden.runs.table import age_text, duration_text, number_text, print_table, shown

_INTERVAL_SECONDS = 5.0
# Runs that have ended are shown for a day.
_RECENT_SECONDS = 86_400.0
_RUNS = ("RUN", "STATUS", "PHASE", "STEP", "LEFT", "LOSS", "TOKENS/S", "LAST SIGN", "REASON")
_NODES = ("NODE", "GPUS", "LOST", "BUSY", "MEMORY", "HOTTEST")
_REASON_LENGTH = 60
# Left out of a narrow window, in this order; a cell that is cut would be a wrong number.
_LEFT_OUT = ("TOKENS/S", "LEFT", "MEMORY", "LOSS", "PHASE", "HOTTEST", "LAST SIGN", "BUSY", "REASON")
# These are folded instead, to so many characters at least.
_FOLDED = {"RUN": 24, "REASON": 14}
_GAP = 2


@dataclass(frozen=True)
class NodeLoad:
    """The GPUs of one exporter's node; what is unknown is None. `busy` and `memory` are ratios, `celsius` the most."""

    node: str
    gpus: int
    lost: int
    busy: float | None
    memory: float | None
    celsius: float | None


@dataclass(frozen=True)
class View:
    """What is shown at one moment."""

    time: float
    runs: tuple[Assessment, ...]
    nodes: tuple[NodeLoad, ...]
    problems: tuple[str, ...]

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON."""
        return {
            "runs": [run.to_json() for run in self.runs],
            "nodes": [vars(node) for node in self.nodes],
            "problems": list(self.problems),
        }


def main(argv: list[str]) -> int:
    """Show the table until interrupted, or once. Return 0 if all is well, 1 if not, 2 for misuse, 3 if unseen."""
    parser = CommandLine(
        prog="trainwarden top",
        description="Show all runs, and the nodes of a Prometheus, in a table that is kept up to date.",
        epilog="exit status with --once and --json: 0 all is well; 1 a run is not; 2 misuse; 3 cannot tell",
    )
    add_place_arguments(parser)
    parser.add_argument("--prometheus", type=service_url, metavar="URL", help="for the nodes")
    parser.add_argument("--interval", type=interval_seconds, default=_INTERVAL_SECONDS, help="default: 5 s")
    add_stale_argument(parser)
    parser.add_argument("--all", action="store_true", help="also runs that ended more than a day ago")
    parser.add_argument("--once", action="store_true", help="print the tables once, as plain text")
    parser.add_argument("--json", action="store_true", help="print them once, as JSON")
    arguments = parser.parse_args(argv)
    try:
        with open_place(arguments) as place:
            return _top(place, arguments)
    except UsageError as error:
        parser.error(plain(str(error)))
    except CannotRead as error:
        print(f"trainwarden top: {plain(str(error))}", file=sys.stderr)
        return 2 if error.is_final else 3
    return 2


def look(
    place: RecordFolder | RecordPrefix, client: PrometheusClient | None, stale: float | None, *, every: bool = False
) -> View:
    """Return the runs, those that need a person first, and the nodes. Raises UsageError and CannotRead.

    Args:
        place: of the records.
        client: of a Prometheus; None for no nodes.
        stale: a heartbeat older than this is stale; what each record states if None.
        every: also runs that ended more than a day ago.
    """
    names = place.names()
    if isinstance(place, RecordPrefix):
        place.fetch_all(names)
    now = time.time()
    folders = [(name, folder) for name in names if (folder := place.fetch(name)) is not None]
    is_copy = isinstance(place, RecordPrefix)
    runs = [assess(folder, now, stale, fetched=is_copy, run_id=name) for name, folder in folders]
    shown_runs = [run for run in runs if every or run.last_sign is None or now - run.last_sign < _RECENT_SECONDS]
    problems: list[str] = []
    nodes: list[NodeLoad] = []
    if client is not None:
        try:
            nodes = read_nodes(client)
        except PrometheusError as error:
            problems.append(plain(str(error)))
    return View(now, tuple(sorted(shown_runs, key=_order)), tuple(nodes), tuple(problems))


def read_nodes(client: PrometheusClient) -> list[NodeLoad]:
    """Return the nodes that have GPUs, by name; raises PrometheusError."""

    def by_node(expression: str) -> dict[str, float]:
        named = f"{expression} * on (instance) group_left (host) trainwarden_node_info"
        samples = client.query(named)
        return {each.labels.get("host") or each.labels.get("instance", ""): each.value for each in samples}

    count = by_node("count by (instance) (gpu_up)")
    lost = by_node("count by (instance) (gpu_up == 0)")
    busy = by_node("avg by (instance) (gpu_utilization_ratio)")
    used, size = (
        by_node("sum by (instance) (gpu_memory_used_bytes)"),
        by_node("sum by (instance) (gpu_memory_size_bytes)"),
    )
    hottest = by_node("max by (instance) (gpu_temperature_celsius)")
    return [
        NodeLoad(
            plain(node),
            int(count[node]),
            int(lost.get(node, 0)),
            busy.get(node),
            used[node] / size[node] if node in used and size.get(node) else None,
            hottest.get(node),
        )
        for node in sorted(count)
    ]


def _top(place: RecordFolder | RecordPrefix, arguments: argparse.Namespace) -> int:
    client = PrometheusClient(arguments.prometheus) if arguments.prometheus else None
    stale = stale_seconds(arguments)
    if arguments.once or arguments.json or not sys.stdout.isatty():
        view = look(place, client, stale, every=arguments.all)
        if arguments.json:
            print(json.dumps(view.to_json()))
        else:
            print_view(view)
        return _status(view)
    if find_spec("rich") is None:
        raise UsageError("the live table needs rich: pip install 'trainwarden[top]', or --once")
    _watch(place, client, stale, arguments)
    return 0


def print_view(view: View) -> None:
    """Print the tables as plain text."""
    print_table(_RUNS, [_run_row(run) for run in view.runs])
    if view.nodes:
        print()
        print_table(_NODES, [_node_row(node) for node in view.nodes])
    for problem in view.problems:
        print(f"trainwarden top: {problem}", file=sys.stderr)


def _watch(
    place: RecordFolder | RecordPrefix,
    client: PrometheusClient | None,
    stale: float | None,
    arguments: argparse.Namespace,
) -> None:
    from rich.console import Console, ConsoleDimensions, Group  # noqa: PLC0415  # an extra
    from rich.live import Live  # noqa: PLC0415
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    def table(columns: Sequence[str], rows: list[tuple[tuple[str, ...], str]]) -> Table:
        made = Table(box=None, pad_edge=False, header_style="bold")
        kept = fitting(columns, [cells for cells, _ in rows], console.width)
        for number in kept:
            name = columns[number]
            least = min(_FOLDED["RUN"], max((len(cells[number]) for cells, _ in rows), default=0))
            made.add_column(
                name, no_wrap=name not in _FOLDED, overflow="fold", min_width=least if name == "RUN" else None
            )
        for cells, style in rows:
            # As Text: what a record holds is no markup.
            made.add_row(*(Text(shown(cells[number])) for number in kept), style=style)
        return made

    def render(view: View) -> Group:
        bad = sum(run.is_bad for run in view.runs)
        clock = time.strftime("%H:%M:%S", time.localtime(view.time))
        head = f"{clock}  {len(view.runs)} runs, {bad} need a person  {place}  (Ctrl-C ends)"
        parts: list[Any] = [Text(shown(head)), Text()]
        parts.append(table(_RUNS, [(_run_row(run), _style(run)) for run in view.runs]))
        if view.nodes:
            parts += [Text(), table(_NODES, [(_node_row(node), "red" if node.lost else "") for node in view.nodes])]
        return Group(*parts, *(Text(shown(problem), style="yellow") for problem in view.problems))

    console = Console(no_color=bool(os.environ.get("NO_COLOR")) or None)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            try:
                view = look(place, client, stale, every=arguments.all)
            except CannotRead as error:
                view = View(time.time(), (), (), (plain(str(error)),))
            # rich prefers $COLUMNS and $LINES, which are of the window as it was when the command began.
            window = os.get_terminal_size(sys.stdout.fileno())
            if window.columns and window.lines:
                console.size = ConsoleDimensions(*window)
            live.update(render(view), refresh=True)
            time.sleep(arguments.interval)


def fitting(columns: Sequence[str], rows: Sequence[tuple[str, ...]], width: int) -> list[int]:
    """Return the numbers of the columns that a window of so many characters has room for, without cutting a cell."""

    def wanted(number: int) -> int:
        longest = max([len(columns[number]), *(len(cells[number]) for cells in rows)])
        return min(longest, _FOLDED.get(columns[number], longest))

    kept = list(range(len(columns)))
    for name in _LEFT_OUT:
        if sum(map(wanted, kept)) + _GAP * (len(kept) - 1) <= width:
            break
        kept = [number for number in kept if columns[number] != name]
    return kept


def _run_row(run: Assessment) -> tuple[str, ...]:
    progress = run.progress
    stalled = run.stall_seconds is not None and run.status == "RUNNING"
    reason = run.reason or (f"no new step for {duration_text(run.stall_seconds)}" if stalled else "")
    last = run.last_sign
    return (
        run.run_id,
        "STALLED" if stalled else run.status,
        run.phase or "-",
        step_text(run),
        duration_text(eta_seconds(run)),
        number_text(progress.loss if progress else None),
        number_text(progress.tokens_per_second if progress else None),
        age_text(None if last is None else run.time - last),
        reason if len(reason) <= _REASON_LENGTH else reason[: _REASON_LENGTH - 1] + "…",
    )


def _node_row(node: NodeLoad) -> tuple[str, ...]:
    return (
        node.node,
        str(node.gpus),
        str(node.lost),
        _percent(node.busy),
        _percent(node.memory),
        "-" if node.celsius is None else f"{node.celsius:.0f} °C",
    )


def _percent(ratio: float | None) -> str:
    return "-" if ratio is None or math.isnan(ratio) else f"{100 * ratio:.0f} %"


def _style(run: Assessment) -> str:
    if run.is_bad:
        return "yellow" if run.status == "WARNING" else "red"
    return "dim" if run.status in ENDED else ""


def _order(run: Assessment) -> tuple[bool, bool, float]:
    return not run.is_bad, run.status in ENDED, -(run.last_sign or 0.0)


def _status(view: View) -> int:
    if any(run.status in BAD or run.stall_seconds is not None for run in view.runs):
        return 1
    return 3 if view.problems or any(run.status == UNKNOWN for run in view.runs) else 0
