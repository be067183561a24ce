"""SLURM through its command line: which job is meant, what may be done to it, and what an answer is worth."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from trainwarden_remediator.drivers.driver import Absent, Job, Outcome, Progress, Standing, Subject, progress
from trainwarden_remediator.drivers.slurm import Programs, SlurmDriver, clean_environment, find_programs
from trainwarden_remediator.drivers.squeue import read_queue
from trainwarden_remediator.errors import ConfigError, Unreachable
from trainwarden_remediator.unknown import Unknown

SUBJECT = Subject("intent-1", "run-1", "17", 0, "why")
ENTRY: dict[str, Any] = {
    "job_id": 17,
    "job_state": "RUNNING",
    "restart_cnt": 0,
    "priority": 4294901759,
    "state_reason": "None",
    "user_id": os.getuid(),
    "requeue": True,
    "comment": "trainwarden:run-1",
    "array_job_id": 0,
    "array_task_id": None,
    "het_job_id": 0,
}


def entry(**changes: Any) -> dict[str, Any]:
    return {**ENTRY, **changes}


class Tools:
    """Stand-ins for squeue and scontrol that log how they are called; squeue prints `jobs`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._write("squeue", 'cat "$0.json"')
        self.answers()
        self.jobs(ENTRY)

    def jobs(self, *entries: dict[str, Any], **fields: Any) -> None:
        (self.folder / "squeue.json").write_text(json.dumps({"jobs": entries, "errors": [], **fields}))

    def answers(self, status: int = 0, text: str = "") -> None:
        self._write("scontrol", f'echo "$@" >> "$0.log"; env > "$0.env"; echo "{text}" >&2; exit {status}')

    @property
    def called(self) -> list[str]:
        log = self.folder / "scontrol.log"
        return log.read_text().splitlines() if log.exists() else []

    def _write(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def driver(self, **options: Any) -> SlurmDriver:
        values = {"users": {os.getuid()}, "timeout": 20.0, "interval": 15.0, **options}
        return SlurmDriver(find_programs(self.folder), **values)


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


def job(driver: SlurmDriver) -> Job:
    reading = driver.job("17")
    assert isinstance(reading, Job)
    return reading


@pytest.mark.parametrize(
    ("changes", "standing"),
    [
        ({}, Standing.RUNNING),
        ({"job_state": ["RUNNING"]}, Standing.RUNNING),
        ({"job_state": ["RUNNING", "COMPLETING"]}, Standing.ENDING),
        ({"job_state": "COMPLETING"}, Standing.ENDING),
        ({"job_state": ["PENDING", "REQUEUED"]}, Standing.ENDING),
        ({"job_state": "PENDING"}, Standing.WAITING),
        ({"job_state": "PENDING", "priority": 0}, Standing.HELD),
        ({"job_state": ["PENDING"], "priority": {"set": True, "infinite": False, "number": 0}}, Standing.HELD),
        ({"job_state": ["PENDING"], "priority": {"set": False, "infinite": False, "number": 0}}, Standing.WAITING),
        ({"job_state": "FAILED"}, Standing.FAILED),
        ({"job_state": "NODE_FAIL"}, Standing.FAILED),
        ({"job_state": "TIMEOUT"}, Standing.FAILED),
        ({"job_state": ["OUT_OF_MEMORY"]}, Standing.FAILED),
        ({"job_state": "COMPLETED"}, Standing.COMPLETED),
        ({"job_state": "CANCELLED"}, Standing.CANCELLED),
        ({"job_state": "SUSPENDED"}, Standing.OTHER),
        ({"job_state": "PREEMPTED"}, Standing.OTHER),
        ({"job_state": "DEADLINE"}, Standing.OTHER),
        ({"job_state": "SOMETHING_NEW"}, Standing.OTHER),
    ],
)
def test_states_of_every_version_are_read(changes: dict[str, Any], standing: Standing) -> None:
    assert read_queue({"jobs": [entry(**changes)]})["17"].standing is standing


@pytest.mark.parametrize(
    ("comment", "run_id"),
    [
        ("trainwarden:run-1", "run-1"),
        ("mine, trainwarden:run-1; yours", "run-1"),
        ("trainwarden:run-10", "run-10"),
        ("xtrainwarden:run-1", None),
        ("trainwarden:run-1 trainwarden:run-2", None),
        ("", None),
        (None, None),
        (7, None),
        ({"job": "trainwarden:run-1"}, "run-1"),
    ],
)
def test_the_mark_is_a_word_of_the_comment(comment: object, run_id: str | None) -> None:
    assert read_queue({"jobs": [entry(comment=comment)]})["17"].run_id == run_id


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"jobs": None},
        {"jobs": [{}]},
        {"jobs": ["x"]},
        {"jobs": [entry(restart_cnt="0")]},
        {"jobs": [entry(job_state=None)]},
        # What squeue 22.05 prints, with status 0, while the controller is down.
        {"jobs": [], "errors": [{"error": "Unspecified error", "source": "slurm_load_jobs"}]},
    ],
)
def test_an_answer_that_is_no_complete_list_of_jobs_is_no_answer(answer: object) -> None:
    with pytest.raises(Unreachable):
        read_queue(answer)


def test_the_job_is_found_among_others_although_squeue_ignores_filters(tools: Tools) -> None:
    tools.jobs(entry(job_id=16), entry(job_id=17, restart_cnt=3), entry(job_id=117))
    assert job(tools.driver()).generation == 3


def test_a_job_that_squeue_does_not_list_is_absent_and_no_answer_is_unknown(tools: Tools) -> None:
    tools.jobs()
    driver = tools.driver()
    assert driver.job("17") == Absent()
    tools.jobs(errors=["down"])
    assert driver.job("17") == Absent(), "one snapshot serves a whole tick"
    driver.refresh()
    assert isinstance(driver.job("17"), Unknown)


def test_a_name_or_comment_that_is_no_utf_8_hides_no_job(tools: Tools) -> None:
    """Squeue prints the bytes as some other user gave them."""
    tools.jobs(entry(job_id=16, name="caf@", comment="caf@"), ENTRY)
    file = tools.folder / "squeue.json"
    file.write_bytes(file.read_bytes().replace(b"@", b"\xe9"))
    assert job(tools.driver()).run_id == "run-1"


@pytest.mark.parametrize("body", ["exit 1", "echo '{'", "sleep 60", "exit 0"])
def test_a_squeue_that_fails_hangs_or_babbles_is_unknown(tools: Tools, body: str) -> None:
    tools._write("squeue", body)
    assert isinstance(tools.driver(timeout=0.5).job("17"), Unknown)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"user_id": os.getuid() + 1}, "belongs to uid"),
        ({"requeue": False}, "--no-requeue"),
        ({"requeue": 0}, "--no-requeue"),
        ({"het_job_id": 17}, "heterogeneous"),
        ({"array_job_id": 17}, "several array tasks"),
        ({"job_state": "PENDING", "priority": 0, "state_reason": "JobHeldAdmin"}, "held by an administrator"),
    ],
)
def test_a_job_that_may_not_be_touched_says_why(tools: Tools, changes: dict[str, Any], said: str) -> None:
    tools.jobs(entry(**changes))
    driver = tools.driver()
    assert said in (job(driver).refusal or "")
    assert driver.prepare(SUBJECT).outcome is Outcome.UNCLEAR
    assert tools.called == []


def test_another_users_job_may_be_touched_once_that_user_is_named(tools: Tools) -> None:
    tools.jobs(entry(user_id=4711))
    assert job(tools.driver(users={os.getuid(), 4711})).refusal is None


@pytest.mark.parametrize(
    ("changes", "called"),
    [
        ({}, "requeuehold Incomplete 17"),
        ({"job_state": "FAILED"}, "requeuehold 17"),
        ({"array_job_id": 12, "array_task_id": 3}, "requeuehold Incomplete 12_3"),
        ({"array_job_id": 17, "array_task_id": {"set": True, "number": 0}}, "requeuehold Incomplete 17_0"),
    ],
)
def test_an_attempt_is_ended_by_the_call_that_cannot_revive_another(
    tools: Tools, changes: dict[str, Any], called: str
) -> None:
    tools.jobs(entry(**changes))
    assert tools.driver().prepare(SUBJECT).outcome is Outcome.ACCEPTED
    assert tools.called == [called]


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED", "COMPLETING", "PENDING", "SUSPENDED", "PREEMPTED"])
def test_a_job_in_any_other_state_is_not_called_for(tools: Tools, state: str) -> None:
    """S4."""
    tools.jobs(entry(job_state=state))
    assert tools.driver().prepare(SUBJECT).outcome is Outcome.UNCLEAR
    assert tools.called == []


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Requested operation is presently disabled for job 17", Outcome.REFUSED),
        ("Access/permission denied for job 17", Outcome.REFUSED),
        ("Invalid job id specified for job 17", Outcome.REFUSED),
        ("Unexpected message received for job 17", Outcome.UNCLEAR),
        ("Socket timed out on send/recv operation", Outcome.UNCLEAR),
        ("Job is pending execution for job 17", Outcome.UNCLEAR),
        ("", Outcome.UNCLEAR),
    ],
)
def test_a_failing_call_may_have_taken_effect_unless_the_controller_itself_refused(
    tools: Tools, text: str, outcome: Outcome
) -> None:
    tools.answers(1, text)
    assert tools.driver().prepare(SUBJECT).outcome is outcome


def test_a_call_that_hangs_is_unclear(tools: Tools) -> None:
    driver = tools.driver(timeout=3)
    tools._write("scontrol", "sleep 60")
    answer = driver.prepare(SUBJECT)
    assert answer.outcome is Outcome.UNCLEAR
    assert answer.detail.endswith("requeuehold Incomplete 17: no answer within 3 s")


def test_release_names_one_job_and_what_was_called_is_written_down(tools: Tools) -> None:
    tools.jobs(entry(job_state="PENDING", priority=0, restart_cnt=1))
    driver = tools.driver()
    assert progress(driver.job("17"), SUBJECT, two_phase=True) is Progress.READY
    answer = driver.commit(SUBJECT)
    assert answer.detail == f"{tools.folder}/scontrol release 17: status 0"
    assert tools.called == ["release 17"]


def test_variables_that_change_what_the_tools_do_are_kept_from_them(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURM_CONF", "/etc/slurm.conf")
    monkeypatch.setenv("SLURM_JOB_ID", "3")
    monkeypatch.setenv("SQUEUE_STATES", "RUNNING")
    monkeypatch.setenv("SCONTROL_ALL", "1")
    monkeypatch.setenv("LC_MESSAGES", "de_DE")
    tools.driver().prepare(SUBJECT)
    seen = dict(line.split("=", 1) for line in (tools.folder / "scontrol.env").read_text().splitlines() if "=" in line)
    assert seen["SLURM_CONF"] == "/etc/slurm.conf"
    assert seen["LC_ALL"] == "C"
    assert not {"SLURM_JOB_ID", "SQUEUE_STATES", "SCONTROL_ALL", "LC_MESSAGES"} & set(seen)
    assert clean_environment({"SBATCH_COMMENT": "x"}) == {"LC_ALL": "C"}


def test_programs_are_absolute_and_what_is_missing_is_named(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tools.folder.parent)
    found = find_programs(Path(tools.folder.name))
    assert found == Programs(str(tools.folder / "squeue"), str(tools.folder / "scontrol"))
    (tools.folder / "scontrol").unlink()
    with pytest.raises(ConfigError, match="scontrol not found"):
        find_programs(tools.folder)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"restart_cnt": 1, "job_state": "PENDING", "priority": 0}, Progress.READY),
        ({"restart_cnt": 1, "job_state": "COMPLETING", "priority": 0}, Progress.BUSY),
        ({"restart_cnt": 1, "job_state": "PENDING"}, Progress.STARTED),
        ({"restart_cnt": 1}, Progress.STARTED),
        ({"restart_cnt": 2, "job_state": "PENDING", "priority": 0}, Progress.STUCK),
        ({"restart_cnt": 1, "job_state": "PENDING", "priority": 0, "state_reason": "JobHeldAdmin"}, Progress.STUCK),
        ({"restart_cnt": 1, "job_state": "CANCELLED"}, Progress.GONE),
        ({"restart_cnt": 0, "comment": "trainwarden:run-2"}, Progress.GONE),
        ({"restart_cnt": 0}, Progress.UNTOUCHED),
        ({"restart_cnt": 0, "job_state": "COMPLETING"}, Progress.BUSY),
        ({"restart_cnt": 0, "job_state": "CANCELLED"}, Progress.GONE),
    ],
)
def test_how_far_a_restart_is_follows_from_the_restart_count(
    tools: Tools, changes: dict[str, Any], expected: Progress
) -> None:
    tools.jobs(entry(**changes))
    assert progress(tools.driver().job("17"), SUBJECT, two_phase=True) is expected
