"""What `trainwarden actions` has done, as a file for node_exporter's textfile collector."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trainwarden.actions import ledger as states
from trainwarden.record.folder import replace_file

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping
    from pathlib import Path

    from prometheus_client import Metric

    from trainwarden.actions.ledger import Ledger

log = logging.getLogger(__name__)

_ENDS = (
    states.SUCCEEDED, states.FAILED, states.TIMED_OUT, states.INTERRUPTED, states.SUBMITTED, states.IN_DOUBT,
    states.REFUSED,
)  # fmt: skip
_UNDER_WAY = (states.STARTING, states.RUNNING)
_P = "trainwarden_actions"


class MetricsFile:
    """A file that is replaced after each look. One that cannot be written is named in the log, once until it can."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._failed = False

    def write(self, ledger: Ledger, actions: Collection[str], *, reloaded: bool, now: float) -> None:
        """Write the file.

        Args:
            ledger: has the counts, over restarts of the service.
            actions: of the configuration: each has its series from the start.
            reloaded: whether the last configuration that was read is the one in use.
            now: Unix seconds.
        """
        try:
            replace_file(self._path, page(ledger, actions, reloaded=reloaded, now=now), mode=0o644)
        except OSError as error:
            if not self._failed:
                log.warning("--metrics-file %s: %s", self._path, error.strerror)
            self._failed = True
        else:
            self._failed = False


def page(ledger: Ledger, actions: Collection[str], *, reloaded: bool, now: float) -> bytes:
    """Return the metrics in the text format of Prometheus."""
    from prometheus_client import CollectorRegistry, generate_latest  # noqa: PLC0415  # for those who want it

    registry = CollectorRegistry()
    registry.register(_Collector(ledger.counts(), actions, reloaded=reloaded, now=now))
    return bytes(generate_latest(registry))


class _Collector:
    def __init__(
        self, counts: Mapping[tuple[str, str], int], actions: Collection[str], *, reloaded: bool, now: float
    ) -> None:
        self._counts, self._names = counts, sorted({*actions, *(action for action, _ in counts)})
        self._values = (
            ("last_look_timestamp_seconds", "When journals and logs were last looked through, Unix time.", now),
            ("config_last_reload_successful", "Whether the last configuration read is in use: 1 or 0.", reloaded),
        )

    def collect(self) -> Iterator[Metric]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily  # noqa: PLC0415  # as above

        ended = CounterMetricFamily(
            f"{_P}_commands", "Commands by how they ended; refused ones were not started.", labels=["action", "state"]
        )
        waiting = GaugeMetricFamily(f"{_P}_commands_waiting", "Commands that wait to be started.", labels=["action"])
        running = GaugeMetricFamily(f"{_P}_commands_running", "Commands that are under way.", labels=["action"])
        for name in self._names:
            for state in _ENDS:
                ended.add_metric([name, state], self._counts.get((name, state), 0))
            waiting.add_metric([name], self._counts.get((name, states.WAITING), 0))
            running.add_metric([name], sum(self._counts.get((name, each), 0) for each in _UNDER_WAY))
        yield from (ended, waiting, running)
        for name, what, value in self._values:
            yield GaugeMetricFamily(f"{_P}_{name}", what, value)
