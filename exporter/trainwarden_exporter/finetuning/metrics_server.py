"""`trainwarden metrics-server`: a sidecar that serves the file that a training writes about itself."""

from __future__ import annotations

import argparse
import logging
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.command_line import duration_seconds
from trainwarden.errors import UsageError
from trainwarden.service_log import FORMATS, log_to_stderr
from trainwarden_exporter.core.node import node_from_flags
from trainwarden_exporter.core.shared_state import SharedState
from trainwarden_exporter.core.spec import Context
from trainwarden_exporter.finetuning.collector import TrainingInfoCollector
from trainwarden_exporter.finetuning.job import JobLabels
from trainwarden_exporter.finetuning.metrics_exporter import default_address
from trainwarden_exporter.flags import Parser
from trainwarden_exporter.flags import build_parser as flags_parser
from trainwarden_exporter.registry import AMD, NVIDIA
from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.sampling.sampler import Sampler
from trainwarden_exporter.sampling.task import single_task
from trainwarden_exporter.web.pages import ExporterPages

if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwarden_exporter.sampling.task import CollectorRunner

log = logging.getLogger(__name__)

DEFAULT_PORT = 8000
TIMEOUT_SECONDS = 10.0
FINE, MISUSE, INTERRUPTED = 0, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Serve until SIGTERM or SIGINT; returns the exit status."""
    arguments = build_parser().parse_args(argv)
    log_to_stderr(arguments.log_level.upper(), log_format=arguments.log_format)
    # Blocked before any thread is started, so that each inherits the mask; received by sigwait.
    signals = {signal.SIGTERM, signal.SIGINT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        received = serve(arguments, signals)
    except UsageError as error:
        print(f"trainwarden metrics-server: {error}", file=sys.stderr)
        return MISUSE
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    log.info("ended by %s", received.name)
    return INTERRUPTED if received == signal.SIGINT else FINE


def serve(arguments: argparse.Namespace, signals: set[signal.Signals]) -> signal.Signals:
    """Serve until one of the signals comes, and return it; raise `UsageError` if the address is taken."""
    gpus = create_gpu_collectors() if arguments.gpus else []
    labels = JobLabels(arguments.job_name, arguments.model_id, arguments.method)
    collector = TrainingInfoCollector(arguments.training_info, labels, gpus)
    collection = Collection([Sampler(single_task(collector, arguments.interval, TIMEOUT_SECONDS))], gpus)
    try:
        server = ExporterPages(collection).server([(arguments.listen_address, arguments.port)])
    except OSError as error:
        raise UsageError(
            f"--listen-address, --port: {error.filename}: {error.strerror}; expected an address that is free"
        ) from error
    with server:
        for runner in (*gpus, *collection.runners):
            runner.start()
        server.start()
        log.info("serving /metrics on %s", server.bound[0])
        received = signal.Signals(signal.sigwait(signals))
        server.stop()
        collection.stop()
        for runner in gpus:
            runner.stop()
    return received


def create_gpu_collectors() -> list[CollectorRunner]:
    """Return the exporter's GPU collectors with their defaults, one for each vendor that has a GPU here."""
    flags = vars(flags_parser().parse_args([]))
    node = node_from_flags(flags)
    found = []
    for spec in (NVIDIA, AMD):
        context = Context(spec.name, node, flags, SharedState())
        if spec.enabled(context):
            try:
                found.append(spec.create(context))
            except UsageError as error:
                log.warning("no GPU values of %s: %s", spec.help, error)
    return found


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command."""
    parser = Parser(
        prog="trainwarden metrics-server",
        description="Serves the file that a training writes about itself as Prometheus metrics, finetuning_….",
        allow_abbrev=False,
    )
    parser.add_argument("--job-name", required=True, metavar="NAME", help="the label job_name")
    parser.add_argument("--model-id", default="", metavar="MODEL", help="the label model_id")
    parser.add_argument("--method", default="", metavar="METHOD", help="the label method, such as lora")
    parser.add_argument(
        "--training-info",
        type=Path,
        metavar="FILE",
        help="a file that the training writes, or a folder: training_info.json, trainer_log.jsonl, trainer_state.json,"
        " a run record; it may appear later",
    )
    parser.add_argument("--port", type=_port, default=DEFAULT_PORT, help="where to listen (default %(default)s)")
    parser.add_argument(
        "--listen-address",
        default=default_address(),
        metavar="HOST",
        help="address to listen on, 0.0.0.0 for every one (default: 127.0.0.1, in a pod every one)",
    )
    parser.add_argument(
        "--interval",
        type=duration_seconds,
        default="2s",
        metavar="DURATION",
        help="pause between two reads of the file (default %(default)s)",
    )
    parser.add_argument(
        "--gpus",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="export the values of this node's GPUs as the job's, where they can be read (default: yes)",
    )
    parser.add_argument("--log.level", dest="log_level", choices=("debug", "info", "warning", "error"), default="info")
    parser.add_argument("--log.format", dest="log_format", choices=FORMATS, default="text")
    return parser


def _port(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is no port: expected a number from 0 to 65535")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
