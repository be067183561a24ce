"""The page a person sees first: what is running and how each collector is doing."""

from __future__ import annotations

import datetime as dt
import html
from typing import TYPE_CHECKING

from trainwarden import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainwarden_exporter.sampling.part import Status

PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Trainwarden exporter</title></head>
<body>
<h1>Trainwarden exporter</h1>
<p>Version {version}</p>
<ul>
<li><a href="{telemetry_path}">Metrics</a></li>
<li><a href="/-/healthy">Healthy</a></li>
<li><a href="/-/ready">Ready</a></li>
</ul>
<table>
<tr><th>collector</th><th>state</th><th>last sample took</th><th>last good sample</th></tr>
{rows}
</table>
</body>
</html>
"""
ROW = "<tr><td>{name}</td><td>{state}</td><td>{duration:.3f} s</td><td>{last}</td></tr>"


def landing_page(statuses: Iterable[Status], telemetry_path: str) -> bytes:
    """Return the landing page as HTML."""
    rows = "\n".join(_row(status) for status in statuses)
    page = PAGE.format(version=html.escape(__version__), telemetry_path=html.escape(telemetry_path), rows=rows)
    return page.encode("utf-8", "replace")


def _row(status: Status) -> str:
    state = "waiting for its first sample"
    if status.attempted:
        state = "good" if status.success else f"failed: {status.error}"
    last = "never"
    if status.last_success is not None:
        moment = dt.datetime.fromtimestamp(status.last_success, dt.timezone.utc)
        last = moment.isoformat(sep=" ", timespec="seconds")
    return ROW.format(
        name=html.escape(status.name), state=html.escape(state), duration=status.duration, last=html.escape(last)
    )
