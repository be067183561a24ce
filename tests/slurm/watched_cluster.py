"""The cluster under watch: exporter, Prometheus, Alertmanager and the remediator with driver slurm, all real.

usage: python -m tests.slurm.watched_cluster FOLDER CLUSTER

It starts the services around the cluster in the folder CLUSTER, writes all that users of them need into FOLDER, and
goes on until it is killed.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tests.session import shared
from tests.slurm.cluster import Cluster, OwnCluster, running_cluster
from tests.slurm.programs import Programs
from tests.slurm.training_job import ROOT, TrainingJob, submit
from tests.waiting import wait_until
from trainwarden.clients.alertmanager import AlertmanagerAlert, AlertmanagerClient
from trainwarden.clients.http import HttpAuth, HttpClient, HttpError
from trainwarden.clients.prometheus import PrometheusClient, PrometheusError
from trainwarden.stack.binaries import Tools, find_tools
from trainwarden.stack.local_stack import LocalStack, StackSettings
from trainwarden.stack.slack_sink import Message, SlackSink

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
    """Services around a cluster that run: what a user of them can do. They may be shared: runs have names of their own.

    Attributes:
        runs: the folder of the records.
        signals: a folder in which signal files of runs are read.
        alone: options of jobs that stand still, for two of them on one node are a storm.
    """

    alone: tuple[str, ...] = ()

    def __init__(self, cluster: Cluster, folder: Path) -> None:
        self.cluster = cluster
        self.runs = folder / "runs"
        self.signals = folder / "signals"
        self._commands = folder / "commands"
        self._messages = folder / "messages.jsonl"
        self._services = folder / "services.json"

    def messages(self) -> list[dict[str, Any]]:
        """All payloads that Alertmanager has sent to Slack, oldest first."""
        lines = self._messages.read_text(encoding="utf-8").splitlines() if self._messages.exists() else []
        return [json.loads(line) for line in lines]

    def submit(self, run_id: str, script: Path, *arguments: str, options: Sequence[str] = ()) -> TrainingJob:
        """Submit a training whose record is watched."""
        return submit(
            self.cluster,
            self.runs,
            run_id,
            script,
            *arguments,
            options=options,
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

    def firing(self, alert: str, run_id: str) -> bool:
        """Whether Alertmanager lists the alert as active."""
        return bool(self.active(alert, run_id))

    def active(self, alert: str, run_id: str) -> list[AlertmanagerAlert]:
        """The active alerts of this name and run, by Alertmanager."""
        alertmanager = AlertmanagerClient(self._address("alertmanager_url"))
        return alertmanager.alerts(f'alertname="{alert}"', f'run_id="{run_id}"', inhibited=False)

    def wait_for_alert(self, alert: str, run_id: str, seconds: float = 120) -> None:
        """Wait until Alertmanager lists the alert as active."""
        wait_until(lambda: self.firing(alert, run_id), f"{alert} of {run_id}", timeout=seconds)

    def alerts_so_far(self, run_id: str) -> set[str]:
        """The names of all alerts that have fired for a run."""
        query = f'last_over_time(ALERTS{{run_id="{run_id}",alertstate="firing"}}[1h])'
        try:
            return {
                sample.labels["alertname"] for sample in PrometheusClient(self._address("prometheus_url")).query(query)
            }
        except PrometheusError as error:
            raise AssertionError(str(error)) from None

    def counts_signal(self, run_id: str, signal_name: str) -> bool:
        """Whether the exporter has found a signal in the logs of a run."""
        query = f'training_log_signals_total{{run_id="{run_id}",signal="{signal_name}"}} > 0'
        try:
            return bool(PrometheusClient(self._address("prometheus_url")).query(query))
        except PrometheusError:
            return False

    def wait_for_state(self, run_id: str, state: str) -> None:
        """Wait until the rules have been evaluated several times since a run is in this state."""
        prometheus = PrometheusClient(self._address("prometheus_url"))
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

    def came_back(self, job: TrainingJob, failure_mode: str, step_before: int) -> None:
        """The run was restarted exactly once, from a checkpoint, and is past the step where it broke."""
        incident = self.wait_for_incident(job.run_id, failure_mode=failure_mode, state="DONE")
        assert incident["action"] == "restart"
        assert incident["attempt_key"] == f"slurm:{job.job_id}:0"
        assert job.has_passed(step_before) > step_before
        assert [attempt.key for attempt in job.attempts] == [f"slurm:{job.job_id}:{count}" for count in (0, 1)]
        resumed_at = job.attempts[1].resume_step
        assert resumed_at is not None
        assert 20 <= resumed_at <= step_before + 1
        assert job.starts == 2
        in_slurm = self.cluster.job(job.job_id)
        assert in_slurm is not None
        assert (in_slurm.state, in_slurm.restarts) == ("RUNNING", 1)
        assert self.calls(job)[0] == "requeuehold"
        assert self.calls(job)[-1] == "release"

    def stayed_down(self, job: TrainingJob, state: str) -> None:
        """The job was started once, ended in this state, and was never touched by the remediator."""
        assert job.state() == state
        assert job.starts == 1
        assert self.calls(job) == []

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
        AlertmanagerClient(self._address("alertmanager_url")).post_alerts([{"labels": labels, "startsAt": started}])

    def _remediator(self) -> HttpClient:
        return HttpClient(self._address("remediator_url"), 30, auth=HttpAuth(token=self._address("remediator_token")))

    def _address(self, name: str) -> str:
        return str(json.loads(self._services.read_text(encoding="utf-8"))[name])


class OwnWatchedCluster(WatchedCluster):
    """The services as children of this process; `flags` are more of the remediator. `stop()` leaves no process."""

    def __init__(self, cluster: Cluster, tools: Tools, folder: Path, *flags: str) -> None:
        super().__init__(cluster, folder)
        self._sink = SlackSink(self._keep)
        policy = folder / "policy.yaml"
        policy.write_text(_POLICY, encoding="utf-8")
        often = ("--poll-interval=1", "--busy-interval=0.5")
        # The runs of all tests together are no storm.
        driver = (
            "--driver=slurm",
            f"--slurm-bin-dir={self._commands}",
            "--storm-runs=1000",
            "--storm-window=1s",
            *often,
            *flags,
        )
        settings = StackSettings(
            folder / "stack", self.runs, self._sink.url, policy=str(policy), driver=driver, log_roots=[self.signals]
        )
        self._stack = LocalStack(settings, tools)

    def start(self) -> None:
        """Start the services. Raises ServiceFailed."""
        for folder in (self.runs, self.signals, self._commands):
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
        names = ("prometheus_url", "alertmanager_url", "remediator_url", "remediator_token")
        written = self._services.with_suffix(".new")
        written.write_text(json.dumps({name: getattr(self._stack, name) for name in names}), encoding="utf-8")
        written.rename(self._services)

    def stop(self) -> None:
        """End the services; whatever a test has stopped goes on first."""
        self.resume_slurmctld()
        self._stack.stop()
        self._sink.close()

    def _keep(self, message: Message) -> None:
        with self._messages.open("a", encoding="utf-8") as file:
            file.write(json.dumps(message.payload) + "\n")

    def stop_slurmctld_before(self, verb: str, job: TrainingJob) -> None:
        """slurmctld will stand still when the remediator next calls this for the job."""
        assert isinstance(self.cluster, OwnCluster), "others use this cluster too"
        (self._commands / f"stop-{verb}-{job.job_id}").write_text(str(self.cluster.slurmctld), encoding="utf-8")

    def resume_slurmctld(self) -> None:
        """Let slurmctld go on."""
        if isinstance(self.cluster, OwnCluster):
            os.kill(self.cluster.slurmctld, signal.SIGCONT)

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

    @contextmanager
    def paused_remediator(self) -> Iterator[None]:
        """The remediator stands still while the block runs."""
        pid = self._stack.pids()["remediator"]
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)


@contextmanager
def running_watched_cluster(
    programs: Programs, tools: Tools, folder: Path, *flags: str, **of_the_cluster: Any
) -> Iterator[OwnWatchedCluster]:
    """A cluster of one's own with the services around it; both are stopped however the block ends."""
    with running_cluster(programs, **of_the_cluster) as cluster:
        watched = OwnWatchedCluster(cluster, tools, folder, *flags)
        try:
            watched.start()
            yield watched
        finally:
            watched.stop()


_of_the_session: list[subprocess.Popen[bytes]] = []


def shared_watched_cluster(cluster: Cluster) -> WatchedCluster:
    """The services around the shared cluster, which the session ends. No test may stop them."""

    def start(folder: Path) -> None:
        command = [sys.executable, "-m", "tests.slurm.watched_cluster", str(folder), str(cluster.folder)]
        # A process of their own: the services end with the one that has started them, and a worker may end early.
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(command, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        _of_the_session.append(process)  # else it would be reported as a forgotten child
        listening = folder / "services.json"
        wait_until(lambda: listening.exists() or process.poll() is not None, "the services")
        if not listening.exists():
            raise RuntimeError((folder / "log").read_text(encoding="utf-8"))

    watched = WatchedCluster(cluster, shared("watched", start))
    watched.alone = ("--partition=alone",)
    return watched


def main() -> None:
    """Start the services, and go on."""
    folder, cluster = map(Path, sys.argv[1:])
    OwnWatchedCluster(Cluster(cluster), find_tools(), folder).start()
    signal.pause()


if __name__ == "__main__":
    main()
