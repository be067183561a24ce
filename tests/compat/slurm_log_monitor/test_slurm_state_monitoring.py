"""Each transition of a job's state on a real cluster, and what the record of its run says of it."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compat.slurm_log_monitor.user import until
from tests.slurm.cluster import Cluster
from trainwarden.stack.ports import free_port

pytestmark = [
    pytest.mark.seed("Monitoring and Automatic Restart", "SLURM State Monitoring"),
    pytest.mark.slurm,
    pytest.mark.timeout(300),
]

_RULES = Path(__file__).resolve().parents[3] / "rules/alerts/runs.yml"
# Leaves out the jobs that a file names: SLURM forgets a job that has ended, and here after an hour only.
_SQUEUE = """\
#!{python}
import json, pathlib, subprocess, sys
done = subprocess.run([{squeue!r}, *sys.argv[1:]], stdout=subprocess.PIPE)
text, gone = done.stdout, pathlib.Path({gone!r}).read_text().split()
if done.returncode == 0 and text.startswith(b"{{"):
    answer = json.loads(text)
    answer["jobs"] = [each for each in answer["jobs"] if str(each["job_id"]) not in gone]
    text = json.dumps(answer).encode()
sys.stdout.buffer.write(text)
sys.exit(done.returncode)
"""


@dataclass
class Jobs:
    """Batch scripts under `trainwarden slurm watch`, by a short name; the run of each is its job's name."""

    cluster: Cluster
    folder: Path
    prefix: str = field(default_factory=lambda: f"states-{uuid.uuid4().hex[:8]}")
    ids: dict[str, int] = field(default_factory=dict)

    def submit(self, name: str, end: str, *options: str) -> None:
        """Submit a script that ends so once the file `NAME.end` is there."""
        script = self.folder / f"{name}.sbatch"
        until_end = f"until [ -e {self.folder}/{name}.end ]; do sleep 0.2; done"
        script.write_text(f"#!/bin/sh\n{until_end}\n{end}\n", encoding="utf-8")
        named = [f"--job-name={self.prefix}-{name}", f"--output={self.folder}/%x-%j.out", *options]
        self.ids[name] = self.cluster.submit(script, options=named)

    def end(self, name: str) -> None:
        """Let a script end."""
        (self.folder / f"{name}.end").touch()

    def document(self, name: str, file: str = "metadata.json") -> dict[str, Any]:
        """A document of the record of a job's run; empty before there is one."""
        path = self.folder / "runs" / f"{self.prefix}-{name}" / file
        return json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}

    def is_in(self, name: str, status: str) -> None:
        """Wait until the record of a job's run has a status."""
        until(lambda: self.document(name).get("status") == status, lambda: f"{name}: {status}\n{self.log()}")

    def log(self) -> str:
        """What the watch has logged."""
        return (self.folder / "watch.log").read_text(encoding="utf-8")

    def logged(self, name: str, event: str, more: str = "") -> None:
        """Wait until the exporter has logged an event of a run, at the level INFO."""
        line = f"{event} run_id={self.prefix}-{name} attempt=0 key=slurm:{self.ids[name]}:0{more}"

        def found() -> bool:
            lines = (self.folder / "exporter.log").read_text(encoding="utf-8").splitlines()
            return any(" INFO " in each and each.endswith(line) for each in lines)

        until(found, lambda: f"{line}\n{(self.folder / 'exporter.log').read_text(encoding='utf-8')}")

    def forget(self, name: str) -> None:
        """Leave a job out of all further lists."""
        with (self.folder / "gone").open("a", encoding="utf-8") as file:
            file.write(f"{self.ids[name]}\n")


@pytest.fixture(scope="module")
def jobs(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Jobs]:
    """All of them, submitted at once and watched."""
    made = Jobs(cluster, tmp_path_factory.mktemp("states"))
    configuration, commands = made.folder / "jobs.yml", made.folder / "bin"
    rule = f"  - {{match: {{name: '{made.prefix}-*'}}, run_id: '%x'}}\n"
    configuration.write_text(f"runs_dir: {made.folder}/runs\nmarked: false\njobs:\n{rule}", encoding="utf-8")
    configuration.chmod(0o600)
    (made.folder / "gone").touch()
    commands.mkdir()
    values = {"python": sys.executable, "squeue": str(cluster.bin / "squeue"), "gone": f"{made.folder}/gone"}
    (commands / "squeue").write_text(_SQUEUE.format(**values), encoding="utf-8")
    scontrol = f'#!/bin/sh\nexec {shlex.quote(str(cluster.bin / "scontrol"))} "$@"\n'
    (commands / "scontrol").write_text(scontrol, encoding="utf-8")
    for each in commands.iterdir():
        each.chmod(0o755)
    command = [sys.executable, "-m", "trainwarden", "slurm", "watch", f"--config={configuration}", "--interval=1s"]
    flags = ["--collector.disable-defaults", "--collector.runs", f"--collector.runs.path={made.folder}/runs"]
    flags += ["--collector.runs.scope=all", f"--web.listen-address=127.0.0.1:{free_port()}"]
    services = {
        "watch": [*command, f"--slurm-bin-dir={commands}"],
        "exporter": [sys.executable, "-m", "trainwarden_exporter", *flags],
    }
    started = []
    for name, argv in services.items():
        with (made.folder / f"{name}.log").open("wb") as log:
            started.append(subprocess.Popen(argv, env=cluster.environment, stdout=log, stderr=log))
    try:
        made.submit("waiting", "exit 0", "--hold")
        for name, end in {"good": "exit 0", "bad": "exit 1", "unwanted": "exit 0", "lost": "exit 0"}.items():
            made.submit(name, end)
        for name in ("good", "bad", "unwanted", "lost"):
            made.is_in(name, "running")
        yield made
    finally:
        for process in started:
            process.terminate()
            process.wait(60)
        cluster.run("scancel", *map(str, made.ids.values()))


@pytest.fixture(scope="module")
def started(jobs: Jobs) -> Jobs:
    """The job that waited runs; before that it had no record."""
    if jobs.document("waiting"):
        raise RuntimeError("a job that waits has a record")
    jobs.cluster.run("scontrol", "release", str(jobs.ids["waiting"]))
    jobs.is_in("waiting", "running")
    return jobs


def test_pending_to_running_begins_the_record_of_its_run(started: Jobs) -> None:
    document = started.document("waiting")
    job_id = started.ids["waiting"]
    keys = ("scheduler", "job_id", "attempt", "attempt_key", "status")
    assert [document[key] for key in keys] == ["slurm", str(job_id), 0, f"slurm:{job_id}:0", "running"]


def test_pending_to_running_emits_run_started(started: Jobs) -> None:
    started.logged("waiting", "run_started")


@pytest.fixture(scope="module")
def ending(jobs: Jobs) -> Jobs:
    """The other jobs end, each in its way: the watch waits for the last lines of a log, of all at the same time."""
    jobs.end("good")
    jobs.end("bad")
    jobs.cluster.run("scancel", str(jobs.ids["unwanted"]))
    jobs.forget("lost")
    return jobs


def test_running_to_completed_is_a_success(ending: Jobs) -> None:
    ending.is_in("good", "succeeded")
    assert ending.document("good", "_error") == {}


def test_running_to_cancelled_is_cancelled_and_no_failure(ending: Jobs) -> None:
    """A user's own scancel stays the last word: no restart follows from it."""
    ending.is_in("unwanted", "cancelled")
    assert ending.document("unwanted")["reason"] == "cancelled through the scheduler"
    assert ending.document("unwanted", "_error") == {}


@pytest.fixture(scope="module")
def failed(ending: Jobs) -> Jobs:
    """The job that ends with status 1 and prints nothing has done so."""
    ending.is_in("bad", "failed")
    return ending


def test_running_to_failed_is_a_failure(failed: Jobs) -> None:
    error = failed.document("bad", "_error")
    assert (error["attempt_key"], error["exit_code"]) == (f"slurm:{failed.ids['bad']}:0", 1)


@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="a job that SLURM lists as FAILED, without evidence in its log, counts as an exception of its program",
)
def test_running_to_failed_without_evidence_is_slurm_failure(failed: Jobs) -> None:
    assert failed.document("bad", "_error")["error_type"] == "slurm_failure"


def test_a_job_that_is_not_in_the_queue_is_a_timeout_and_not_ended(ending: Jobs) -> None:
    """Nothing shows how it ended: the heartbeats of its record stop, and TrainRunTimedOut fires."""
    line = f"job {ending.ids['lost']} is not listed any more, and nothing shows how it ended"
    until(lambda: line in ending.log(), ending.log)
    assert ending.document("lost")["status"] == "running"
    rules = yaml.safe_load(_RULES.read_text(encoding="utf-8"))
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if rule.get("alert") == "TrainRunTimedOut"]
    assert {rule["labels"]["failure_mode"] for rule in alerts} == {"timeout"}
    assert "true" in {rule["labels"]["remediate"] for rule in alerts}


def test_all_transitions_are_logged_at_info_with_old_and_new_state(ending: Jobs) -> None:
    for name, state in {"good": "succeeded", "bad": "failed", "unwanted": "cancelled"}.items():
        ending.logged(name, "run_state_changed", f" old=running new={state}")
