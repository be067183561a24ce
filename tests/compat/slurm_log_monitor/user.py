"""A user of the SLURM log monitor: files of their own in a folder, and the commands that replace that tool's."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.waiting import wait_until
from trainwarden.cli import main as trainwarden
from trainwarden_remediator.cli import main as remediator

# Of signals in logs, and of a pack.
_FOUND = "training_log_signals"


@dataclass(frozen=True)
class Page:
    """What the exporter prints; samples by name and labels."""

    samples: Mapping[str, Mapping[frozenset[tuple[str, str]], float]]

    def value(self, name: str, **labels: str) -> float | None:
        """The only sample of this name that has these labels among others; None where there is none."""
        found = self.labelled(name, **labels)
        if len(found) > 1:
            raise ValueError(f"{name} has several: {found}")
        return found[0][1] if found else None

    def labelled(self, name: str, **labels: str) -> list[tuple[dict[str, str], float]]:
        """All samples of this name that have these labels among others."""
        samples = self.samples.get(name, {}).items()
        return [(dict(key), value) for key, value in samples if labels.items() <= dict(key).items()]

    def signals(self, run_id: str) -> dict[str, str]:
        """The error type of each signal that was found in the logs of a run."""
        found = self.labelled(f"{_FOUND}_total", run_id=run_id)
        return {labels["signal"]: labels.get("error_type", "") for labels, count in found if count}


@contextmanager
def needed() -> Iterator[None]:
    """Of what a test needs before what it is about: that it does not come is no expected failure.

    Raises:
        TimeoutError: it did not come.
    """
    try:
        yield
    except AssertionError as error:
        raise TimeoutError(str(error)) from None


def until(condition: Callable[[], object], message: str | Callable[[], str] = "") -> None:
    """Wait for what a test needs. Raises TimeoutError if it does not come."""
    with needed():
        wait_until(condition, message)


@dataclass
class User:
    """Files in `folder`, and the commands; `said` is what the last one wrote to standard error."""

    folder: Path
    capsys: pytest.CaptureFixture[str]
    caplog: pytest.LogCaptureFixture
    said: str = ""

    def file(self, name: str, text: str) -> Path:
        """Write a file."""
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def scan(self, log: str, *signals: str | Path) -> dict[str, Any]:
        """What `trainwarden scan` says of a log by signal files or packs; its status agrees."""
        path = self.file("slurm-4711.out", log)
        chosen = [word for each in signals for word in ("--signals", str(each))]
        status, out = self._run(trainwarden, ["scan", *chosen, "--format", "json", str(path)])
        found: dict[str, Any] = json.loads(out)
        if status != (found["error_type"] != "none"):
            raise RuntimeError(f"status {status} contradicts {found}")
        return found

    def check_policy(self, policy: str | Path) -> tuple[int, str]:
        """The status of `trainwarden-remediator check-policy`, and all that it says."""
        status, out = self._run(remediator, ["check-policy", str(policy)])
        return status, out + self.said

    def replay(self, log: str, policy: str | Path, mode: str = "crash") -> dict[str, Any]:
        """What a policy would have done about a log, by `trainwarden-remediator replay`."""
        path = self.file("slurm-4711.out", log)
        argv = ["replay", "--log", str(path), "--policy", str(policy), "--mode", mode, "--json"]
        status, out = self._run(remediator, argv)
        if status != 0:
            raise RuntimeError(self.said)
        found: dict[str, Any] = json.loads(out)
        return found

    def exported(self, signals: str | Path, log: str, run_id: str = "llama") -> Page:
        """What one look of the exporter finds in the log of a run, by a signal file or pack."""
        self.file(f"logs/{run_id}.out", log)
        return self.look(
            f"--collector.logs.path={self.folder}/logs/{{run_id}}.out", f"--collector.logs.signals={signals}"
        )

    def look(self, *flags: str) -> Page:
        """One look of the exporter at the runs of the folder."""
        command = [sys.executable, "-m", "trainwarden_exporter", "--once", f"--collector.runs.path={self.folder}/runs"]
        command += [f"--collector.logs.state={self.folder}/state", "--no-collector.process", *flags]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.said = done.stderr
        if done.returncode != 0:
            raise RuntimeError(done.stderr)
        samples: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
        for family in text_string_to_metric_families(done.stdout):
            for sample in family.samples:
                samples.setdefault(sample.name, {})[frozenset(sample.labels.items())] = sample.value
        return Page(samples)

    def _run(self, command: Any, argv: list[str]) -> tuple[int, str]:
        self.capsys.readouterr()
        self.caplog.clear()
        status = int(command(argv))
        out, said = self.capsys.readouterr()
        self.said = said + "".join(f"{line}\n" for line in self.caplog.messages)
        return status, out
