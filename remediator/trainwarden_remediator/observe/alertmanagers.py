"""The alerts that fire, by the answers of one Alertmanager or of several that stand for each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from trainwarden.clients.alertmanager import AlertmanagerAlert, AlertmanagerClient, AlertmanagerError
from trainwarden.record.clock import from_iso
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import WATCHDOG, Alert
from trainwarden_remediator.observe.readings import OutageLog
from trainwarden_remediator.observe.world import Clock, Firing

Answer = Sequence[AlertmanagerAlert] | AlertmanagerError
Answered = Callable[[str, str | None], None]
# For how long the silences of one that is away are kept.
_SILENCE_SECONDS = 3600.0
# Between two looks at the watchdog, how long ago it may have arrived, and how long Prometheus may take to send it to an
# Alertmanager that was started again.
_LOOK_SECONDS, _ARRIVES_SECONDS, _UNLISTED_SECONDS = 60.0, 600.0, 300.0
_MATCHER = 'remediate="true"'


def _no_count(_url: str, _problem: str | None) -> None:
    """Count nothing."""


class AlertmanagerAlerts:
    """Lists the alerts of all Alertmanagers. Each webhook that was lost is made up for by this list.

    An alert fires if any of them holds it, unless any of them has it silenced or inhibited: in doubt nothing is
    restarted. One that gives no answer is left out, but what it has last had silenced stays silenced for an hour;
    without any answer the list is unknown.

    Args:
        alertmanagers: to ask, by their addresses.
        cluster: whose alerts are listed, those without a cluster included; of all where it is empty.
        answered: called after each reading with the address, and why there was no answer or None.
        monotonic: seconds.
    """

    def __init__(
        self,
        alertmanagers: Mapping[str, AlertmanagerClient],
        cluster: str = "",
        answered: Answered = _no_count,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._alertmanagers = dict(alertmanagers)
        self._cluster = cluster
        self._answered = answered
        self._outages = OutageLog(monotonic)
        self._monotonic = monotonic
        # The keys of what each has silenced, and when it said so.
        self._silenced: dict[str, tuple[float, frozenset[str]]] = {}
        # Side by side, so that those that are away take one time-out together, not one each.
        self._threads = ThreadPoolExecutor(len(self._alertmanagers), "alertmanager")
        # What one silences must not fire by the answer of another. A single one may leave those out by itself.
        self._suppressed = len(self._alertmanagers) > 1

    def firing(self) -> Firing:
        """Return every remediable alert that is active, not silenced and not inhibited, or why there is no list."""
        asked = {url: self._threads.submit(self._ask, client) for url, client in self._alertmanagers.items()}
        answers = {url: answer.result() for url, answer in asked.items()}
        missing = {url: str(answer) for url, answer in answers.items() if isinstance(answer, AlertmanagerError)}
        for url in answers:
            self._answered(url, missing.get(url))
        if len(missing) == len(answers):
            return Unknown("; ".join(missing.values()))
        for url in answers:
            self._outages.read(f"one of {len(answers)} Alertmanagers, {url},", missing.get(url))
        lists = [answer for answer in answers.values() if not isinstance(answer, AlertmanagerError)]
        silenced = self._remember(answers)
        firing = _firing([each for answer in lists for each in answer], self._cluster)
        return [alert for alert in firing if alert.key not in silenced]

    def lists_watchdog(self) -> bool | Unknown:
        """Return whether any of them lists the alert that always fires, of this cluster, silenced or not."""
        asked = [self._threads.submit(self._watchdogs, client) for client in self._alertmanagers.values()]
        answers = [each.result() for each in asked]
        missing = [str(answer) for answer in answers if isinstance(answer, AlertmanagerError)]
        if len(missing) == len(answers):
            return Unknown("; ".join(missing))
        listed = [each for answer in answers if not isinstance(answer, AlertmanagerError) for each in answer]
        return any(Alert(each.labels, None).is_of_cluster(self._cluster) for each in listed)

    def _watchdogs(self, client: AlertmanagerClient) -> Answer:
        try:
            return client.alerts(f'alertname="{WATCHDOG}"')
        except AlertmanagerError as error:
            return error

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(cancel_futures=True)

    def _ask(self, client: AlertmanagerClient) -> Answer:
        try:
            return client.alerts(_MATCHER, silenced=self._suppressed, inhibited=self._suppressed)
        except AlertmanagerError as error:
            return error

    def _remember(self, answers: Mapping[str, Answer]) -> frozenset[str]:
        """Note what each has silenced now; return what those that are away had silenced lately."""
        now, remembered = self._monotonic(), frozenset[str]()
        for url, answer in answers.items():
            if not isinstance(answer, AlertmanagerError):
                silenced = (Alert(each.labels, None).in_cluster(self._cluster) for each in answer if each.is_silenced)
                self._silenced[url] = now, frozenset(alert.key for alert in silenced)
                continue
            at, keys = self._silenced.get(url, (now, frozenset()))
            if now - at < _SILENCE_SECONDS:
                remembered |= keys
        return remembered


class WatchdogCheck:
    """Notices that webhooks come from another Alertmanager than those that are asked: no alert would ever be active.

    Args:
        alerts: whose list is looked at.
        received: returns when the watchdog last arrived by webhook, Unix time; None before.
        read: notes a reading, as `Metrics.read`.
        clock: of the remediator.
    """

    def __init__(
        self,
        alerts: AlertmanagerAlerts,
        received: Callable[[], float | None],
        read: Callable[[str, str | None, str], None],
        clock: Clock,
    ) -> None:
        self._alerts = alerts
        self._received = received
        self._read = read
        self._clock = clock
        self._looked: float | None = None  # monotonic
        self._unlisted: float | None = None

    def look(self) -> None:
        """Compare, once a minute; without an answer, or a watchdog that arrives, nothing is known."""
        now = self._clock.monotonic()
        if self._looked is not None and now - self._looked < _LOOK_SECONDS:
            return
        self._looked, arrived = now, self._received()
        if arrived is None or not 0 <= self._clock.now() - arrived <= _ARRIVES_SECONDS:
            self._unlisted = None
            return
        listed = self._alerts.lists_watchdog()
        if isinstance(listed, Unknown):
            return
        self._unlisted = None if listed else now if self._unlisted is None else self._unlisted
        if self._unlisted is None:
            self._read("alertmanager", None, "watchdog")
        elif now - self._unlisted >= _UNLISTED_SECONDS:
            self._read(
                "alertmanager",
                f"none of --alertmanager-url lists {WATCHDOG}, which one delivers: webhooks come from another",
                "watchdog",
            )


def _firing(alerts: Sequence[AlertmanagerAlert], cluster: str) -> list[Alert]:
    """Return the alerts that fire, each once, with the earliest of its starts."""
    found: dict[str, Alert] = {}
    suppressed = set()
    for each in alerts:
        alert = Alert(each.labels, from_iso(each.starts_at)).in_cluster(cluster)
        if each.is_suppressed:
            suppressed.add(alert.key)
        # Checked again: an answer that ignores the parameters must not lead to more actions.
        elif alert.remediable and alert.is_of_cluster(cluster):
            known = found.get(alert.key)
            found[alert.key] = alert if known is None else _earlier(known, alert)
    return [alert for key, alert in found.items() if key not in suppressed]


def _earlier(one: Alert, other: Alert) -> Alert:
    if one.starts_at is None or other.starts_at is None:
        return one if other.starts_at is None else other
    return one if one.starts_at <= other.starts_at else other
