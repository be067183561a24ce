"""Half an hour of two jobs without the library that work: neither is restarted, with all of Trainwarden around them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator

import pytest

from tests.slurm.plain_jobs import ON, STEPS, PlainJobs, watched_jobs
from tests.slurm.programs import Programs
from tests.slurm.watched_cluster import running_watched_cluster
from tests.waiting import wait_until
from trainwarden.stack.binaries import Tools

pytestmark = [
    pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(2700),
]  # fmt: skip

SECONDS = 1800.0
# Python keeps what goes to a file until 8 KiB are full: here a block comes every two minutes or so, and a log may stand
# still for 20 s. It takes CPU time all along.
BUFFERED = f"""\
#!/bin/bash
#SBATCH --requeue
exec env -u PYTHONUNBUFFERED {sys.executable} -c '
import time
for step in range(1, 1000000):
    sum(range(3000000))
    time.sleep(0.5)
    print(f"step {{step}}/1000000 | loss 2.{{step}} | lr 0.001")
'
"""
RULES = (
    "  - {match: {partition: main}, run_id: '%x', inactivity: 20s, restart_stalls: true, policy: megatron_transient}\n"
)


@pytest.fixture(scope="module")
def jobs(slurm_programs: Programs, tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainJobs]:
    """Both of them."""
    folder = tmp_path_factory.mktemp("half-hour")
    with (
        running_watched_cluster(slurm_programs, tools, folder) as watched,
        watched_jobs(watched, folder, RULES) as found,
    ):
        found.submit("healthy", STEPS + ON)
        found.submit("buffered", BUFFERED)
        yield found


def test_neither_a_healthy_job_nor_one_behind_a_buffered_log_is_restarted_in_half_an_hour(jobs: PlainJobs) -> None:
    jobs.wait_for_step("healthy", 10)
    jobs.wait_for_step("buffered", 10)
    # A restart is asked for, and objected to: the test would show one.
    jobs.watched.wait_for_alert("TrainRunStalled", "buffered", 300)
    began, first = time.monotonic(), jobs.step("buffered")

    def is_over() -> bool:
        for name, job_id in jobs.ids.items():
            job = jobs.watched.cluster.job(job_id)
            assert job is not None, name
            assert (job.state, job.restarts) == ("RUNNING", 0), f"{name}\n{jobs.log()}"
            assert [each for each in jobs.watched.incidents(name) if each["action"] == "restart"] == []
        time.sleep(5.0)  # half an hour passes, and is not waited for
        return time.monotonic() - began >= SECONDS

    wait_until(is_over, jobs.log, timeout=SECONDS + 300)
    assert jobs.step("buffered") > first + 500
    assert jobs.attempts("healthy") == jobs.keys("healthy", 1)
    assert jobs.attempts("buffered") == jobs.keys("buffered", 1)
    # That it saves no checkpoint is said after half an hour.
    alerts = jobs.watched.alerts_so_far("healthy") - {"TrainRunNotRecoverable"}
    assert not {name for name in alerts if name.startswith("TrainRun")}
