"""What keeps the remediator from touching an attempt at all."""

from __future__ import annotations

import errno
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.offenders import assert_none
from trainwarden_remediator.decide.attempt import label_problem, scheduler_objection, stale
from trainwarden_remediator.decide.verdict import Barred, Lost, Refuse, StartedAgain, Wait
from trainwarden_remediator.drivers.driver import Absent, JobState, Reading, ScheduledJob
from trainwarden_remediator.errors import Unknown
from trainwarden_remediator.examine.objections import Objections
from trainwarden_remediator.incidents.incident import MODES, Alert
from trainwarden_remediator.observe.evidence import ReportedRun
from trainwarden_remediator.observe.records import Records
from trainwarden_remediator.observe.world import SystemClock, World

LABELS = {
    "alertname": "TrainRunFailed",
    "run_id": "run-1",
    "attempt": "3",
    "job_id": "17",
    "scheduler": "slurm",
    "failure_mode": "crash",
    "remediate": "true",
}
START = 1_700_000_000.0
RUN = ReportedRun("run-1", 3, "slurm:17:2", state="failed", started=START)
JOB = ScheduledJob("17", "run-1", 2, JobState.FAILED, "FAILED")


def alert(**labels: str | None) -> Alert:
    merged = {**LABELS, **labels}
    return Alert({name: value for name, value in merged.items() if value is not None}, START + 100)


@pytest.mark.parametrize(
    ("failure", "state", "refused"),
    [
        ("terminated", "FAILED", None),
        ("terminated", "NODE_FAIL", None),
        ("terminated", "TIMEOUT", "TIMEOUT, its time limit is used up"),
        ("terminated", "DEADLINE+TIMEOUT", "DEADLINE, its --deadline is reached, after which it cannot start again"),
        ("terminated", "COMPLETING+PREEMPTED", "PREEMPTED, other jobs took its place, and it is not requeued"),
        ("terminated", "REVOKED", "REVOKED, it runs in another cluster of its federation"),
        ("time_limit", "TIMEOUT", "TIMEOUT, its time limit is used up"),
        # Ranks that hung until the limit, and a failure of their own just before it.
        ("hang", "TIMEOUT", None),
        (None, "TIMEOUT", None),
    ],
)
def test_an_end_from_outside_is_a_failure_unless_the_scheduler_made_it(
    failure: str | None, state: str, refused: str | None
) -> None:
    job = replace(JOB, scheduler_state=state)
    verdict = scheduler_objection("run-1", 2, job, failure)
    assert verdict == (refused and Barred(f"the scheduler ended job 17 itself: {refused}"))


def test_a_cancelled_job_is_left_alone_whatever_the_record_states() -> None:
    for state, kind in ((JobState.CANCELLED, Refuse), (JobState.ENDING, Wait)):
        job = replace(JOB, state=state, scheduler_state="CANCELLED")
        assert isinstance(scheduler_objection("run-1", 2, job, "terminated"), kind)


@given(
    st.fixed_dictionaries(
        {}, optional={name: st.text(max_size=5) for name in ("run_id", "attempt", "failure_mode", "job_id")}
    )
)
def test_any_labels_at_all_are_either_an_address_or_refused(labels: dict[str, str]) -> None:
    about = Alert(labels, None)
    if label_problem(about) is None:
        assert about.run_id
        assert about.attempt is not None
        assert about.mode in MODES


ALERTS: list[tuple[dict[str, str | None], ReportedRun | Unknown | None, type | None]] = [
    ({}, RUN, None),
    ({"job_id": None, "scheduler": None}, RUN, None),
    ({}, Unknown("down"), Wait),
    ({}, None, Wait),
    ({"attempt": "2"}, RUN, Refuse),
    ({"attempt": "4"}, RUN, Wait),
    ({"job_id": "18"}, RUN, Refuse),
    ({"scheduler": "local"}, RUN, Refuse),
    ({}, replace(RUN, attempt_key="nonsense"), Refuse),
    ({}, replace(RUN, started=START + 1000), Refuse),
    ({}, replace(RUN, started=None), None),
    ({}, replace(RUN, state="succeeded"), Refuse),
    ({}, replace(RUN, state="cancelled"), Refuse),
    # One of both is old: of two Prometheus, one is asked that may be behind the one whose alert this is.
    ({}, replace(RUN, state="running"), Wait),
    ({}, replace(RUN, state=None), Wait),
    ({"failure_mode": "stall"}, RUN, Wait),
    ({"failure_mode": "stall"}, replace(RUN, state="running"), None),
    ({"failure_mode": "timeout"}, RUN, Wait),
    ({"failure_mode": "timeout"}, replace(RUN, state="running"), None),
    # Two clusters may use one run id, and one of them may have no series at this moment.
    ({"cluster": "b"}, replace(RUN, cluster="a"), Refuse),
    ({"cluster": "a"}, replace(RUN, cluster="a"), None),
    ({"cluster": "b"}, RUN, None),
    ({}, replace(RUN, cluster="a"), None),
]


def test_an_alert_counts_only_for_the_attempt_that_is_the_present_one() -> None:
    """S3, and unknown is not failed."""
    found = [(labels, run, expected, stale(alert(**labels), run)) for labels, run, expected in ALERTS]
    assert_none(
        f"{labels} of {run}: {verdict}"
        for labels, run, expected, verdict in found
        if not isinstance(verdict, expected or type(None))
    )


READINGS: list[tuple[Reading, type | None]] = [
    (JOB, None),
    (replace(JOB, state=JobState.RUNNING), None),
    (Unknown("down"), Wait),
    (Absent(), Refuse),
    (replace(JOB, run_id=None), Refuse),
    (replace(JOB, run_id="run-2"), Refuse),
    (replace(JOB, generation=3), Refuse),
    (replace(JOB, generation=1), Wait),
    (replace(JOB, state=JobState.CANCELLED), Refuse),
    (replace(JOB, state=JobState.COMPLETED), Refuse),
    (replace(JOB, state=JobState.ENDING), Wait),
    (replace(JOB, state=JobState.WAITING), Refuse),
    (replace(JOB, state=JobState.HELD), Refuse),
    (replace(JOB, state=JobState.WITHDRAWN), Refuse),
    (Absent("CANCELLED"), Refuse),
    (Absent("PREEMPTED"), Refuse),
    (Absent("NODE_FAIL"), Lost),
    (replace(JOB, state=JobState.OTHER), Wait),
    (replace(JOB, refusal="not yours"), Refuse),
]


def test_only_this_start_of_a_job_that_is_ours_may_be_touched() -> None:
    """S4, and the job's own mark against forged records."""
    found = [(reading, expected, scheduler_objection("run-1", 2, reading)) for reading, expected in READINGS]
    assert_none(
        f"{reading}: {verdict}"
        for reading, expected, verdict in found
        if not isinstance(verdict, expected or type(None))
    )


def test_a_job_that_was_requeued_and_is_held_starts_when_it_is_released() -> None:
    verdict = scheduler_objection("run-1", 2, replace(JOB, generation=3, state=JobState.HELD))
    assert isinstance(verdict, StartedAgain)
    assert verdict.reason.endswith(
        "requeued already, and not by the remediator, and is held: it starts when it is released"
    )


def test_a_record_whose_file_system_does_not_answer_stops_no_restart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stale(path: Path) -> bool:
        raise OSError(errno.ESTALE, "Stale file handle", str(path))

    monkeypatch.setattr(Path, "is_dir", stale)
    problem = Records(tmp_path).announce_restart("run-1", "slurm:17:2", "stalled", "i")
    assert problem == "the restart could not be announced in the record: Stale file handle"


def test_a_run_of_a_scheduler_without_a_driver_is_left_alone_and_the_scheduler_is_named() -> None:
    run = replace(RUN, attempt_key="modal:ta-01JX:4711")

    class Runs:
        def runs(self, run_ids: Collection[str]) -> Mapping[str, ReportedRun]:
            return dict.fromkeys(run_ids, run)

    # A driver that is looked at in any way makes this fail.
    drivers = {"slurm": cast("Any", None)}
    world = World(SystemClock(), cast("Any", None), cast("Any", Runs()), drivers, Records(None))
    failed = alert(scheduler="modal", job_id="ta-01JX")
    assert Objections(world).against(failed) == (run, Barred("no driver for scheduler 'modal'"))


@pytest.mark.parametrize(
    ("failure", "expected"), [("terminated", Barred), ("time_limit", Barred), ("peer_reset", Lost), (None, Lost)]
)
def test_a_time_limit_is_no_failure_either_once_the_job_is_forgotten(failure: str | None, expected: type) -> None:
    assert type(scheduler_objection("run-1", 2, Absent("TIMEOUT"), failure)) is expected


@pytest.mark.parametrize(("failure", "expected"), [("terminated", Barred), ("peer_reset", Lost), (None, Barred)])
def test_without_accounting_the_record_of_a_job_that_is_forgotten_takes_a_page(
    failure: str | None, expected: type
) -> None:
    assert type(scheduler_objection("run-1", 2, Absent(), failure)) is expected
