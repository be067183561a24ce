"""Restarts on a real cluster with all of Trainwarden around it: by the user's own signal file and policies."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.compat.slurm_log_monitor.user import needed
from tests.slurm.cluster import Cluster
from tests.slurm.plain_jobs import FIRST, LOAD, NCCL, ON, STEPS, UNTIL_MARKED, PlainJobs, watched_jobs
from tests.slurm.watched_cluster import shared_watched_cluster
from trainwarden.stack.binaries import Tools

pytestmark = [
    pytest.mark.seed("Monitoring and Automatic Restart", "Job Restart"),
    pytest.mark.slurm,
    pytest.mark.tools,
    pytest.mark.e2e,
    pytest.mark.timeout(600),
]

_PREFIX = f"restart-{uuid.uuid4().hex[:8]}"
_SIGNALS = """\
class_name: SlurmLogMonitor
log_signals:
  - name: license_refused
    pattern: 'license server (?P<host>\\S+) refused'
    pattern_type: regex
    state:
      class_name: CrashState
    metadata:
      error_type: communication
      subsystem: distributed
  - name: no_batch
    pattern: 'no batch from the loader'
    pattern_type: regex
    state:
      class_name: StalledState
  - name: data_late
    pattern: 'gave up after waiting for'
    pattern_type: regex
    state:
      class_name: TimeoutState
"""
_OOM = 'echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB." >&2; exit 1\n'


def says(text: str) -> str:
    """A script that prints a line at its first start and stands still; at the next one it goes on."""
    return f"{STEPS}{FIRST}{{ {LOAD} echo '{text}'; sleep 3600; }}\n{ON}"


# Those that nightly tests submit are not among them.
_SCRIPTS = {
    "nccl": f"{STEPS}{UNTIL_MARKED}{FIRST}{{ {NCCL}; }}\n{ON}",
    "oom": STEPS + UNTIL_MARKED + _OOM,
}


@pytest.fixture(scope="module")
def jobs(cluster: Cluster, tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainJobs]:
    """All of them, submitted at once, and `trainwarden slurm watch` beside them, with the services of all tests."""
    folder = tmp_path_factory.mktemp("restart")
    watched = shared_watched_cluster(cluster)
    signals = watched.signals / f"{_PREFIX}.yaml"
    signals.write_text(_SIGNALS, encoding="utf-8")
    by_state = ", ".join(f"{_PREFIX}-{name}" for name in ("crashed", "stalled", "late"))
    rule = "  - {{match: {{name: [{}]}}, run_id: '%x', policy: megatron_transient{}}}\n"
    rules = rule.format(by_state, f", signals: {signals}") + rule.format(f"'{_PREFIX}-*'", "")
    try:
        with watched_jobs(watched, folder, rules) as made:
            for name, script in _SCRIPTS.items():
                made.submit(f"{_PREFIX}-{name}", script)
            yield made
    finally:
        signals.unlink()


def test_a_transient_failure_leads_to_one_new_start_of_the_same_script_that_is_tracked(jobs: PlainJobs) -> None:
    """Its id stays, as a requeue is the restart; each step is in the log of its decision."""
    name = f"{_PREFIX}-nccl"
    jobs.came_back(name, "crash")
    [incident] = jobs.watched.incidents(name)
    job_id = jobs.ids[name]
    keys = ("alert", "action", "policy", "error_type")
    assert [incident[key] for key in keys] == ["TrainRunFailed", "restart", "megatron_transient", "nccl_timeout"]
    assert incident["reason"].startswith("policy megatron_transient restarts after errors of the type nccl_timeout")
    assert incident["budget"] == {"used": 0, "limit": 3, "left": 2}
    log = [str(event["detail"]) for event in incident["events"]]
    cancelled = next(place for place, line in enumerate(log) if f"requeuehold {job_id}: status 0" in line)
    started = next(place for place, line in enumerate(log) if f"release {job_id}: status 0" in line)
    decided = next(place for place, line in enumerate(log) if line.startswith(f"restart: {incident['reason']}"))
    assert decided < cancelled < started < len(log) - 1
    assert log[-1].startswith("attempt 1 runs at step ")
    written = (jobs.watched.runs.parent / "stack/logs/remediator.log").read_text(encoding="utf-8")
    about = [line for line in written.splitlines() if " INFO " in line and f"run_id={name} " in line]
    assert [line for line in log[1:] if not any(f" INFO {line}"[:200] in each for each in about)] == []
    metadata, job = jobs.metadata(name), jobs.watched.cluster.job(job_id)
    assert metadata is not None
    assert job is not None
    assert (metadata.job_id, metadata.attempt, job.state, job.restarts) == (str(job_id), 1, "RUNNING", 1)
    output = (jobs.folder / f"{name}-{job_id}.out").read_text(encoding="utf-8")
    assert output.count("step 21/10000 ") == 1, "the script of the first start"


def test_an_excluded_failure_leads_to_none(jobs: PlainJobs) -> None:
    name = f"{_PREFIX}-oom"
    incident = jobs.watched.wait_for_incident(name, failure_mode="crash", state="SUPPRESSED")
    assert (incident["alert"], incident["action"], incident["error_type"]) == ("TrainRunFailed", "none", "oom")
    assert jobs.failure(name) == "cuda_oom"
    assert incident["reason"] == "the error type oom is excluded by policy megatron_transient: a restart would not help"
    job = jobs.watched.cluster.job(jobs.ids[name])
    assert job is not None
    assert (job.state, job.restarts) == ("FAILED", 0)


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "text", "mode", "limit"),
    [
        ("crashed", "FATAL license server lic1 refused: no seats left", "crash", 3),
        ("stalled", "no batch from the loader since 10:00", "stall", 2),
        ("late", "gave up after waiting for the data server", "timeout", 1),
    ],
    ids=["CrashState", "StalledState", "TimeoutState"],
)
def test_each_state_of_a_job_that_goes_on_is_restarted_by_the_policy_of_its_mode(
    jobs: PlainJobs, name: str, text: str, mode: str, limit: int
) -> None:
    """One after the other: three at a time on one node would be a storm, which nothing is restarted in."""
    jobs.submit(f"{_PREFIX}-{name}", says(text))
    jobs.came_back(f"{_PREFIX}-{name}", mode)
    [incident] = jobs.watched.incidents(f"{_PREFIX}-{name}")
    assert (incident["alert"], incident["budget"]["limit"]) == ("TrainRunSignalled", limit)


@pytest.mark.nightly
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="a job that SLURM lists as FAILED without evidence counts as an exception, which the policy excludes",
)
def test_a_slurm_failure_without_evidence_is_restarted(jobs: PlainJobs) -> None:
    name = f"{_PREFIX}-failed"
    jobs.submit(name, f"{STEPS}{UNTIL_MARKED}exit 1\n")
    with needed():
        incident = jobs.watched.wait_for_incident(name, failure_mode="crash")
    assert (incident["action"], incident["error_type"]) == ("restart", "slurm_failure")


@pytest.mark.nightly
@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="nothing follows from SLURM's time limit, whatever the policy says of it"
)
def test_a_job_that_reaches_its_time_limit_is_restarted_once_by_the_policy_for_timeouts(jobs: PlainJobs) -> None:
    """SLURM's shortest limit is a minute."""
    name = f"{_PREFIX}-limited"
    jobs.submit(name, STEPS + ON, "--time=1")
    with needed():
        jobs.wait_for_end(name, "cancelled, time limit", seconds=240)
        jobs.watched.wait_for_state(name, "cancelled")
    assert [each["failure_mode"] for each in jobs.watched.incidents(name) if each["action"] == "restart"] == ["timeout"]
