"""Batch scripts without the library that hang, fail or print what their user's signals state: what is decided."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.slurm.plain_jobs import FIRST, LOAD, ON, STEPS, UNTIL_MARKED, PlainJobs, watched_jobs
from tests.slurm.watched_cluster import WatchedCluster

pytestmark = [
    pytest.mark.slurm, pytest.mark.tools, pytest.mark.e2e, pytest.mark.nightly, pytest.mark.timeout(600),
]  # fmt: skip

_SCRIPTS = {
    "disk": STEPS + UNTIL_MARKED + 'echo "OSError: [Errno 28] No space left on device" >&2; exit 1\n',
    # It works on, and prints nothing of that for long.
    "buffered": STEPS + LOAD + "while true; do for _ in $(seq 30000); do :; done; sleep 0.2; done\n",
    "stated": STEPS
    + FIRST
    + f"{{ {LOAD} echo 'FATAL license server lic1 refused: no seats left'; sleep 3600; }}\n"
    + ON,
    "late": STEPS + FIRST + f"{{ {LOAD} echo 'gave up after waiting for the data server'; sleep 3600; }}\n" + ON,
    "silent": STEPS + "sleep 3600\n",
}
# A signal file as users of the SLURM log monitor have it; their policy file is that of the cluster.
_SIGNALS = """\
class_name: SlurmLogMonitor
log_signals:
  - name: license_refused
    pattern: 'license server (?P<host>\\S+) refused'
    pattern_type: regex
    state: {class_name: CrashState}
    metadata: {error_type: license}
  - {name: data_late, pattern: 'gave up after waiting for', state: {class_name: TimeoutState}}
"""


@pytest.fixture(scope="module")
def jobs(watched: WatchedCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlainJobs]:
    """All of them, submitted at once, and the service that watches them."""
    signals = watched.signals / "verdicts.yaml"
    signals.write_text(_SIGNALS, encoding="utf-8")
    rules = (
        "  - {match: {name: silent}, run_id: '%x', inactivity: 20s}\n"
        f"  - {{match: {{name: [stated, late]}}, run_id: '%x', signals: {signals}}}\n"
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


@pytest.mark.parametrize(
    ("name", "mode", "error_type"), [("stated", "crash", "license"), ("late", "timeout", "time_limit")]
)
def test_what_a_users_signal_states_of_a_job_that_goes_on_leads_to_the_policys_mode(
    jobs: PlainJobs, name: str, mode: str, error_type: str
) -> None:
    jobs.came_back(name, mode)
    (incident,) = jobs.watched.incidents(name)
    assert (incident["alert"], incident["error_type"]) == ("TrainRunSignalled", error_type)


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
