"""The outcomes that docs/plain-jobs.md promises for jobs without the library are those of tests on a real SLURM."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from tests.offenders import assert_none

ROOT = Path(__file__).resolve().parents[2]
_TEST = re.compile(r"^def (test_\w+)\(.*?(?=^(?:@|def |\Z))", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([a-z_]+)`|\b(Train[A-Z]\w+)")
# Settings of a rule, which the rows name beside what becomes of the job.
SETTINGS = {"inactivity", "restart_stalls"}
FILES = (
    *sorted((ROOT / "tests/slurm").glob("test_plain_job*.py")),
    ROOT / "tests/compat/slurm_log_monitor/test_job_restart.py",
    ROOT / "tests/unit/jobs/test_slurm_watch.py",
)
# By the first cell of its row: the tests that show what becomes of the job.
PROVEN = {
    "works": ["test_a_healthy_job_has_no_alert_and_no_decision"],
    "works, and its log is buffered: what it prints comes now and then": [
        "test_a_job_that_works_behind_a_buffered_log_is_not_restarted_and_pages",
        "test_silence_alone_alerts_and_restarts_nothing",
    ],
    "hangs": [
        "test_a_hang_leads_to_one_restart_where_the_rule_allows_it",
        "test_silence_alone_alerts_and_restarts_nothing",
    ],
    "ends as it should": ["test_a_job_that_ends_well_is_a_run_that_succeeded"],
    "runs out of the GPU's memory": ["test_an_excluded_failure_leads_to_none"],
    "is ended by NCCL's watchdog": [
        "test_a_transient_failure_leads_to_one_new_start_of_the_same_script_that_is_tracked"
    ],
    "fills the disk": ["test_a_failure_that_needs_a_person_alerts_with_its_cause_and_restarts_nothing"],
    "computes NaN, and ends for it": ["test_numbers_that_are_none_alert_and_restart_nothing"],
    "loses its node": [
        "test_a_job_whose_node_is_lost_is_left_to_slurm_which_requeues_it",
        "test_the_scheduler_names_the_end_and_the_log_the_cause",
    ],
    "is preempted": ["test_preempted_jobs_are_no_failures_whether_slurm_requeues_or_cancels_them"],
    "reaches its time limit": ["test_a_time_limit_is_no_failure"],
    "is cancelled": ["test_a_job_that_is_cancelled_raises_no_alert"],
}


def rows() -> dict[str, list[str]]:
    """The cells of each row, by its first."""
    text = (ROOT / "docs" / "plain-jobs.md").read_text(encoding="utf-8")
    lines = text.partition("## What follows")[2].partition("\n## ")[0].splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {row[0]: row[1:] for row in cells[1:]}


def sources() -> dict[str, str]:
    """The text of each test of plain jobs with the parameters before it; of one name in two files both."""
    found: dict[str, str] = {}
    for file in FILES:
        text = file.read_text(encoding="utf-8")
        for each in _TEST.finditer(text):
            found[each[1]] = found.get(each[1], "") + text[: each.start()].rpartition("\n\n\n")[2] + each[0]
    return found


def test_each_row_is_proven_and_each_proof_has_a_row() -> None:
    assert list(rows()) == list(PROVEN)


def test_the_tests_of_a_row_are_there_and_name_what_it_promises() -> None:
    there = sources()

    def unproven() -> Iterator[str]:
        for job, cells in rows().items():
            yield from (f"{job}: there is no test {name}" for name in PROVEN[job] if name not in there)
            text = "\n".join(there.get(name, "") for name in PROVEN[job])
            promised = {code or alert for cell in cells for code, alert in _CODE.findall(cell)}
            yield from (f"{job}: no test of it names {name}" for name in promised - SETTINGS if name not in text)

    assert_none(unproven())
