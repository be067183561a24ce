"""The outcomes that docs/plain-jobs.md promises for jobs without the library are those of tests on a real SLURM."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
_TEST = re.compile(r"^def (test_\w+)\(.*?(?=^(?:@|def |\Z))", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([a-z_]+)`|\b(Train[A-Z]\w+)")
# By the first cell of its row: the tests of it, and what they show of the job's record, alert and decision.
PROVEN: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "works": (("test_a_healthy_job_has_no_alert_and_no_decision",), ('left_alone(jobs, "healthy", "running"',)),
    "works, and its log is buffered: what it prints comes now and then": (
        (
            "test_a_job_that_works_behind_a_buffered_log_is_not_restarted_and_pages",
            "test_silence_alone_alerts_and_restarts_nothing",
        ),
        ("no second vantage point agrees", '("RUNNING", 0)', "TrainRunStalled", '["remediate"] == "false"'),
    ),
    "hangs": (
        (
            "test_a_hang_leads_to_one_restart_where_the_rule_allows_it",
            "test_silence_alone_alerts_and_restarts_nothing",
        ),
        ('came_back("hang", "stall")', "TrainRunStalled", '["remediate"] == "false"'),
    ),
    "ends as it should": (
        ("test_a_job_that_ends_well_is_a_run_that_succeeded",),
        ('"success", "succeeded"', "TrainRunSucceeded"),
    ),
    "runs out of the GPU's memory": (
        ("test_a_failure_that_needs_a_person_alerts_with_its_cause_and_restarts_nothing",),
        ('("oom", "cuda_oom")', "TrainRunFailed", '["action"] != "restart"'),
    ),
    "is ended by NCCL's watchdog": (
        ("test_a_transient_failure_leads_to_one_restart_that_the_log_proves",),
        ('came_back("nccl", "crash")', 'incident["alert"] == "TrainRunFailed"'),
    ),
    "fills the disk": (
        ("test_a_failure_that_needs_a_person_alerts_with_its_cause_and_restarts_nothing",),
        ('("disk", "storage_quota")', "TrainRunFailed", '["action"] != "restart"'),
    ),
    "computes NaN, and ends for it": (
        ("test_numbers_that_are_none_alert_and_restart_nothing",),
        ('failure("nan") == "numeric"', "TrainRunFailed", '["action"] != "restart"'),
    ),
    "loses its node": (
        (
            "test_a_job_whose_node_is_lost_is_left_to_slurm_which_requeues_it",
            "test_the_scheduler_names_the_end_and_the_log_the_cause",
        ),
        ('jobs.keys("lost", 2)', '"restart"] == []', '"NODE_FAIL", 0, 0, _ILLEGAL, "failed", "node_fail"'),
    ),
    "is preempted": (
        ("test_preempted_jobs_are_no_failures_whether_slurm_requeues_or_cancels_them",),
        ('"preempted", "cancelled, preempted"', '"preempted", "running", starts=2', '"displaced", "cancelled"'),
    ),
    "reaches its time limit": (("test_a_time_limit_is_no_failure",), ('"limited", "cancelled", starts=1',)),
    "is cancelled": (("test_a_job_that_is_cancelled_raises_no_alert",), ('"cancelled", "cancelled"',)),
}


def rows() -> dict[str, list[str]]:
    """The cells of each row, by its first."""
    text = (ROOT / "docs" / "plain-jobs.md").read_text(encoding="utf-8")
    lines = text.partition("## What follows")[2].partition("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {row[0]: row[1:] for row in cells[1:]}


def source(test: str) -> str:
    """The text of a test, with the parameters before it."""
    for file in (*(ROOT / "tests/slurm").glob("test_plain_job*.py"), ROOT / "tests/unit/jobs/test_slurm_watch.py"):
        text = file.read_text(encoding="utf-8")
        for found in _TEST.finditer(text):
            if found[1] == test:
                decorators = text[: found.start()].rpartition("\n\n\n")[2]
                return decorators + found[0]
    raise AssertionError(f"there is no test {test}")


def test_each_row_is_proven_and_each_proof_has_a_row() -> None:
    assert list(rows()) == list(PROVEN)


@pytest.mark.parametrize("job", PROVEN)
def test_the_tests_of_a_row_show_what_it_promises(job: str) -> None:
    tests, shown = PROVEN[job]
    text = "\n".join(map(source, tests))
    assert [needle for needle in shown if needle not in text] == []
    promised = {code or alert for cell in rows()[job] for code, alert in _CODE.findall(cell)}
    assert [name for name in promised - {"inactivity", "restart_stalls"} if name not in text] == []
