"""slurmctld's own metrics (SLURM 25.11 and newer): what costs it no remote procedure call, under names of ours."""

from __future__ import annotations

import math
import re
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.slurm import metrics
from trainwarden_exporter.collectors.slurm.errors import SlurmError
from trainwarden_exporter.core.files import read_plain
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainwarden_exporter.core.metric import Families

MAX_PAGE = 4 << 20
MAX_SERIES = 500
MAX_TOKEN = 65536
_LINE = re.compile(
    r'(?P<name>slurm_[a-z0-9_]{1,60})(?:\{(?:partition="(?P<partition>[^"\\]{1,64})")?,?\})?\s+(?P<value>\S{1,40})(?:\s|$)'
)
# Sums of what jobs and nodes have are no counts of them.
_SUMS = re.compile(r"(?:^(?:max|min|nodes)|cpus|cores|memory|mem|gres|gpus|tres|bytes)(?:_|$)")
_SCHEDULER = ("sched_", "schedule_", "bf_", "backfilled_", "agent_", "server_thread_cnt", "slurmdbd_queue_size")


@dataclass(frozen=True)
class Page:
    """Where slurmctld serves its metrics: `url` up to `/metrics`; the token is read anew each time."""

    url: str
    token_file: Path | None = None


def add_page(families: Families, page: Page, seconds: float) -> None:
    """Add what slurmctld serves; raises `SlurmError` if one of its pages cannot be had."""
    readers = {"jobs": _add_job, "nodes": _add_node, "partitions": _add_partition, "scheduler": _add_scheduler}
    for name, add in readers.items():
        for shown, partition, value in _samples(_fetch(page, name, seconds / len(readers))):
            add(families, shown, partition, value)


def _add_job(families: Families, name: str, partition: str, value: float) -> None:
    state = name.removeprefix("slurm_jobs_")
    if state != name and not partition and not _SUMS.search(state):
        families.add(metrics.SLURM_CTLD_JOBS, value, state=state)


def _add_node(families: Families, name: str, partition: str, value: float) -> None:
    state = name.removeprefix("slurm_nodes_")
    if state != name and not partition and not _SUMS.search(state):
        families.add(metrics.SLURM_CTLD_NODES, value, state=state)


def _add_partition(families: Families, name: str, partition: str, value: float) -> None:
    state = name.removeprefix("slurm_partition_jobs_")
    if state != name and partition and not _SUMS.search(state):
        families.add(metrics.SLURM_CTLD_PARTITION_JOBS, value, partition=partition, state=state)


def _add_scheduler(families: Families, name: str, partition: str, value: float) -> None:
    shown = name.removeprefix("slurm_")
    if shown.startswith(_SCHEDULER) and not partition:
        families.add(metrics.SLURM_CTLD_SCHEDULER, value, name=shown)


def _samples(text: str) -> Iterator[tuple[str, str, float]]:
    """Yield name, partition and value of each sample that has no other label, each series once."""
    seen: set[tuple[str, str]] = set()
    for line in text.splitlines():
        match = _LINE.match(line)
        if not match or len(seen) >= MAX_SERIES:
            continue
        series = (match["name"], match["partition"] or "")
        try:
            value = float(match["value"])
        except ValueError:
            continue
        if series not in seen and math.isfinite(value):
            seen.add(series)
            yield (*series, value)


def _fetch(page: Page, name: str, seconds: float) -> str:
    url = f"{page.url.rstrip('/')}/{name}"
    request = urllib.request.Request(url, headers=_headers(page))  # noqa: S310  # the flag takes http and https alone
    try:
        with calling(f"GET /metrics/{name}"), _opener().open(request, timeout=seconds) as answer:
            body: bytes = answer.read(MAX_PAGE + 1)
    except urllib.error.HTTPError as error:
        reason = "authentication" if error.code in {401, 403} else "failed"
        raise SlurmError(reason, f"{url}: status {error.code}") from error
    except TimeoutError as error:
        raise SlurmError("timeout", f"{url}: no answer in time") from error
    except (OSError, ValueError) as error:
        raise SlurmError("failed", f"{url}: {error}") from error
    if len(body) > MAX_PAGE:
        raise SlurmError("too_much", f"{url}: more than {MAX_PAGE >> 20} MiB")
    return body.decode("utf-8", "replace")


def _headers(page: Page) -> dict[str, str]:
    if page.token_file is None:
        return {}
    try:
        token = read_plain(page.token_file, MAX_TOKEN).decode("ascii").strip()
    except (OSError, ValueError) as error:
        raise SlurmError(
            "authentication", f"--collector.slurm.metrics-token-file {page.token_file}: {error}"
        ) from error
    return {"Authorization": f"Bearer {token}", "X-SLURM-USER-TOKEN": token}


class _Stay(urllib.request.HTTPRedirectHandler):
    """Follows nobody elsewhere: a standby controller answers 303, and the token is for the one that was named."""

    def redirect_request(self, *_: Any, **__: Any) -> None:
        """Make the answer an error."""


def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(urllib.request.ProxyHandler({}), _Stay)
