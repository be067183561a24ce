"""The pages of the documents that are made from the program: docs/metrics.md and docs/exporter-flags.md.

usage: python -m trainwarden_exporter.docs metrics|flags
"""

from __future__ import annotations

import argparse
import re
import sys
from typing import TYPE_CHECKING

from trainwarden_exporter import dcgm
from trainwarden_exporter.collectors import clock, process
from trainwarden_exporter.collectors.gpu import link_metrics as gpu_links
from trainwarden_exporter.collectors.gpu import metrics as gpu
from trainwarden_exporter.collectors.gpu import node_metrics as gpu_node
from trainwarden_exporter.collectors.gpu.nvml import activity_metrics as gpu_activity
from trainwarden_exporter.collectors.gpu.nvml import mig_metrics as gpu_mig
from trainwarden_exporter.collectors.gpu.nvml import xid_metrics as gpu_xid
from trainwarden_exporter.collectors.gpu_jobs import metrics as gpu_jobs
from trainwarden_exporter.collectors.gpu_pods import metrics as gpu_pods
from trainwarden_exporter.collectors.kernel import metrics as kernel
from trainwarden_exporter.collectors.logs import metrics as logs
from trainwarden_exporter.collectors.ray import metrics as ray
from trainwarden_exporter.collectors.rdma import efa_metrics as efa
from trainwarden_exporter.collectors.rdma import infiniband_metrics as infiniband
from trainwarden_exporter.collectors.runs import filesystem_metrics as run_filesystems
from trainwarden_exporter.collectors.runs import metrics as runs
from trainwarden_exporter.collectors.runs import rank_metrics as run_ranks
from trainwarden_exporter.collectors.s3 import metrics as s3
from trainwarden_exporter.collectors.slurm import metrics as slurm
from trainwarden_exporter.collectors.transport import metrics as transport
from trainwarden_exporter.configuration.settings import COMMAND_LINE_ONLY
from trainwarden_exporter.core import node
from trainwarden_exporter.core.metric import Metric
from trainwarden_exporter.finetuning import metrics as finetuning
from trainwarden_exporter.flag_groups import groups
from trainwarden_exporter.flags import build_parser
from trainwarden_exporter.sampling import metrics as own

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import ModuleType

_SECTIONS = {
    "Runs": runs,
    "Ranks of runs": run_ranks,
    "File systems of runs": run_filesystems,
    "Logs": logs,
    "Networks of runs": transport,
    "GPUs": gpu,
    "Activity of GPUs": gpu_activity,
    "Links of GPUs": gpu_links,
    "XID errors of GPUs": gpu_xid,
    "MIG instances": gpu_mig,
    "GPUs of the node together": gpu_node,
    "Jobs of GPUs": gpu_jobs,
    "Pods of GPUs": gpu_pods,
    "EFA": efa,
    "InfiniBand": infiniband,
    "Kernel": kernel,
    "Clock": clock,
    "Names of the node": node,
    "SLURM": slurm,
    "Ray": ray,
    "Records in S3": s3,
    "The exporter's process": process,
    "Runs by the names of the fine-tuning exporter": finetuning,
    "GPUs by the names of dcgm-exporter": dcgm,
    "The exporter itself": own,
}


def defined_in(module: ModuleType) -> Iterator[Metric]:
    """Yield the metrics that a module defines: its constants, and the values of its tables."""
    for value in vars(module).values():
        if isinstance(value, Metric):
            yield value
        elif isinstance(value, dict):
            yield from (each for each in value.values() if isinstance(each, Metric))


METRICS = {metric.name: metric for module in _SECTIONS.values() for metric in defined_in(module)}

_METRICS_HEAD = """\
# Metrics of the exporter

Made from the program by `python -m trainwarden_exporter.docs metrics > docs/metrics.md`; change them there.

A value that could not be read is not exported: missing is not zero. What is exported when, and by which
exporter, is in [exporter.md](exporter.md). Below each table is a query for each of its metrics; its
threshold is a start, to be moved to what is usual on your nodes."""


def metrics_page() -> str:
    """Return docs/metrics.md."""
    lines = [_METRICS_HEAD]
    for title, module in _SECTIONS.items():
        found = list(defined_in(module))
        lines += ["", f"## {title}", "", "| metric | type | unit | labels | meaning | from |", "|---" * 6 + "|"]
        for metric in found:
            labels = ", ".join(f"`{label}`" for label in metric.label_names)
            cells = (f"`{metric.name}`", metric.kind, metric.unit, labels, metric.help, metric.source)
            lines.append(f"| {' | '.join(cells)} |")
        # Not in the table: there a `|` has to be escaped, and what is copied from the file itself is no query.
        lines += ["", "```promql", *_examples(found), "```"]
    return "\n".join(lines) + "\n"


def _examples(metrics: Sequence[Metric]) -> list[str]:
    """Return each query once, below the names of the metrics that it is for."""
    named: dict[str, list[str]] = {}
    for metric in metrics:
        named.setdefault(metric.example, []).append(metric.name)
    return [line for query, names in named.items() for line in (f"# {', '.join(names)}", query)]


_FLAGS_HEAD = """\
# Flags of the exporter

Made from the program by `python -m trainwarden_exporter.docs flags > docs/exporter-flags.md`; change them there.

Each is a key of [`--config.file`](exporter.md#configuration) too, but for those marked *command line*. Durations are
numbers of seconds or written as in Prometheus: `500ms`, `2s`, `1h30m`, `1d`. Sizes are numbers of bytes or carry a
unit: `512KiB`, `64MiB`, `1GiB`. `--help` shows the usual ones,
`--help=NAME` those of a collector or of another group, such as `--help=runs` or `--help=web`, `--help-all` all.
"""

_DEFAULT_IN_HELP = re.compile(r" ?\(default:? (.*)\)")


def flags_page() -> str:
    """Return docs/exporter-flags.md."""
    sections = [_FLAGS_HEAD]
    for group in groups(build_parser().flags()):
        title = f"`{group.collector}`: {group.title}" if group.collector else group.title
        sections.append(_section(title, group.flags))
    return "\n".join(sections)


def _section(title: str, actions: Iterable[argparse.Action]) -> str:
    rows = [_row(action) for action in actions]
    return "\n".join([f"## {title}", "", "| flag | default | meaning |", "|---|---|---|", *rows, ""])


def _row(action: argparse.Action) -> str:
    options = ", ".join(f"`{option}`" for option in action.option_strings)
    values = action.metavar or ("\\|".join(map(str, action.choices)) if action.choices else "")
    # What depends on where this is written is not written.
    shown = "the host name" if action.dest == "instance_host" else action.default
    text = (action.help or "") % {"default": f"`{shown}`"}
    match = _DEFAULT_IN_HELP.search(text)
    default = match[1] if match else ""
    if isinstance(action.default, bool):  # argparse adds a default to its help in some versions of Python only
        default = "on" if action.default else ""
    if not default and isinstance(action.default, str) and action.default != argparse.SUPPRESS:
        default = f"`{action.default}`"
    meaning = _DEFAULT_IN_HELP.sub("", text) + ("; *command line*" if action.dest in COMMAND_LINE_ONLY else "")
    return f"| {options}{f' {values}' if values else ''} | {_cell(default)} | {_cell(meaning)} |"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("<", "&lt;").replace("\n", " ").strip()


PAGES = {"metrics": metrics_page, "flags": flags_page}


def main(argv: Sequence[str]) -> int:
    """Print one page; return the exit status."""
    if len(argv) != 1 or argv[0] not in PAGES:
        print(f"usage: python -m trainwarden_exporter.docs {'|'.join(PAGES)}", file=sys.stderr)
        return 2
    print(PAGES[argv[0]](), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
