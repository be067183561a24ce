"""The command `trainwarden-exporter`."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
import threading
from typing import TYPE_CHECKING, Any

from trainwarden.record.folder import replace_file
from trainwarden_exporter.errors import UsageError
from trainwarden_exporter.flags import build_parser
from trainwarden_exporter.members import members, node_of
from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.sampling.isolated import LOG_FORMAT
from trainwarden_exporter.web.server import ExporterServer

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

log = logging.getLogger(__name__)

TRANSITIONS = "trainwarden_exporter.runs.transitions"
FINE, MISUSE, INTERRUPTED = 0, 2, 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run the exporter until SIGTERM or SIGINT; returns the exit status."""
    flags = vars(build_parser().parse_args(argv))
    logging.basicConfig(stream=sys.stderr, level=flags["log.level"].upper(), format=LOG_FORMAT)
    if flags["once"]:
        logging.getLogger(TRANSITIONS).setLevel(logging.WARNING)  # nothing starts or ends in one look
    try:
        collection = Collection(members(node_of(flags), flags))
        return collect_once(collection) if flags["once"] else serve(collection, flags)
    except UsageError as error:
        print(f"trainwarden-exporter: {error}", file=sys.stderr)
        return MISUSE
    except KeyboardInterrupt:
        return INTERRUPTED


def collect_once(collection: Collection) -> int:
    """Print one page, whatever came of each collector: the page says it."""
    collection.sample_once()
    by_name = {member.name: member for member in collection.members}
    if {"runs", "logs"} <= by_name.keys():
        # The logs are those of the runs, and a run's page says what its logs say.
        for name in ("logs", "runs"):
            by_name[name].sample_once()
    if "finetuning" in by_name:
        by_name["finetuning"].sample_once()  # a view of the others
    sys.stdout.buffer.write(collection.page())
    sys.stdout.flush()
    collection.stop()
    return FINE


def serve(collection: Collection, flags: dict[str, Any]) -> int:
    """Serve until a signal comes."""
    # Waited for, not handled: the kernel may give a signal to any thread, and a handler runs only once the main thread
    # comes back from a wait that the signal did not interrupt. Blocked first, so that every thread inherits it.
    signals = {signal.SIGTERM, signal.SIGINT}
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        with open_server(collection, flags) as server, port_file(flags["web.port_file"], server.bound):
            collection.start()
            threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
            log.info("serving %s on %s", flags["web.telemetry_path"], server.bound)
            received = signal.sigwait(signals)
            collection.stop()
            server.shutdown()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    log.info("ended by %s", signal.Signals(received).name)
    return INTERRUPTED if received == signal.SIGINT else FINE


def open_server(collection: Collection, flags: dict[str, Any]) -> ExporterServer:
    """Return a server that listens; raises `UsageError` if the address cannot be had."""
    address = flags["web.listen_address"]
    try:
        return ExporterServer(address, collection, flags["web.telemetry_path"], flags["web.max_requests"])
    except OSError as error:
        shown = f"{address[0]}:{address[1]}"
        raise UsageError(f"--web.listen-address {shown}: {error.strerror}; expected an address that is free") from error


@contextlib.contextmanager
def port_file(path: Path | None, bound: str) -> Iterator[None]:
    """Keep `bound` in a file for as long as it is true."""
    if path is None:
        yield
        return
    try:
        replace_file(path, bound.encode() + b"\n")
    except OSError as error:
        raise UsageError(f"--web.port-file {path}: {error.strerror}; expected a file in a writable folder") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            path.unlink()
