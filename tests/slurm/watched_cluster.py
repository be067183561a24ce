"""The cluster under watch: exporter, Prometheus, Alertmanager and the remediator with driver slurm, all real."""

from __future__ import annotations

import json
import os
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.slurm.cluster import Cluster, OwnCluster
from tests.slurm.training_job import TrainingJob, submit
from tests.waiting import wait_until
from trainwarden.clients.alertmanager import AlertmanagerAlert, AlertmanagerClient
from trainwarden.clients.http import HttpAuth, HttpClient, HttpError
from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden.stack.binaries import Tools
from trainwarden.stack.local_stack import LocalStack, StackSettings
from trainwarden.stack.slack_sink import SlackSink

STALL_SECONDS = 8.0
STALE_SECONDS = 20.0
CRASH_RESTARTS = 2
_POLICY = f"""\
policies:
  - mode: crash
    implementation: {{class_name: AlwaysRestartPolicy, max_retries: {CRASH_RESTARTS}}}
  - mode: stall
    implementation: {{class_name: AlwaysRestartPolicy, max_retries: 2}}
  - mode: timeout
    implementation: {{class_name: AlwaysRestartPolicy, max_retries: 2}}
  - mode: success
    implementation: {{class_name: NoRestartPolicy}}
"""
# Writes down every call and, once for each file that names one, stops slurmctld right before it.
_SCONTROL = """\
#!/bin/sh
echo "$*" >> {folder}/calls
for job; do :; done
stop={folder}/"stop-$1-$job"
[ -e "$stop" ] && kill -STOP "$(cat "$stop")" && rm "$stop"
exec {scontrol} "$@"
"""
# Leaves a line whenever it has ended.
_SQUEUE = """\
#!/bin/sh
{squeue} "$@"
status=$?
echo $status >> {folder}/readings
exit $status
"""
# In place of the real one: in Debian 12 slurmstepd itself ends with a segmentation fault under jobacct_gather/linux.
# What it prints is the time that the processes of the job have really taken.
_SSTAT = """\
#!{python}
import os, pathlib, sys
job = next(each.partition("=")[2] for each in sys.argv if each.startswith("--jobs="))
marks = {{f"SLURM_JOB_ID={{job}}".encode(), b"SLURM_CONF={configuration}"}}
ticks = 0
for process in pathlib.Path("/proc").glob("[0-9]*"):
    try:
        if marks <= set((process / "environ").read_bytes().split(b"\\0")):
            fields = (process / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    except OSError:
        pass
minutes, seconds = divmod(ticks // os.sysconf("SC_CLK_TCK"), 60)
print(f"{{job}}.batch|1|cpu=00:{{minutes:02}}:{{seconds:02}},energy=0,mem=1M")
"""


class WatchedCluster:
    """Everything around the trainings; `flags` are more of the remediator. `stop()` leaves no process.

    Signal files of runs are read in `log_roots` and in the folder of the runs.
    """

    def __init__(
        self, cluster: Cluster, tools: Tools, folder: Path, *flags: str, log_roots: Sequence[Path] = ()
    ) -> None:
        self.cluster = cluster
        self.runs = folder / "runs"
        self.sink = SlackSink()
        self._commands = folder / "commands"
        policy = folder / "policy.yaml"
        policy.write_text(_POLICY, encoding="utf-8")
        often = ("--poll-interval=1", "--busy-interval=0.5")
        # The runs of all tests together are no storm, though they fail on the same two nodes.
        driver = (
            "--driver=slurm",
            f"--slurm-bin-dir={self._commands}",
            "--storm-runs=1000",
            "--storm-window=1s",
            *often,
            *flags,
        )
        settings = StackSettings(
            folder / "stack", self.runs, self.sink.url, policy=str(policy), driver=driver, log_roots=log_roots
        )
        self._stack = LocalStack(settings, tools)

    def start(self) -> None:
        """Start the services. Raises ServiceFailed."""
        for folder in (self.runs, self._commands):
            folder.mkdir(parents=True)
        files = {"folder": self._commands, **{name: self.cluster.bin / name for name in ("scontrol", "squeue")}}
        quoted = {name: shlex.quote(str(path)) for name, path in files.items()}
        for name, text in (("scontrol", _SCONTROL), ("squeue", _SQUEUE)):
            script = self._commands / name
            script.write_text(text.format(**quoted), encoding="utf-8")
            script.chmod(0o755)
        sstat = self._commands / "sstat"
        configuration = self.cluster.folder / "slurm.conf"
        sstat.write_text(_SSTAT.format(python=sys.executable, configuration=configuration), encoding="utf-8")
        sstat.chmod(0o755)
        self._stack.start()

    def stop(self) -> None:
        """End the services; whatever a test has stopped goes on first."""
        self.resume_slurmctld()
        self._stack.stop()
        self.sink.close()

    def submit(self, run_id: str, script: Path, *arguments: str) -> TrainingJob:
        """Submit a training whose record is watched."""
        return submit(
            self.cluster,
            self.runs,
            run_id,
            script,
            *arguments,
            stall_seconds=STALL_SECONDS,
            stale_seconds=STALE_SECONDS,
        )

    def calls(self, job: TrainingJob) -> list[str]:
        """The verbs of scontrol by which the remediator has ended and started a job, in order."""
        return [words[0] for words in self._logged("calls") if words[-1] == str(job.job_id) and words[0] != "show"]

    def readings(self) -> int:
        """How often the remediator has asked squeue and got an answer or an error."""
        return len(self._logged("readings"))

    def _logged(self, name: str) -> list[list[str]]:
        file = self._commands / name
        return [line.split() for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []

    def stop_slurmctld_before(self, verb: str, job: TrainingJob) -> None:
        """slurmctld will stand still when the remediator next calls this for the job."""
        assert isinstance(self.cluster, OwnCluster), "others use this cluster too"
        (self._commands / f"stop-{verb}-{job.job_id}").write_text(str(self.cluster.slurmctld), encoding="utf-8")

    def kill_remediator(self) -> None:
        """SIGKILL."""
        os.kill(self._stack.pids()["remediator"], signal.SIGKILL)

    def revive_remediator(self) -> None:
        """Start it again, and wait until it is ready."""
        wait_until(self._stack.revive, "its end")

        def is_ready() -> bool:
            with suppress(HttpError):
                return self._remediator().get("/-/ready").status == 200
            return False

        wait_until(is_ready, "the remediator to be ready")

    def resume_slurmctld(self) -> None:
        """Let slurmctld go on."""
        if isinstance(self.cluster, OwnCluster):
            os.kill(self.cluster.slurmctld, signal.SIGCONT)

    def firing(self, alert: str, run_id: str) -> bool:
        """Whether Alertmanager lists the alert as active."""
        return bool(self.active(alert, run_id))

    def active(self, alert: str, run_id: str) -> list[AlertmanagerAlert]:
        """The active alerts of this name and run, by Alertmanager."""
        alertmanager = AlertmanagerClient(self._stack.alertmanager_url)
        return alertmanager.alerts(f'alertname="{alert}"', f'run_id="{run_id}"', inhibited=False)

    def wait_for_alert(self, alert: str, run_id: str, seconds: float = 120) -> None:
        """Wait until Alertmanager lists the alert as active."""
        wait_until(lambda: self.firing(alert, run_id), f"{alert} of {run_id}", timeout=seconds)

    def alerts_so_far(self, run_id: str) -> set[str]:
        """The names of all alerts that have fired for a run."""
        query = f'last_over_time(ALERTS{{run_id="{run_id}",alertstate="firing"}}[1h])'
        try:
            return {sample.labels["alertname"] for sample in PrometheusClient(self._stack.prometheus_url).query(query)}
        except PrometheusError as error:
            raise AssertionError(str(error)) from None

    def counts_signal(self, run_id: str, signal_name: str) -> bool:
        """Whether the exporter has found a signal in the logs of a run."""
        query = f'training_log_signals_total{{run_id="{run_id}",signal="{signal_name}"}} > 0'
        try:
            return bool(PrometheusClient(self._stack.prometheus_url).query(query))
        except PrometheusError:
            return False

    def wait_for_state(self, run_id: str, state: str) -> None:
        """Wait until the rules have been evaluated several times since a run is in this state."""
        prometheus = PrometheusClient(self._stack.prometheus_url)
        query = f'count_over_time((training_run_state{{run_id="{run_id}",state="{state}"}} == 1)[2m:5s]) >= 9'
        query += f' and on () training_run_state{{run_id="{run_id}",state="{state}"}} == 1'

        def probe() -> bool:
            with suppress(PrometheusError):
                return bool(prometheus.query(query))
            return False

        wait_until(probe, f"{run_id} is {state} in Prometheus", timeout=120)

    def incidents(self, run_id: str) -> list[dict[str, Any]]:
        """What the remediator has decided about a run, oldest first."""
        found: list[dict[str, Any]] = self._remediator().get("/api/v1/incidents", {"run_id": run_id}).json()
        return sorted(found, key=lambda incident: str(incident["created"]))

    def wait_for_incident(self, run_id: str, seconds: float = 150, **expected: str) -> dict[str, Any]:
        """Wait for an incident with these values."""

        def probe() -> dict[str, Any] | None:
            found = [each for each in self.incidents(run_id) if expected.items() <= each.items()]
            return found[0] if found else None

        def message() -> str:
            so_far = {"alerts": sorted(self.alerts_so_far(run_id)), "incidents": self.incidents(run_id)}
            return f"an incident of {run_id} with {expected}; so far\n{json.dumps(so_far, indent=1)}"

        return wait_until(probe, message, timeout=seconds)

    def metric(self, name: str) -> float:
        """One metric of the remediator that has no labels."""
        page = self._remediator().get("/metrics").body.decode()
        return next(float(line.split()[1]) for line in page.splitlines() if line.startswith(f"{name} "))

    def post_to_webhook(self, labels: dict[str, str], started: str) -> None:
        """Send an alert to the remediator as if Alertmanager had."""
        alert = {"status": "firing", "labels": labels, "annotations": {}, "startsAt": started}
        body = {"version": "4", "status": "firing", "alerts": [alert]}
        answer = self._remediator().post("/alertmanager/webhook", body)
        assert answer.status == 200, answer.body

    def post_to_alertmanager(self, labels: dict[str, str], started: str) -> None:
        """Send an alert to Alertmanager as if Prometheus had."""
        AlertmanagerClient(self._stack.alertmanager_url).post_alerts([{"labels": labels, "startsAt": started}])

    def _remediator(self) -> HttpClient:
        return HttpClient(self._stack.remediator_url, 30, auth=HttpAuth(token=self._stack.remediator_token))

    @contextmanager
    def paused_remediator(self) -> Iterator[None]:
        """The remediator stands still while the block runs."""
        pid = self._stack.pids()["remediator"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)
