"""Batch scripts without the library that fail, are silent, or work behind a buffered log: what is decided."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.plain_jobs import LOAD, STEPS, UNTIL_MARKED, PlainJobs, watched_jobs
from tests.slurm.watched_cluster import WatchedCluster

pytestmark = [
    pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(600),
]  # fmt: skip

_SCRIPTS = {
    "disk": STEPS + UNTIL_MARKED + 'echo "OSError: [Errno 28] No space left on device" >&2; exit 1\n',
    # It works on, and prints nothing of that for long.
    "buffered": STEPS + LOAD + "while true; do for _ in $(seq 30000); do :; done; sleep 0.2; done\n",
    "silent": STEPS + "sleep 3600\n",
}


@pytest.fixture(scope="module")
def jobs(watched: WatchedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainJobs]:
    """All of them, submitted at once, and the service that watches them."""
    rules = (
        "  - {match: {name: silent}, run_id: '%x', inactivity: 20s}\n"
        "  - {match: {name: [disk, buffered]}, run_id: '%x', inactivity: 20s, restart_stalls: true,\n"
        "     policy: megatron_transient}\n"
    )
    with watched_jobs(watched, tmp_path_factory.mktemp("verdicts"), rules) as found:
        for name, text in _SCRIPTS.items():
            found.submit(name, text)
        yield found


def test_a_failure_that_needs_a_person_alerts_with_its_cause_and_restarts_nothing(
    jobs: PlainJobs,
) -> None:
    jobs.watched.wait_for_alert("TrainRunFailed", "disk")
    assert jobs.failure("disk") == "storage_quota"
    incident = jobs.watched.wait_for_incident("disk", failure_mode="crash")
    assert incident["action"] != "restart"
    job = jobs.watched.cluster.job(jobs.ids["disk"])
    assert job is not None
    assert (job.state, job.restarts) == ("FAILED", 0)


def test_a_job_that_works_behind_a_buffered_log_is_not_restarted_and_pages(jobs: PlainJobs) -> None:
    incident = jobs.watched.wait_for_incident("buffered", 240, failure_mode="stall", state="ESCALATED")
    assert "no second vantage point agrees: CPU time" in incident["reason"]
    assert "CPUs busy" in incident["reason"]
    job = jobs.watched.cluster.job(jobs.ids["buffered"])
    assert job is not None
    assert (job.state, job.restarts) == ("RUNNING", 0)


def test_silence_alone_alerts_and_restarts_nothing(jobs: PlainJobs) -> None:
    jobs.watched.wait_for_alert("TrainRunStalled", "silent")
    (alert,) = jobs.watched.active("TrainRunStalled", "silent")
    assert alert.labels["remediate"] == "false"
    job = jobs.watched.cluster.job(jobs.ids["silent"])
    assert job is not None
    assert (job.state, job.restarts) == ("RUNNING", 0)
