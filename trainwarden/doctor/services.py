"""The checks of the services: exporter, Prometheus, Alertmanager, remediator."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

from trainwarden.clients.alertmanager import AlertmanagerClient, AlertmanagerError
from trainwarden.clients.http import HttpClient, HttpError
from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden.doctor import Finding
from trainwarden.doctor.routes import check_routes
from trainwarden.redaction import plain
from trainwarden.stack.bundle import BundleMissing

EXPORTER, REMEDIATOR = "http://127.0.0.1:9745", "http://127.0.0.1:9746"
_SECONDS = 5.0
_SUCCESS = re.compile(r'^trainwarden_collector_success\{[^}]*collector="([^"]*)"[^}]*\} ([01])', re.MULTILINE)
_SENT = re.compile(
    r'^alertmanager_notifications(_failed)?_total\{[^}]*integration="([^"]*)"[^}]*\} ([0-9.e+]+)', re.MULTILINE
)
# What rules find by the names of jobs alone, such as an exporter that is down.
_UNFOUND = (
    'trainwarden_build_info{component="exporter",job!~"trainwarden-exporter.*"}'
    ' or trainwarden_remediator_loop_success{job!~"trainwarden-remediator.*"}'
)
# Of the notifications that one integration has sent: more than this that failed is no passing disturbance.
_FAILED_SHARE = 0.1


def check_exporter(given: str | None) -> Iterator[Finding]:
    """Yield whether the exporter answers, and which of its collectors fail."""
    url = given or EXPORTER
    try:
        answer = HttpClient(url, _SECONDS).get("/metrics")
    except HttpError as error:
        fix = "trainwarden-exporter, or systemctl start trainwarden-exporter"
        yield Finding("exporter", False if given else None, str(error), fix)
        return
    text = answer.body.decode("utf-8", "replace")
    if answer.status != 200 or "trainwarden_build_info" not in text:
        yield Finding(
            "exporter", False, f"{url} is no trainwarden-exporter: status {answer.status}", "see docs/exporter.md"
        )
        return
    failing = sorted(name for name, value in _SUCCESS.findall(text) if value == "0")
    if failing:
        fix = "journalctl -u trainwarden-exporter, or trainwarden-exporter --once"
        yield Finding("exporter", False, f"collectors fail: {plain(', '.join(failing))}", fix)
    else:
        yield Finding("exporter", True, f"{url} answers")


def check_prometheus(client: PrometheusClient, values: Path | None = None) -> Iterator[Finding]:
    """Yield whether Prometheus has the exporters and the rules.

    Args:
        client: of the Prometheus.
        values: the file with which the rules were built; None for the defaults.

    Raises:
        UsageError: the file cannot be read, or the rules cannot be built with it.
    """
    try:
        exporters = client.query('count(trainwarden_build_info{component="exporter"})')
        unfound = client.query(_UNFOUND)
        down = client.query("up == 0 and on (job, instance) last_over_time(trainwarden_build_info[1d])")
        rules = client.rules()
    except PrometheusError as error:
        yield Finding("prometheus", False, plain(str(error)), f"curl {shlex.quote(client.url)}/-/ready")
        return
    if not exporters:
        fix = "add the nodes to scrape_configs: deploy/prometheus has a configuration"
        yield Finding("targets", False, "Prometheus has no series of an exporter", fix)
    elif unfound:
        jobs = ", ".join(sorted({plain(each.labels.get("job", "")) for each in unfound})[:5])
        fix = (
            "a job_name that begins with trainwarden-exporter, or trainwarden-remediator; "
            "in a PodMonitor its jobLabel, or a relabeling of job"
        )
        yield Finding("targets", False, f"jobs that the rules do not find by their names: {jobs}", fix)
    elif down:
        names = ", ".join(sorted(plain(each.labels.get("instance", "")) for each in down)[:8])
        yield Finding(
            "targets",
            False,
            f"exporters that cannot be scraped: {names}",
            "systemctl status trainwarden-exporter, there",
        )
    else:
        yield Finding("targets", True, f"{exporters[0].value:.0f} exporters are scraped")
    try:
        from trainwarden.rules.build import Rules  # noqa: PLC0415  # needs PyYAML, an extra; the others go on
    except ImportError:
        yield Finding("rules", None, "PyYAML is not installed", "pip install 'trainwarden[exporter]'")
        return
    try:
        expected = Rules(values)
    except BundleMissing as error:
        yield Finding("rules", None, str(error), "pip install --force-reinstall ., in the checkout")
        return
    alerts = {rule["alert"] for file in expected.files for rule in file.alerts}
    # Without what they stand on, alerts are loaded and never fire.
    recordings = {rule["record"] for file in expected.files for rule in file.rules if "record" in rule}
    loaded = {rule.name for rule in rules}
    missing = [*sorted(alerts - loaded), *sorted(recordings - loaded)]
    failing = sorted({rule.name for rule in rules if rule.health == "err"})
    if missing:
        count = len(alerts) + len(recordings)
        what = "none of Trainwarden" if len(missing) == count else f"without {', '.join(missing[:5])}"
        fix = (
            "trainwarden rules build --out DIR, then add DIR/recording/*.yml and DIR/alerts/*.yml to rule_files, "
            "and reload; where values leave alerts out: trainwarden doctor --values FILE"
        )
        yield Finding("rules", False, f"Prometheus has {count - len(missing)} of {count} rules: {what}", fix)
    elif failing:
        yield Finding(
            "rules", False, f"rules that fail: {', '.join(failing[:5])}", f"curl {shlex.quote(client.url)}/api/v1/rules"
        )
    else:
        yield Finding("rules", True, f"{len(alerts)} alerts and {len(recordings)} recordings are loaded")


def check_alertmanager(url: str) -> Iterator[Finding]:
    """Yield whether an alert that the remediator acts on reaches it, and whether messages are delivered."""
    http = HttpClient(url, _SECONDS)
    try:
        AlertmanagerClient(http).alerts()
        original = str(http.get("/api/v2/status").json()["config"]["original"])
        page = http.get("/metrics").body.decode("utf-8", "replace")
    except AlertmanagerError as error:
        yield Finding("routes", False, plain(str(error)), f"curl {shlex.quote(url)}/-/ready")
        return
    except (HttpError, KeyError, TypeError):
        yield Finding("routes", None, f"{url}: its configuration cannot be read", "amtool config show")
        return
    yield check_routes(url, original)
    yield from read_notifications(page)


def read_notifications(page: str) -> Iterator[Finding]:
    """Yield what Alertmanager could not deliver, by the page of its metrics."""
    sent: dict[str, float] = {}
    failed: dict[str, float] = {}
    for is_failure, integration, value in _SENT.findall(page):
        counts = failed if is_failure else sent
        counts[integration] = counts.get(integration, 0.0) + float(value)
    wrong = {name: number for name, number in failed.items() if number > _FAILED_SHARE * sent.get(name, 0.0)}
    for name, number in sorted(wrong.items()):
        message = f"{number:.0f} of {sent.get(name, 0.0):.0f} notifications by {plain(name)} have failed"
        yield Finding("messages", False, message, "journalctl -u alertmanager: the address, the token, the network")
    if not wrong and sum(sent.values()) > 0:
        yield Finding("messages", True, f"{sum(sent.values()):.0f} notifications were delivered")


def check_remediator(given: str | None) -> Iterator[Finding]:
    """Yield whether the remediator is ready."""
    url = given or REMEDIATOR
    try:
        answer = HttpClient(url, _SECONDS).get("/-/ready")
    except HttpError as error:
        fix = "systemctl start trainwarden-remediator, on the node where it runs"
        yield Finding("remediator", False if given else None, str(error), fix)
        return
    if answer.status == 200:
        yield Finding("remediator", True, f"{url} is ready")
    else:
        reason = plain(answer.body.decode("utf-8", "replace"))[:200]
        fix = "journalctl -u trainwarden-remediator; trainwarden-remediator check-config"
        yield Finding("remediator", False, f"{url} is not ready: {reason}", fix)
