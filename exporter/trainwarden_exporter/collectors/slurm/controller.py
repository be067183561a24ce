"""slurmctld's own metrics, which it serves over HTTP since SLURM 25.11, under names of ours."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainwarden.clients.http import CREDENTIALS, TIMEOUT, TOO_LARGE, HttpAuth, HttpClient, HttpError, read_token
from trainwarden.clients.slurm.client import SlurmError
from trainwarden_exporter.collectors.slurm import metrics
from trainwarden_exporter.sampling.calls import calling

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from trainwarden_exporter.core.metric import Families

MAX_PAGE = 4 << 20
MAX_SERIES = 500
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
    """Add the metrics of all its pages; raises `SlurmError` if one of them cannot be read."""
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
    """Return one page; a standby controller's redirect is an error, for the token is for the address of the flag."""
    try:
        token = read_token(page.token_file) if page.token_file else None
        headers = {"X-SLURM-USER-TOKEN": token} if token else {}
        client = HttpClient(page.url, seconds, auth=HttpAuth(token=token), max_body=MAX_PAGE)
        with calling(f"GET /metrics/{name}"):
            answer = client.get(f"/{name}", headers=headers)
    except HttpError as error:
        reason = {CREDENTIALS: "authentication", TIMEOUT: "timeout", TOO_LARGE: "too_much"}.get(error.reason, "failed")
        flag = "--collector.slurm.metrics-token-file " if error.reason == CREDENTIALS else ""
        raise SlurmError(reason, f"{flag}{error}") from error
    if answer.status != 200:
        reason = "authentication" if answer.status in {401, 403} else "failed"
        raise SlurmError(reason, f"{client.base_url}/{name}: status {answer.status}")
    return answer.body.decode("utf-8", "replace")
