"""The command `trainwarden-exporter`."""

from __future__ import annotations

import contextlib
import logging
import signal
import sys
from typing import TYPE_CHECKING, Any

from trainwarden.capabilities import lower_read_search
from trainwarden.clients.process import keep_child_status
from trainwarden.command_line import discard_output
from trainwarden.errors import UsageError
from trainwarden.server.address import inherited_listeners, port_file
from trainwarden.server.limits import Limits
from trainwarden.server.web_config import ReloadingWebConfig
from trainwarden.service_log import log_to_stderr
from trainwarden_exporter.collector_set import CollectorSet
from trainwarden_exporter.configuration.check import COMMAND, check
from trainwarden_exporter.configuration.reload import Reload
from trainwarden_exporter.configuration.settings import read_flags
from trainwarden_exporter.core.memory import keep_one_arena, look_for_cycles_seldom, offer_to_oom_killer
from trainwarden_exporter.core.node import node_from_flags
from trainwarden_exporter.release import Release
from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.signal_queue import REQUESTS, SignalQueue
from trainwarden_exporter.web.pages import ExporterPages

if TYPE_CHECKING:
    import socket
    from collections.abc import Mapping, Sequence

log = logging.getLogger(__name__)

STATE_CHANGES = "trainwarden_exporter.collectors.runs.attempts"
FINE, MISUSE, INTERRUPTED = 0, 2, 130
ENDING = frozenset({signal.SIGTERM, signal.SIGINT})
EVERYWHERE = [("", 9745)]
TICK_SECONDS = 1.0
# Each thread that computes holds up the others for so long, and a crowd of clients has many: a scrape waits for all of
# them twice. Python's 5 ms are for throughput.
SWITCH_SECONDS = 0.0005


def main(argv: Sequence[str] | None = None) -> int:
    """Run the exporter until SIGTERM or SIGINT; return the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    keep_child_status()
    try:
        if argv and argv[0] == COMMAND:
            check(argv[1:])
            return FINE
        flags = read_flags(argv)
        keep_one_arena()
        look_for_cycles_seldom()
        sys.setswitchinterval(SWITCH_SECONDS)
        lower_read_search()
        log_to_stderr(flags["log.level"].upper(), log_format=flags["log.format"])
        if flags["once"]:
            logging.getLogger(STATE_CHANGES).setLevel(logging.WARNING)  # one sample shows no transition
            signal.pthread_sigmask(signal.SIG_UNBLOCK, REQUESTS)  # nothing acts upon them here: they end it
            node = node_from_flags(flags)
            collection = Collection(CollectorSet(node, flags).runners)
            collection.extra.append(node.add_info)
            return collect_once(collection)
        return serve(argv, flags)
    except UsageError as error:
        print(f"trainwarden-exporter: {error}", file=sys.stderr)
        return MISUSE
    except KeyboardInterrupt:
        return INTERRUPTED


def collect_once(collection: Collection) -> int:
    """Print one page, also where collectors failed: the page shows which."""
    collection.sample_once()
    by_name = {member.name: member for member in collection.runners}
    if "runs" in by_name and by_name.keys() & {"logs", "s3"}:
        # `runs` reads what `s3` copied, `logs` reads the logs of these runs, and `runs` shows the causes in them.
        for name in ("runs", "logs", "transport", "runs"):
            if name in by_name:
                by_name[name].sample_once()
    if by_name.keys() & {"nvidia", "amd"}:
        for name in by_name.keys() & {"gpu_jobs", "gpu_pods"}:
            by_name[name].sample_once()  # with the uuids that the others have read
    for name in ("finetuning", "dcgm"):
        if name in by_name:
            by_name[name].sample_once()  # it shows samples of the others
    try:
        sys.stdout.buffer.write(collection.page())
        sys.stdout.flush()
    except BrokenPipeError:
        return discard_output()
    finally:
        collection.stop()
    return FINE


def serve(argv: Sequence[str], flags: dict[str, Any]) -> int:
    """Serve until a signal ends it."""
    offer_to_oom_killer()
    collection = Collection([])
    file = flags["web.config.file"]
    pages = ExporterPages(collection, flags["web.telemetry_path"], ReloadingWebConfig(file) if file else None)
    try:
        server = pages.server(_listening(flags), Limits(requests=flags["web.max_requests"]))
    except OSError as error:
        raise UsageError(
            f"--web.listen-address {error.filename}: {error.strerror}; expected an address that is free"
        ) from error
    with contextlib.ExitStack() as stack:
        stack.enter_context(server)
        # Bind first; start no collector if the address is taken.
        node = node_from_flags(flags)
        collectors = CollectorSet(node, flags)
        collection.extra.append(node.add_info)
        collection.runners = collectors.runners
        pages.off = collectors.off
        signals = stack.enter_context(SignalQueue(ENDING | REQUESTS))
        release = Release(collection, flags["release.seconds"], flags["release.file"])
        reload = Reload(argv, flags, collectors.shared.expected, collection, release)
        stack.enter_context(port_file(flags["web.port_file"], server.bound[0]))
        if collectors.off:
            log.info("off here: %s", collectors.off)
        collection.start()
        server.start()
        log.info("serving %s on %s", flags["web.telemetry_path"], ", ".join(server.bound))
        received = attend(signals, reload, release)
        server.stop()
        collection.stop()
    log.info("ended by %s", received.name)
    return INTERRUPTED if received == signal.SIGINT else FINE


def _listening(flags: Mapping[str, Any]) -> Sequence[tuple[str, int] | socket.socket]:
    """Return the addresses to listen on, or the sockets that systemd has opened in place of them."""
    addresses: Sequence[tuple[str, int]] = flags["web.listen_address"] or EVERYWHERE
    if not flags["web.systemd_socket"]:
        return addresses
    try:
        return inherited_listeners()
    except ValueError as error:
        raise UsageError(f"--web.systemd-socket: {error}; expected a start by a .socket unit") from error


def attend(signals: SignalQueue, reload: Reload, release: Release) -> signal.Signals:
    """Act upon signals and the release file; return the signal that ends the exporter."""
    while True:
        received = signals.wait(TICK_SECONDS if release.needs_ticks else None)
        if received in ENDING:
            return received
        if received == signal.SIGHUP:
            reload.read_again()
        if received == signal.SIGUSR1:
            release.toggle()
        else:
            release.tick()
