"""The metrics that each program exposes: name, type, labels, help."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.contracts.services import TOKEN, WEBHOOK, ask, remediator
from tests.waiting import wait_until

_WATCHDOG = {"status": "firing", "labels": {"alertname": "TrainWatchdog"}, "startsAt": "2026-01-01T00:00:00Z"}
# The value is there once the remediator has come round, asked Alertmanager and received the watchdog.
_LAST = ("poll_last_success", "loop_last_success", "watchdog_last_received", "webhook_last_received")


def lines() -> Iterator[str]:
    """Yield a line for each metric."""
    from trainwarden_exporter.docs import METRICS

    yield "# name | type | labels | help"
    for metric in sorted(METRICS.values(), key=lambda each: each.name):
        labels = ", ".join(metric.label_names)
        yield f"exporter, metrics-server: {metric.name} | {metric.kind} | {labels} | {metric.help}"
    yield from _families("remediator", _remediator())
    yield from _families("trainwarden actions", _actions())


def _remediator() -> list[Any]:
    with remediator() as (address, [collector, *others]):
        assert not others, "one page"
        body = json.dumps({"version": "4", "alerts": [_WATCHDOG]})
        assert ask(address, "POST", WEBHOOK, body, {"Authorization": f"Bearer {TOKEN}"})[0] == 200

        def whole_page() -> list[Any] | None:
            found = list(collector.collect())
            names = " ".join(family.name for family in found)
            return found if all(each in names for each in _LAST) else None

        return wait_until(whole_page)


def _actions() -> list[Any]:
    from trainwarden.actions.ledger import Ledger
    from trainwarden.actions.metrics import page

    with tempfile.TemporaryDirectory() as folder:
        ledger = Ledger(Path(folder))
        try:
            text = page(ledger, ["evaluate"], reloaded=True, now=0.0).decode()
        finally:
            ledger.close()
    return _parsed(text)


def _parsed(text: str) -> list[Any]:
    from prometheus_client.parser import text_string_to_metric_families

    return list(text_string_to_metric_families(text))


def _families(program: str, families: list[Any]) -> Iterator[str]:
    for family in sorted(families, key=lambda each: str(each.name)):
        name = f"{family.name}_total" if family.type == "counter" else family.name
        labels = getattr(family, "_labelnames", None)
        if labels is None:
            labels = family.samples[0].labels if family.samples else ()
        yield f"{program}: {name} | {family.type} | {', '.join(labels)} | {family.documentation}"
