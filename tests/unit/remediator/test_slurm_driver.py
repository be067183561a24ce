"""SLURM through its client commands: which job a record is about, what may be done to it, what an answer is worth."""

from __future__ import annotations

import json
import os
import stat
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.offenders import assert_none
from trainwarden.clients.slurm.jobs import read_job
from trainwarden_remediator.drivers.driver import (
    Absent,
    CallOutcome,
    JobState,
    RestartProgress,
    RestartTarget,
    ScheduledJob,
    progress,
)
from trainwarden_remediator.drivers.slurm import SlurmDriver
from trainwarden_remediator.drivers.slurm_access import slurm_client
from trainwarden_remediator.drivers.slurm_jobs import job_state
from trainwarden_remediator.errors import ConfigError, Unknown

pytestmark = pytest.mark.process

TARGET = RestartTarget("intent-1", "run-1", "17", 0, "why")
NOTED = "Comment=trainwarden:run-1 trainwarden-hold:intent-1:0 trainwarden-why:why"
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


# As `scontrol requeuehold` leaves a job; a user's hold takes the description away.
REQUEUED_HELD: dict[str, Any] = {
    "restart_cnt": 1,
    "job_state": "PENDING",
    "priority": 0,
    "state_reason": "JobHeldUser",
    "state_description": "job requeued in held state",
}


def entry(**changes: Any) -> dict[str, Any]:
    return {**ENTRY, **changes}


class Tools:
    """Stand-ins for squeue and scontrol that log how they are called; squeue prints `jobs`, as before 24.05 all."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.write("squeue", 'echo "$@" >> "$0.log"; cat "$0.json"')
        self.answers()
        self.jobs(ENTRY)

    def filter(self, *entries: dict[str, Any]) -> None:
        """Let squeue be one of 24.05 or newer, which lists the job alone that it is asked for."""
        self.jobs(*entries)
        for each in entries:
            (self.folder / f"squeue--jobs={each['job_id']}.json").write_text(json.dumps({"jobs": [each], "errors": []}))
        unknown = 'echo "slurm_load_jobs error: Invalid job id specified" >&2; exit 1'
        self.write("squeue", f'echo "$@" >> "$0.log"; [ -e "$0$4.json" ] || {{ {unknown}; }}; cat "$0$4.json"')

    def jobs(self, *entries: dict[str, Any], **fields: Any) -> None:
        (self.folder / "squeue.json").write_text(json.dumps({"jobs": entries, "errors": [], **fields}))

    def answers(self, status: int = 0, text: str = "") -> None:
        self.write("scontrol", f'echo "$@" >> "$0.log"; env > "$0.env"; echo "{text}" >&2; exit {status}')

    @property
    def called(self) -> list[str]:
        return self.calls_of("scontrol")

    def calls_of(self, name: str) -> list[str]:
        log = self.folder / f"{name}.log"
        return log.read_text().splitlines() if log.exists() else []

    def write(self, name: str, body: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(path.stat().st_mode | stat.S_IXUSR)

    def driver(self, **options: Any) -> SlurmDriver:
        values = {"users": {os.getuid()}, **options}
        return SlurmDriver(slurm_client(self.folder, values.pop("timeout", 20.0)), **values)


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


def job(driver: SlurmDriver) -> ScheduledJob:
    reading = driver.job("17")
    assert isinstance(reading, ScheduledJob)
    return reading


STATES: list[tuple[dict[str, Any], JobState]] = [
    ({}, JobState.RUNNING),
    ({"job_state": ["RUNNING"]}, JobState.RUNNING),
    ({"job_state": ["RUNNING", "COMPLETING"]}, JobState.ENDING),
    ({"job_state": "RUNNING+COMPLETING"}, JobState.ENDING),
    ({"job_state": "FAILED+COMPLETING"}, JobState.ENDING),
    ({"job_state": "PENDING+REQUEUED"}, JobState.ENDING),
    ({"job_state": "COMPLETING"}, JobState.ENDING),
    ({"job_state": ["PENDING", "REQUEUED"]}, JobState.ENDING),
    ({"job_state": "PENDING"}, JobState.WAITING),
    ({"job_state": "PENDING", "priority": 0}, JobState.HELD),
    ({"job_state": ["PENDING"], "priority": {"set": True, "infinite": False, "number": 0}}, JobState.HELD),
    ({"job_state": ["PENDING"], "priority": {"set": False, "infinite": False, "number": 0}}, JobState.WAITING),
    ({"job_state": "FAILED"}, JobState.FAILED),
    ({"job_state": "NODE_FAIL"}, JobState.FAILED),
    ({"job_state": "TIMEOUT"}, JobState.FAILED),
    ({"job_state": ["OUT_OF_MEMORY"]}, JobState.FAILED),
    ({"job_state": "COMPLETED"}, JobState.COMPLETED),
    ({"job_state": "CANCELLED"}, JobState.CANCELLED),
    ({"job_state": "SUSPENDED"}, JobState.OTHER),
    ({"job_state": "PREEMPTED"}, JobState.WITHDRAWN),
    ({"job_state": "DEADLINE"}, JobState.WITHDRAWN),
    ({"job_state": ["REVOKED"]}, JobState.WITHDRAWN),
    ({"job_state": ["PREEMPTED", "COMPLETING"]}, JobState.ENDING),
    ({"job_state": "SOMETHING_NEW"}, JobState.OTHER),
]


def test_states_of_every_version_are_read() -> None:
    found = [(changes, state, job_state(read_job(entry(**changes)))) for changes, state in STATES]
    assert_none(f"{changes}: {seen}, not {state}" for changes, state, seen in found if seen is not state)


@pytest.mark.parametrize("comment", ["xtrainwarden:run-1", "trainwarden:run-1 trainwarden:run-2", "", None, 7])
def test_a_job_without_one_clear_mark_is_of_no_run(tools: Tools, comment: object) -> None:
    tools.jobs(entry(comment=comment))
    assert job(tools.driver()).run_id is None
    assert progress(tools.driver().job("17"), TARGET) is RestartProgress.GONE


@pytest.mark.parametrize(
    "answer",
    [
        None,
        [],
        {},
        {"jobs": None},
        # What squeue 22.05 prints, with status 0, while the controller is down.
        {"jobs": [], "errors": [{"error": "Unspecified error", "source": "slurm_load_jobs"}]},
        {"jobs": [ENTRY], "errors": [{"error": "Unspecified error", "source": "slurm_load_jobs"}]},
    ],
)
def test_an_answer_that_is_no_complete_list_of_jobs_is_no_answer(tools: Tools, answer: object) -> None:
    (tools.folder / "squeue.json").write_text(json.dumps(answer))
    assert isinstance(tools.driver().job("17"), Unknown)


@pytest.mark.parametrize(
    "odd",
    [
        {"restart_cnt": "0"},
        {"restart_cnt": {"set": False, "infinite": False, "number": 0}},
        {"restart_cnt": 4294967294},
        {"job_state": None},
        {"job_state": ["RUNNING", {"flag": "COMPLETING"}]},
        {"user_id": -1},
    ],
)
def test_an_odd_record_makes_its_own_job_unknown_and_no_other(tools: Tools, odd: dict[str, Any]) -> None:
    tools.jobs(entry(job_id=16, **odd), ENTRY, entry(job_id=18))
    driver = tools.driver()
    unknown = driver.job("16")
    assert isinstance(unknown, Unknown)
    assert next(iter(odd)) in unknown.reason
    assert job(driver).state is JobState.RUNNING
    assert isinstance(driver.job("18"), ScheduledJob)
    assert driver.job("19") == Absent(), "the record names its job, and that is another one"
    assert driver.prepare(replace(TARGET, job_id="16")).outcome is CallOutcome.UNCLEAR
    assert tools.called == []


@pytest.mark.parametrize("odd", [{}, "x", None, {"job_id": "17"}, {"job_id": 0}, {"job_id": True}])
def test_a_record_that_names_no_job_may_be_of_any_that_is_not_listed(tools: Tools, odd: Any) -> None:
    tools.jobs(odd, ENTRY)
    driver = tools.driver()
    assert job(driver).state is JobState.RUNNING
    assert isinstance(driver.job("18"), Unknown)


def test_a_job_that_is_listed_twice_is_unknown(tools: Tools) -> None:
    tools.jobs(ENTRY, entry(restart_cnt=1), entry(job_id=18))
    driver = tools.driver()
    assert isinstance(driver.job("17"), Unknown)
    assert isinstance(driver.job("18"), ScheduledJob)


def test_one_job_is_read_without_the_queue_where_squeue_can(tools: Tools) -> None:
    tools.filter(ENTRY, entry(job_id=18))
    driver = tools.driver()
    assert isinstance(driver.job("17"), ScheduledJob)
    assert isinstance(driver.job("17"), ScheduledJob)
    assert isinstance(driver.job("18"), ScheduledJob)
    assert tools.calls_of("squeue") == ["--json --all --states=all --jobs=17", "--json --all --states=all --jobs=18"]


def test_that_a_job_is_not_there_is_shown_by_the_list_of_all_alone(tools: Tools) -> None:
    tools.filter(ENTRY)
    driver = tools.driver()
    assert driver.job("16") == Absent()
    assert tools.calls_of("squeue") == ["--json --all --states=all --jobs=16", "--json --all --states=all"]
    driver = driver.snapshot()
    (tools.folder / "squeue.json").write_text("{")
    assert isinstance(driver.job("16"), Unknown)


def test_a_squeue_that_lists_all_anyway_is_called_once_for_all_jobs(tools: Tools) -> None:
    tools.jobs(*(entry(job_id=number) for number in range(10, 30)))
    driver = tools.driver()
    assert all(isinstance(driver.job(str(number)), ScheduledJob) for number in range(10, 30))
    assert tools.calls_of("squeue") == ["--json --all --states=all --jobs=10"]
    driver = driver.snapshot()
    assert driver.job("9") == Absent()
    assert tools.calls_of("squeue")[1:] == ["--json --all --states=all"]


def test_many_jobs_are_read_at_once(tools: Tools) -> None:
    tools.filter(*(entry(job_id=number) for number in range(10, 30)))
    driver = tools.driver()
    assert all(isinstance(driver.job(str(number)), ScheduledJob) for number in range(10, 30))
    assert tools.calls_of("squeue")[8:] == ["--json --all --states=all"]


def test_a_job_that_is_not_listed_is_asked_for_by_its_id_however_many_were_read_before(tools: Tools) -> None:
    tools.filter(*(entry(job_id=number) for number in range(10, 30)))
    (tools.folder / "squeue--jobs=99.json").write_text(json.dumps({"jobs": [entry(job_id=99)], "errors": []}))
    driver = tools.driver()
    for number in (*range(10, 30), 99):
        assert isinstance(driver.job(str(number)), ScheduledJob)
    assert driver.job("98") == Absent()
    (tools.folder / "squeue--jobs=97.json").write_text(json.dumps({"jobs": [{}], "errors": []}))
    assert isinstance(driver.job("97"), Unknown)
    assert tools.calls_of("squeue")[9:] == [f"--json --all --states=all --jobs={number}" for number in (99, 98, 97)]


@pytest.mark.parametrize(
    "body",
    ['echo "slurm_load_jobs error: Unable to contact slurm controller (connect failure)" >&2; exit 1', "echo '{'"],
)
def test_a_job_that_could_not_be_read_by_its_id_is_not_absent(tools: Tools, body: str) -> None:
    """The list of all may have left it out."""
    tools.filter(entry(job_id=18))
    listed = (tools.folder / "squeue").read_text().removeprefix("#!/bin/sh\n")
    tools.write("squeue", f'[ "$4" != --jobs=17 ] || {{ {body}; exit; }}; {listed}')
    driver = tools.driver()
    assert isinstance(driver.job("17"), Unknown)
    assert isinstance(driver.job("18"), ScheduledJob)
    tools.filter(entry(job_id=18))
    driver = driver.snapshot()
    assert driver.job("17") == Absent()


def test_the_tasks_of_an_array_come_with_its_first_and_are_distinguished(tools: Tools) -> None:
    tools.filter()
    tasks = [
        entry(job_id=number, array_job_id=17, array_task_id=number - 17, restart_cnt=number) for number in (17, 18)
    ]
    (tools.folder / "squeue--jobs=17.json").write_text(json.dumps({"jobs": tasks, "errors": []}))
    driver = tools.driver()
    assert job(driver).generation == 17
    assert isinstance(driver.job("18"), ScheduledJob)
    driver = driver.snapshot()
    driver.job("17")
    assert tools.calls_of("squeue") == ["--json --all --states=all --jobs=17"] * 2


@pytest.mark.parametrize("job_id", ["", "x", "-1", "17 18", "17,18", "--help", "017", "12_3"])
def test_what_is_no_job_id_reaches_no_command(tools: Tools, job_id: str) -> None:
    driver = tools.driver()
    assert driver.job(job_id) == Absent()
    assert driver.commit(replace(TARGET, job_id=job_id)).outcome is CallOutcome.UNCLEAR
    assert set(tools.calls_of("squeue")) == {"--json --all --states=all"}
    assert tools.called == []


def test_the_job_is_found_among_others_although_squeue_ignores_filters(tools: Tools) -> None:
    tools.jobs(entry(job_id=16), entry(job_id=17, restart_cnt=3), entry(job_id=117))
    assert job(tools.driver()).generation == 3


def test_a_job_that_squeue_does_not_list_is_absent_and_no_answer_is_unknown(tools: Tools) -> None:
    tools.jobs()
    driver = tools.driver()
    assert driver.job("17") == Absent()
    tools.jobs(errors=["down"])
    assert driver.job("17") == Absent(), "one snapshot serves a whole tick"
    driver = driver.snapshot()
    assert isinstance(driver.job("17"), Unknown)


def test_a_name_or_comment_that_is_no_utf_8_hides_no_job(tools: Tools) -> None:
    """Squeue prints the bytes as some other user gave them."""
    tools.jobs(entry(job_id=16, name="caf@", comment="caf@"), ENTRY)
    file = tools.folder / "squeue.json"
    file.write_bytes(file.read_bytes().replace(b"@", b"\xe9"))
    assert job(tools.driver()).run_id == "run-1"


@pytest.mark.parametrize("body", ["exit 1", "echo '{'", "sleep 60", "exit 0"])
def test_a_squeue_that_fails_hangs_or_babbles_is_unknown(tools: Tools, body: str) -> None:
    tools.write("squeue", body)
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
        ({"deadline": int(time.time()) + 500, "time_limit": 10}, "cannot start again before its --deadline"),
        (
            {"deadline": {"set": True, "number": int(time.time()) + 500}, "time_limit": {"set": True, "number": 10}},
            "SLURM would end it as DEADLINE; submit it again with a later one",
        ),
        ({"job_state": "FAILED", "deadline": 1_700_000_000}, "--deadline, 2023-11-14T22:13:20Z"),
    ],
)
def test_a_job_that_may_not_be_touched_gives_the_reason(tools: Tools, changes: dict[str, Any], said: str) -> None:
    tools.jobs(entry(**changes))
    driver = tools.driver()
    assert said in (job(driver).refusal or "")
    assert driver.prepare(TARGET).outcome is CallOutcome.UNCLEAR
    assert tools.called == []


@pytest.mark.parametrize(
    ("left", "changes"),
    [
        (900, {"time_limit": 10}),
        (500, {"time_limit": 10, "time_minimum": 1}),
        (-900, {"time_limit": 10, "job_state": "PENDING"}),  # it waits: SLURM ends it by itself
    ],
)
def test_a_job_with_room_before_its_deadline_may_be_restarted(tools: Tools, left: int, changes: dict[str, Any]) -> None:
    tools.jobs(entry(deadline=int(time.time()) + left, **changes))
    assert job(tools.driver()).refusal is None


def test_a_job_without_a_deadline_may_be_restarted(tools: Tools) -> None:
    tools.jobs(entry(deadline=0, time_limit=10))
    assert job(tools.driver()).refusal is None


@pytest.mark.parametrize(
    ("ended", "state", "shown"), [(940, JobState.WITHDRAWN, "DEADLINE+TIMEOUT"), (939, JobState.FAILED, "TIMEOUT")]
)
def test_a_time_limit_that_slurm_has_cut_down_to_the_deadline_is_the_deadline(
    tools: Tools, ended: int, state: JobState, shown: str
) -> None:
    tools.jobs(entry(job_state="TIMEOUT", deadline=1000, end_time=ended))
    assert (job(tools.driver()).state, job(tools.driver()).scheduler_state) == (state, shown)


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
    assert tools.driver().prepare(TARGET).outcome is CallOutcome.ACCEPTED
    noted = f"update JobId={called.rsplit(maxsplit=1)[-1]} {NOTED}"
    if "job_state" in changes:  # SLURM changes no job that has ended
        assert tools.called == [called, noted]
    assert sorted(tools.called) == sorted([called, noted])


def test_a_comment_keeps_its_text_and_says_whose_hold_the_next_one_is(tools: Tools) -> None:
    tools.jobs(
        entry(restart_cnt=3, comment="mine, trainwarden:run-1 trainwarden-hold:old:2 trainwarden-why:old (keep)")
    )
    tools.driver().prepare(replace(TARGET, generation=3, reason="Policy x: a hang,\ntrainwarden:run-2; 40 steps"))
    ours = "trainwarden-hold:intent-1:3 trainwarden-why:Policy_x_a_hang_trainwarden_run-2_40_steps"
    assert f"update JobId=17 Comment=mine, trainwarden:run-1 (keep) {ours}" in tools.called


def test_a_comment_without_room_for_the_reason_says_whose_hold_it_is(tools: Tools) -> None:
    text = "trainwarden:run-1 " + "x" * 960
    tools.jobs(entry(comment=text))
    tools.driver().prepare(replace(TARGET, reason="y" * 500))
    assert f"update JobId=17 Comment={text} trainwarden-hold:intent-1:0" in tools.called


@pytest.mark.parametrize("comment", ["trainwarden:run-1\nsecond line", "trainwarden:run-1 " + "x" * 990])
def test_a_comment_that_cannot_be_kept_as_it_is_is_left_alone(tools: Tools, comment: str) -> None:
    tools.jobs(entry(comment=comment))
    assert tools.driver().prepare(TARGET).outcome is CallOutcome.ACCEPTED
    assert tools.called == ["requeuehold Incomplete 17"]


@pytest.mark.parametrize("problem", ["Job has already finished for job 17", "Socket timed out on send/recv operation"])
def test_a_comment_that_cannot_be_set_keeps_no_attempt_from_being_ended(
    tools: Tools, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    tools.write("scontrol", f'echo "$@" >> "$0.log"; case "$1" in update) echo "{problem}" >&2; exit 1;; esac')
    assert tools.driver().prepare(TARGET).outcome is CallOutcome.ACCEPTED
    assert "requeuehold Incomplete 17" in tools.called
    assert problem in caplog.text


def test_the_comment_is_set_beside_the_call_that_ends_the_attempt(tools: Tools) -> None:
    """What the call rests on would be older by an answer of SLURM, else: each of the two waits for the other here."""
    waits = 'touch "$0.$1"; for other in update requeuehold; do until test -e "$0.$other"; do sleep 0.02; done; done'
    tools.write("scontrol", f'echo "$@" >> "$0.log"; {waits}')
    assert tools.driver().prepare(TARGET).outcome is CallOutcome.ACCEPTED
    assert len(tools.called) == 2


@pytest.mark.parametrize(("restarts", "incident"), [(1, "intent-1"), (0, None), (2, None)])
def test_a_hold_is_of_the_incident_that_has_ended_the_start_before(
    tools: Tools, restarts: int, incident: str | None
) -> None:
    noted = "trainwarden:run-1 trainwarden-hold:intent-1:0"
    tools.jobs(entry(**REQUEUED_HELD | {"restart_cnt": restarts}, comment=noted))
    assert job(tools.driver()).hold_of == incident


ELSEWHERE = replace(TARGET, exclude_nodes=("n7",), readmit_nodes=("n1",))


def test_nodes_are_excluded_before_the_release_beside_those_of_the_user(tools: Tools) -> None:
    before, after = (entry(**REQUEUED_HELD, excluded_nodes=nodes) for nodes in ("n[1-3]", "n[2-3,7]"))
    tools.jobs(before)
    (tools.folder / "after.json").write_text(json.dumps({"jobs": [after], "errors": []}))
    tools.write("scontrol", 'echo "$@" >> "$0.log"; cp "${0%/*}/after.json" "${0%/*}/squeue.json"')
    assert tools.driver().commit(ELSEWHERE).outcome is CallOutcome.ACCEPTED
    assert tools.called == ["update JobId=17 ExcNodeList=n2,n3,n7", "release 17"]


def test_a_job_that_does_not_show_the_nodes_that_it_is_to_avoid_is_not_released(tools: Tools) -> None:
    tools.jobs(entry(**REQUEUED_HELD, excluded_nodes="n1"))
    assert tools.driver().commit(ELSEWHERE).outcome is CallOutcome.UNCLEAR
    assert tools.called == ["update JobId=17 ExcNodeList=n7"]


@pytest.mark.parametrize(
    ("own", "node", "said"),
    [("n[1", "n7", "no list of nodes"), ("", "n7 Reason=x", "no list of nodes"), ("", "n9", "Invalid node name")],
)
def test_a_node_that_cannot_be_excluded_is_refused_and_the_job_not_released(
    tools: Tools, own: str, node: str, said: str
) -> None:
    tools.jobs(entry(**REQUEUED_HELD, excluded_nodes=own))
    tools.answers(1, "Invalid node name specified for job 17")
    answer = tools.driver().commit(replace(TARGET, exclude_nodes=(node,)))
    assert answer.outcome is CallOutcome.REFUSED
    assert said in answer.detail
    assert not any(call.startswith("release") for call in tools.called)


def test_all_marked_jobs_are_listed_unless_the_list_may_lack_one(tools: Tools) -> None:
    tools.jobs(ENTRY, entry(job_id=18, comment=""), entry(job_id=19, comment="trainwarden:run-2"))
    found = tools.driver().jobs()
    assert not isinstance(found, Unknown)
    assert [each.job_id for each in found] == ["17", "19"]
    tools.jobs(ENTRY, entry(job_id=None))
    assert isinstance(tools.driver().jobs(), Unknown)


@pytest.mark.parametrize("state", ["CANCELLED", "COMPLETED", "COMPLETING", "PENDING", "SUSPENDED", "PREEMPTED"])
def test_a_job_in_any_other_state_is_not_called_for(tools: Tools, state: str) -> None:
    """S4."""
    tools.jobs(entry(job_state=state))
    assert tools.driver().prepare(TARGET).outcome is CallOutcome.UNCLEAR
    assert tools.called == []


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("Requested operation is presently disabled for job 17", CallOutcome.REFUSED),
        ("Access/permission denied for job 17", CallOutcome.REFUSED),
        ("Invalid job id specified for job 17", CallOutcome.REFUSED),
        ("Unexpected message received for job 17", CallOutcome.UNCLEAR),
        ("Socket timed out on send/recv operation", CallOutcome.UNCLEAR),
        ("Job is pending execution for job 17", CallOutcome.UNCLEAR),
        ("", CallOutcome.UNCLEAR),
    ],
)
def test_a_failing_call_may_have_taken_effect_unless_the_controller_itself_refused(
    tools: Tools, text: str, outcome: CallOutcome
) -> None:
    tools.answers(1, text)
    assert tools.driver().prepare(TARGET).outcome is outcome


def test_a_call_that_hangs_is_unclear(tools: Tools) -> None:
    driver = tools.driver(timeout=0.2)
    tools.write("scontrol", "sleep 60")
    answer = driver.prepare(TARGET)
    assert answer.outcome is CallOutcome.UNCLEAR
    assert answer.detail.endswith("no answer within 0.2 s")


def test_release_names_one_job_and_what_was_called_is_written_down(tools: Tools) -> None:
    tools.jobs(entry(**REQUEUED_HELD))
    driver = tools.driver()
    assert progress(driver.job("17"), TARGET) is RestartProgress.READY
    answer = driver.commit(TARGET)
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
    tools.driver().prepare(TARGET)
    seen = dict(line.split("=", 1) for line in (tools.folder / "scontrol.env").read_text().splitlines() if "=" in line)
    assert seen["SLURM_CONF"] == "/etc/slurm.conf"
    assert seen["LC_ALL"] == "C"
    assert not {"SLURM_JOB_ID", "SQUEUE_STATES", "SCONTROL_ALL", "LC_MESSAGES"} & set(seen)


def test_commands_are_absolute_and_what_is_missing_is_named(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tools.folder.parent)
    client = slurm_client(Path(tools.folder.name), 20.0)
    assert client.control("release", "17").detail == f"{tools.folder}/scontrol release 17: status 0"
    (tools.folder / "scontrol").unlink()
    with pytest.raises(ConfigError, match="scontrol not found"):
        slurm_client(tools.folder, 20.0)


PROGRESS: list[tuple[dict[str, Any], RestartProgress]] = [
    (REQUEUED_HELD, RestartProgress.READY),
    ({**REQUEUED_HELD, "state_description": ""}, RestartProgress.STUCK),
    ({"restart_cnt": 1, "job_state": "COMPLETING", "priority": 0}, RestartProgress.BUSY),
    ({"restart_cnt": 1, "job_state": "PENDING"}, RestartProgress.STARTED),
    ({"restart_cnt": 1}, RestartProgress.STARTED),
    ({"restart_cnt": 2, "job_state": "PENDING", "priority": 0}, RestartProgress.STUCK),
    (
        {"restart_cnt": 1, "job_state": "PENDING", "priority": 0, "state_reason": "JobHeldAdmin"},
        RestartProgress.STUCK,
    ),
    ({"restart_cnt": 1, "job_state": "CANCELLED"}, RestartProgress.GONE),
    ({"restart_cnt": 0, "comment": "trainwarden:run-2"}, RestartProgress.GONE),
    ({"restart_cnt": 0}, RestartProgress.UNTOUCHED),
    ({"restart_cnt": 0, "job_state": "COMPLETING"}, RestartProgress.BUSY),
    ({"restart_cnt": 0, "job_state": "CANCELLED"}, RestartProgress.GONE),
]


def test_how_far_a_restart_is_follows_from_the_restart_count(tools: Tools) -> None:
    def seen(changes: dict[str, Any]) -> RestartProgress | Unknown:
        tools.jobs(entry(**changes))
        return progress(tools.driver().job("17"), TARGET)

    found = [(changes, expected, seen(changes)) for changes, expected in PROGRESS]
    assert_none(f"{changes}: {how}, not {expected}" for changes, expected, how in found if how is not expected)


@pytest.mark.parametrize(
    ("printed", "status", "ended"),
    [
        ("17|NODE_FAIL", 0, "NODE_FAIL"),
        ("17|CANCELLED by 1000", 0, "CANCELLED"),
        ("18|FAILED", 0, ""),
        ("", 0, ""),
        ("Slurm accounting storage is disabled", 1, ""),
    ],
)
def test_a_job_past_minjobage_is_looked_up_in_the_accounting_once_for_each_reading(
    tools: Tools, printed: str, status: int, ended: str
) -> None:
    tools.jobs(entry(job_id=18))
    tools.write("sacct", f'echo "$@" >> "$0.log"; echo "{printed}"; exit {status}')
    driver = tools.driver()
    assert [driver.job("17") for _ in range(3)] == [Absent(ended)] * 3
    assert len(tools.calls_of("sacct")) == 1
    assert "--jobs=17" in tools.calls_of("sacct")[0]


@pytest.mark.parametrize(
    ("printed", "status", "why"),
    [
        ("17|RUNNING", 0, "slurmctld no longer lists job 17, and the accounting has it as RUNNING"),
        ("sacct: error: Problem talking to the database: Connection refused", 1, "Connection refused"),
    ],
)
def test_how_a_job_ended_is_unknown_while_the_accounting_has_not_got_it(
    tools: Tools, printed: str, status: int, why: str
) -> None:
    """slurmdbd was down: a job that failed would be taken for one that needs nothing."""
    tools.jobs(entry(job_id=18))
    tools.write("sacct", f'echo "{printed}"; exit {status}')
    reading = tools.driver().job("17")
    assert isinstance(reading, Unknown)
    assert why in reading.reason
