"""Jobs without the library that SLURM ends or requeues, or that are adopted, with all of Trainwarden around them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.slurm.cluster import OwnCluster
from tests.slurm.plain_jobs import NCCL, ON, STEPS, UNTIL_MARKED, PlainJobs, watched_jobs
from tests.slurm.programs import Programs
from tests.slurm.watched_cluster import running_watched_cluster
from tests.waiting import wait_until
from trainwarden.stack.binaries import Tools

pytestmark = [
    pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(600),
]  # fmt: skip

_NAN = 'echo "step 21/10000 | loss nan | lr 0.001"; echo "RuntimeError: found NaN in local forward loss" >&2; exit 1\n'
# As users of the SLURM log monitor have it, in a folder of their own.
_SIGNALS = """\
class_name: SlurmLogMonitor
inactivity_threshold_seconds: 20
log_signals:
  - {name: license_refused, pattern: 'license server (?P<host>\\S+) refused', pattern_type: regex}
"""
# Preempted jobs are on n1 and n2, whose place one job takes; the others are on n3.
_JOBS = {
    "healthy": (STEPS + ON, "--nodelist=n3"),
    "nan": (STEPS + UNTIL_MARKED + _NAN, "--nodelist=n3"),
    "requeued": (STEPS + ON, "--nodelist=n3"),
    "preempted": (STEPS + ON, "--partition=requeue", "--nodelist=n1", "--exclusive"),
    "displaced": (STEPS + ON, "--partition=cancel", "--nodelist=n2", "--exclusive"),
    "quiet": (STEPS + "echo 'license server lic1 refused'; sleep 3600\n", "--nodelist=n3"),
    "limited": (STEPS + ON, "--nodelist=n3", "--time=1"),
}
_PARTITIONS = (
    "requeue PriorityTier=1 PreemptMode=REQUEUE",
    "cancel PriorityTier=1 PreemptMode=CANCEL",
    "urgent PriorityTier=10 PreemptMode=OFF",
)
_SETTINGS = {"PreemptType": "preempt/partition_prio", "PreemptMode": "REQUEUE", "SlurmdTimeout": "15"}
_RULE = "  - {match: {name: [%s]}, run_id: '%%x', inactivity: 60s, restart_stalls: true, policy: megatron_transient}\n"


@pytest.fixture(scope="module")
def jobs(slurm_programs: Programs, tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainJobs]:
    """All of them, submitted at once."""
    folder = tmp_path_factory.mktemp("endings")
    signals = folder / "signals/mine.yaml"
    rules = f"  - {{match: {{name: quiet}}, run_id: '%x', signals: {signals}}}\n"
    rules += "  - {match: {name: sweep}, run_id: '%x_%a'}\n"
    rules += _RULE % ", ".join([*(name for name in _JOBS if name != "quiet"), "lost"])
    with (
        running_watched_cluster(slurm_programs, tools, folder, settings=_SETTINGS, partitions=_PARTITIONS) as watched,
        watched_jobs(watched, folder, rules) as found,
    ):
        signals.write_text(_SIGNALS, encoding="utf-8")
        for name, (text, *options) in _JOBS.items():
            found.submit(name, text, *options)
        yield found


def left_alone(jobs: PlainJobs, name: str, state: str, starts: int) -> None:
    """Prometheus has judged the run several times in this state; no failure was alerted, and nothing was restarted."""
    jobs.watched.wait_for_state(name, state)
    assert "TrainRunFailed" not in jobs.watched.alerts_so_far(name)
    assert [each for each in jobs.watched.incidents(name) if each["action"] == "restart"] == []
    assert jobs.attempts(name) == jobs.keys(name, starts)


def test_a_requeue_by_its_user_is_the_next_attempt_and_no_failure(jobs: PlainJobs) -> None:
    jobs.wait_for_step("requeued", 10)
    jobs.watched.cluster.run("scontrol", "requeue", str(jobs.ids["requeued"]))
    jobs.wait_for_end("requeued", "cancelled, requeued")
    jobs.wait_for_step("requeued", 21)
    left_alone(jobs, "requeued", "running", starts=2)


def test_preempted_jobs_are_no_failures_whether_slurm_requeues_or_cancels_them(jobs: PlainJobs) -> None:
    for name in ("preempted", "displaced"):
        jobs.wait_for_step(name, 10)
    jobs.submit("urgent", STEPS, "--partition=urgent", "--nodelist=n1,n2", "--nodes=2", "--exclusive")
    jobs.wait_for_end("preempted", "cancelled, preempted")
    jobs.wait_for_end("displaced", "cancelled, preempted")
    # The urgent job ends by itself.
    jobs.wait_for_step("preempted", 21)
    left_alone(jobs, "preempted", "running", starts=2)
    left_alone(jobs, "displaced", "cancelled", starts=1)


def test_numbers_that_are_none_alert_and_restart_nothing(jobs: PlainJobs) -> None:
    jobs.watched.wait_for_alert("TrainRunFailed", "nan")
    assert jobs.failure("nan") == "numeric"
    incident = jobs.watched.wait_for_incident("nan", failure_mode="crash")
    assert incident["action"] != "restart"
    assert jobs.attempts("nan") == jobs.keys("nan", 1)


def test_a_users_signal_file_is_searched_for_and_says_how_long_a_log_may_stand_still(jobs: PlainJobs) -> None:
    wait_until(lambda: jobs.watched.counts_signal("quiet", "license_refused"), "the user's signal", timeout=120)
    jobs.watched.wait_for_alert("TrainRunStalled", "quiet")
    assert jobs.attempts("quiet") == jobs.keys("quiet", 1)


def test_an_adopted_job_is_restarted_and_watched_on(jobs: PlainJobs) -> None:
    """Nothing is known of it before; it has run for some steps."""
    broken = jobs.folder / "break"
    once = f'while [ "${{SLURM_RESTART_COUNT:-0}}" = 0 ]; do sleep 0.2; [ -e {broken} ] && {{ {NCCL}; }}; done\n'
    jobs.submit("adopted", STEPS + once + ON, "--nodelist=n3")
    cluster = jobs.watched.cluster
    job_id = str(jobs.ids["adopted"])
    output = jobs.folder / f"adopted-{job_id}.out"
    wait_until(lambda: output.exists() and "step 5/" in output.read_text(), "steps of the job that is to be adopted")
    assert not (jobs.watched.runs / "adopted").exists()
    options = (f"--runs-dir={jobs.watched.runs}", "--run-id=adopted", "--mark", "--policy=megatron_transient")
    command = (sys.executable, "-m", "trainwarden", "slurm", "adopt", job_id, *options, "--interval=1s")
    with (jobs.folder / "adopt.log").open("wb") as log:
        adopt = subprocess.Popen(
            [*command, f"--slurm-bin-dir={cluster.bin}"], env=cluster.environment, stdout=log, stderr=log
        )
    try:
        jobs.wait_for_step("adopted", 20)
        broken.touch()
        incident = jobs.watched.wait_for_incident("adopted", failure_mode="crash", state="DONE")
        assert incident["action"] == "restart"
        assert jobs.attempts("adopted") == jobs.keys("adopted", 2)
        jobs.wait_for_step("adopted", 21)
        assert adopt.poll() is None
        cluster.run("scancel", job_id)
        assert adopt.wait(60) == 1
    finally:
        adopt.kill()
        adopt.wait()
    assert "run adopted: cancelled" in (jobs.folder / "adopt.log").read_text(encoding="utf-8")


def test_a_time_limit_is_no_failure(jobs: PlainJobs) -> None:
    """SLURM's shortest limit is a minute."""
    jobs.wait_for_end("limited", "cancelled, time limit", seconds=240)
    left_alone(jobs, "limited", "cancelled", starts=1)


def test_each_of_a_hundred_tasks_of_an_array_is_a_run_of_one_attempt(jobs: PlainJobs) -> None:
    jobs.submit("sweep", "#!/bin/sh\necho 'step 9/9 | loss 2.0'\n", "--array=1-100", "--overcommit")
    names = [f"sweep_{task}" for task in range(1, 101)]

    def ended() -> bool:
        found = [jobs.metadata(name) for name in names]
        return all(each is not None and each.status == "succeeded" for each in found)

    wait_until(ended, jobs.log, timeout=400)
    keys = [key for name in names for key in jobs.attempts(name)]
    assert len(keys) == len(set(keys)) == 100
    assert len(list(jobs.watched.runs.glob("sweep*"))) == 100


def test_a_job_whose_node_is_lost_is_left_to_slurm_which_requeues_it(jobs: PlainJobs) -> None:
    cluster = jobs.watched.cluster
    assert isinstance(cluster, OwnCluster)
    # It has the node for itself, where no other test has ended it.
    cluster.run("scancel", str(jobs.ids["displaced"]))
    jobs.submit("lost", STEPS + ON, "--nodelist=n2")
    jobs.wait_for_step("lost", 10)
    cluster.kill("n2")
    cluster.kill_job(jobs.ids["lost"])
    wait_until(lambda: (job := cluster.job(jobs.ids["lost"])) and job.restarts == 1, cluster.logs, timeout=120)
    cluster.start_node("n2")
    jobs.wait_for_step("lost", 21)
    jobs.watched.wait_for_state("lost", "running")
    assert jobs.attempts("lost") == jobs.keys("lost", 2)
    assert [each for each in jobs.watched.incidents("lost") if each["action"] == "restart"] == []


def test_a_healthy_job_has_no_alert_and_no_decision(jobs: PlainJobs) -> None:
    """The last of the tests, so that there was time for one."""
    jobs.wait_for_step("healthy", 60)
    left_alone(jobs, "healthy", "running", starts=1)
    assert not {name for name in jobs.watched.alerts_so_far("healthy") if name.startswith("TrainRun")}
