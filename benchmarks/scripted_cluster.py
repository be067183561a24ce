"""A cluster of many runs for the remediator: SLURM's commands of a given slowness, and Alertmanager with Prometheus."""

import json
import os
import re
import stat
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.answering import AnsweringService, Asked

_STARTED = "2026-01-02T03:04:05.000Z"
_RUNNING = {"job_state": "RUNNING", "restart_cnt": 0, "priority": 1000, "state_reason": "None"}
_HELD = {
    "job_state": "PENDING",
    "restart_cnt": 1,
    "priority": 0,
    "state_reason": "JobHeldUser",
    "state_description": "job requeued in held state",
}
_AGAIN = {**_RUNNING, "restart_cnt": 1}
# Of the present state of each job one file, which a command of scontrol replaces.
_SQUEUE = """\
echo "$(date +%s.%N) squeue" >> {folder}/calls
sleep {seconds}
printf '{{"jobs":['
cat {folder}/jobs/* | sed '$ s/,$//'
printf '],"errors":[]}}'
"""
_SCONTROL = """\
echo "$(date +%s.%N) $*" >> {folder}/calls
sleep {seconds}
for last; do :; done
case $1 in
show) echo 'BOOT_TIME = 2026-01-01T00:00:00' ;;
requeuehold) cp {folder}/held/$last {folder}/next.$last && mv {folder}/next.$last {folder}/jobs/$last ;;
release) cp {folder}/again/$last {folder}/next.$last && mv {folder}/next.$last {folder}/jobs/$last ;;
esac
"""


class ScriptedSlurm:
    """Commands in `folder` for jobs 1 to `count`, run `run-N` each; every command takes `seconds`.

    Args:
        folder: for the commands and their state.
        count: of jobs.
        seconds: that each command sleeps before it answers.
        padding: bytes of each job's record that nobody needs.
    """

    def __init__(self, folder: Path, count: int, seconds: float, padding: int = 0) -> None:
        self.folder = folder
        for name, fields in (("jobs", _RUNNING), ("held", _HELD), ("again", _AGAIN)):
            (folder / name).mkdir(parents=True)
            for number in range(1, count + 1):
                (folder / name / str(number)).write_text(json.dumps(self._job(number, padding) | fields) + ",\n")
        for name, script in (("squeue", _SQUEUE), ("scontrol", _SCONTROL), ("sacct", "exit 1\n")):
            command = folder / name
            command.write_text("#!/bin/sh\n" + script.format(folder=folder, seconds=seconds))
            command.chmod(command.stat().st_mode | stat.S_IXUSR)

    def _job(self, number: int, padding: int) -> dict[str, Any]:
        return {
            "job_id": number,
            "user_id": os.getuid(),
            "requeue": True,
            "comment": f"trainwarden:run-{number}",
            "job_resources": {"nodes": "x" * padding},
            "array_job_id": 0,
            "array_task_id": None,
            "het_job_id": 0,
        }

    def calls(self, verb: str) -> dict[int, float]:
        """Return when scontrol was first called with this verb, Unix seconds, by job."""
        first: dict[int, float] = {}
        path = self.folder / "calls"
        for line in path.read_text().splitlines() if path.exists() else ():
            when, *words = line.split()
            if words[0] == verb:
                first.setdefault(int(words[-1]), float(when))
        return first

    def has_restarted(self, number: int) -> bool:
        """Return whether the next start of a job was given."""
        return '"restart_cnt": 1, "priority": 1000' in (self.folder / "jobs" / str(number)).read_text()


class Services(AnsweringService):
    """Alertmanager and Prometheus at `url`: the alerts in `alerts`, and the runs of a cluster as they are now."""

    def __init__(self, slurm: ScriptedSlurm) -> None:
        self.alerts: list[dict[str, Any]] = []
        self._slurm = slurm
        super().__init__(self._answer)

    def _answer(self, asked: Asked) -> tuple[int, object]:
        if asked.path == "/api/v2/alerts":
            is_of_actions = any("remediate" in each for each in asked.query.get("filter", []))
            return 200, self.alerts if is_of_actions else []
        found = _vector(self._slurm, asked.query.get("query", [""])[0])
        return 200, {"status": "success", "data": {"resultType": "vector", "result": found}}


def _vector(slurm: ScriptedSlurm, query: str) -> list[dict[str, Any]]:
    """Return the series of the runs that a query names."""
    if "training_run_attempt" not in query:
        return []
    return [series for number in re.findall(r"run-(\d+)", query) for series in _series(slurm, int(number))]


def _series(slurm: ScriptedSlurm, number: int) -> list[dict[str, Any]]:
    attempt = int(slurm.has_restarted(number))
    info = {"attempt_key": f"slurm:{number}:{attempt}", "job_id": str(number), "scheduler": "slurm"}
    values: list[tuple[str, dict[str, str], float]] = [
        ("training_run_info", info, 1),
        ("training_run_attempt", {}, attempt),
        ("training_attempt_start_timestamp_seconds", {}, 1_700_000_000.0 + attempt),
        ("training_step", {}, 41 + attempt),
        ("training_step_high_water", {}, 41 + attempt),
        ("training_checkpoint_step", {}, 40),
        ("training_run_state", {"state": "running"}, 1),
    ]
    target = {"run_id": f"run-{number}", "instance": f"n{number}:9745", "job": "trainwarden"}
    return [
        {"metric": {**target, **labels, "__name__": name}, "value": [time.time(), str(value)]}
        for name, labels, value in values
    ]


def alert(number: int, name: str = "TrainRunStalled", mode: str = "stall") -> dict[str, Any]:
    """Return an alert about the first attempt of a run, as Alertmanager lists it."""
    labels = {
        "alertname": name,
        "severity": "critical",
        "run_id": f"run-{number}",
        "job_id": str(number),
        "attempt": "0",
        "scheduler": "slurm",
        "failure_mode": mode,
        "error_type": "hang",
        "remediate": "true",
    }
    return {
        "labels": labels,
        "annotations": {"summary": "A training run makes no progress.", "description": "No step for 300 s. " * 8},
        "startsAt": _STARTED,
        "endsAt": "2099-01-02T03:04:05.000Z",
        "fingerprint": f"{number:016x}",
        "receivers": [{"name": "remediator"}],
        "generatorURL": "http://prometheus.example/graph",
        "status": {"state": "active", "silencedBy": [], "inhibitedBy": []},
    }


def webhook(alerts: Sequence[dict[str, Any]]) -> bytes:
    """Return the body by which Alertmanager reports these alerts."""
    fields = ("labels", "annotations", "startsAt", "endsAt", "generatorURL", "fingerprint")
    body = {
        "version": "4",
        "groupKey": "{}:{}",
        "truncatedAlerts": 0,
        "receiver": "remediator",
        "status": "firing",
        "alerts": [{"status": "firing", **{name: each[name] for name in fields}} for each in alerts],
        "groupLabels": {},
        "commonLabels": {},
        "commonAnnotations": {},
        "externalURL": "http://alertmanager.example",
    }
    return json.dumps(body).encode()
