"""The exporter as a process, asked once about a Ray cluster."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families


@dataclass(frozen=True)
class Page:
    """What it printed: the text of the page, its samples, and what it logged."""

    text: str
    samples: dict[tuple[str, frozenset[tuple[str, str]]], float]
    log: str

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the one series that has these labels, and perhaps others; None if there is none."""
        found = [value for (known, pairs), value in self.samples.items() if known == name and labels.items() <= pairs]
        assert len(found) < 2, f"{name} {labels}: {len(found)} series"
        return found[0] if found else None

    def state(self, submission_id: str) -> str | None:
        """The one state that a job is in."""
        on = [
            dict(pairs)["state"]
            for (name, pairs), value in self.samples.items()
            if name == "ray_cluster_job_state" and ("submission_id", submission_id) in pairs and value == 1
        ]
        assert len(on) < 2
        return on[0] if on else None


def export_once(*flags: str, environment: dict[str, str] | None = None) -> Page:
    """Run the exporter with the collector of Ray alone; it has to end with status 0 whatever came of it."""
    command = [
        sys.executable,
        "-m",
        "trainwarden_exporter",
        "--once",
        "--collector.disable-defaults",
        "--collector.ray",
        "--collector.ray.timeout=50s",
    ]
    done = subprocess.run(
        [*command, *flags],
        env={**os.environ, **(environment or {})},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    samples = {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(done.stdout)
        for sample in family.samples
    }
    return Page(done.stdout, samples, done.stderr)
