"""The landing page: version, links, and the state of each collector."""

from __future__ import annotations

import datetime as dt
import html
from typing import TYPE_CHECKING

from trainwarden import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable

    from trainwarden_exporter.sampling.task import Status

PAGE = """<!DOCTYPE html>
<html lang="en">
<head><meta charset="utf-8"><title>Trainwarden exporter</title></head>
<body>
<h1>Trainwarden exporter</h1>
<p>Version {version}{released}</p>
<ul>
<li><a href="{telemetry_path}">Metrics</a></li>
<li><a href="/-/healthy">Healthy</a></li>
<li><a href="/-/ready">Ready</a></li>
</ul>
<table>
<tr><th>collector</th><th>device</th><th>state</th><th>call</th><th>last sample took</th><th>last good sample</th></tr>
{rows}
</table>{off}
</body>
</html>
"""


def landing_page(statuses: Iterable[Status], telemetry_path: str, released: bool = False, off: str = "") -> bytes:
    """Return the landing page as HTML."""
    page = PAGE.format(
        version=html.escape(__version__),
        released=", the devices are released" if released else "",
        telemetry_path=html.escape(telemetry_path),
        off=f"\n<p>Off here: {html.escape(off)}</p>" if off else "",
        rows="\n".join(_row(status) for status in statuses),
    )
    return page.encode("utf-8", "replace")


def _row(status: Status) -> str:
    cells = (
        status.name,
        status.device,
        _state(status),
        status.call if status.stuck else "",
        f"{status.duration:.3f} s",
        _time(status.last_success),
    )
    return "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in cells) + "</tr>"


def _state(status: Status) -> str:
    if status.released:
        return "released"
    if not status.attempted:
        return "waiting for its first sample"
    if status.stuck:
        return f"stuck: {status.error}"
    return "good" if status.success else f"failed: {status.error}"


def _time(seconds: float | None) -> str:
    if seconds is None:
        return "never"
    return dt.datetime.fromtimestamp(seconds, dt.timezone.utc).isoformat(sep=" ", timespec="seconds")
