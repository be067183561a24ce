"""The alerts that fire, by the answers of one Alertmanager or of several that stand for each other."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from trainwarden.clients.alertmanager import AlertmanagerAlert, AlertmanagerClient, AlertmanagerError
from trainwarden.record.clock import from_iso
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.incidents.incident import Alert
from trainwarden_remediator.observe.readings import OutageLog
from trainwarden_remediator.observe.world import Firing

Answer = Sequence[AlertmanagerAlert] | AlertmanagerError
Answered = Callable[[str, str | None], None]
# For how long the silences of one that is away are kept.
_SILENCE_SECONDS = 3600.0
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
