"""A run whose host's clock is ahead is no longer alive than one whose clock is right."""

from __future__ import annotations

from tests.unit.exporter.runs_tree import HOST, NOW, RunsTree
from trainwarden.record.clock import to_iso
from trainwarden.record.metadata import Metadata
from trainwarden.record.thresholds import Thresholds
from trainwarden_exporter.collectors.runs.future_times import FutureTimes
from trainwarden_exporter.collectors.runs.record import MAX_AHEAD_SECONDS, RunRecord

AHEAD = 7 * 3600.0
ATTEMPT = {"attempt_key": "local:77-1:0"}


def beat(tree: RunsTree, *, ahead: float = AHEAD, stuck: float | None = None) -> None:
    """Write all that a run writes, by a clock that is ahead; its step stands still since `stuck`, by that clock."""
    stamp = tree.now + ahead
    began = NOW - 500 + ahead
    tree.metadata("r1", last_update=to_iso(stamp), attempt_start_time=to_iso(began), phase_time=to_iso(began))
    moved = to_iso(stamp if stuck is None else stuck)
    tree.progress("r1", last_updated=to_iso(stamp), step_time=moved, moved_time=moved)
    tree.rank("r1", 0, time=to_iso(stamp))


def life(tree: RunsTree) -> float | None:
    return tree.value("training_life_timestamp_seconds", run_id="r1")


def motion(tree: RunsTree) -> float | None:
    return tree.value("training_motion_timestamp_seconds", run_id="r1", phase="train", basis="step")


def test_a_death_is_as_old_as_it_is(runs: RunsTree) -> None:
    for _ in range(3):
        runs.now += 5
        beat(runs)
        assert life(runs) == motion(runs) == runs.now
    died = runs.now
    for later in (300, 700, AHEAD + 700):
        runs.now = died + later
        assert life(runs) == motion(runs) == died
        assert runs.value("training_heartbeat_age_seconds", run_id="r1", source="metadata") == later
        assert runs.value("training_silent_ranks_timestamp_seconds", run_id="r1", host=HOST, ranks="0") == (
            None if later < 600 else died
        )


def test_a_loop_that_stands_still_is_not_moving_in_the_future(runs: RunsTree) -> None:
    beat(runs, stuck=NOW + AHEAD)
    assert motion(runs) == NOW
    runs.now += 900
    beat(runs, stuck=NOW + AHEAD)
    assert life(runs) == runs.now
    assert motion(runs) == NOW


def test_a_failure_is_as_old_as_it_is(runs: RunsTree) -> None:
    beat(runs)
    runs.samples()
    error = {"time": to_iso(NOW + AHEAD + 5), "message": "CUDA out of memory", "rank": 0, **ATTEMPT}
    runs.now += 5
    runs.write("r1", "_error", error)
    runs.samples()
    runs.now += 60
    assert runs.state("r1") == "failed"
    assert runs.value("training_run_end_timestamp_seconds", run_id="r1") == NOW + 5


def test_a_plain_error_is_no_older_than_an_attempt_that_is_dated_ahead(runs: RunsTree) -> None:
    beat(runs)
    runs.samples()
    runs.now += 5
    runs.write("r1", "_error", "it broke", modified=runs.now)
    runs.now += 5
    assert runs.state("r1") == "failed"


def test_a_run_that_began_before_its_clock_was_put_right_is_alive(runs: RunsTree) -> None:
    beat(runs)
    began = runs.value("training_attempt_start_timestamp_seconds", run_id="r1")
    assert began == NOW
    runs.now += 30
    stamp = to_iso(runs.now)
    start = to_iso(NOW - 500 + AHEAD)
    runs.metadata("r1", last_update=stamp, attempt_start_time=start, phase_time=start)
    runs.progress("r1", last_updated=stamp, step_time=stamp, moved_time=stamp)
    assert life(runs) == motion(runs) == runs.now
    assert runs.value("training_attempt_start_timestamp_seconds", run_id="r1") == NOW


def test_a_clock_of_this_host_that_is_set_back_hides_no_death(runs: RunsTree) -> None:
    beat(runs, ahead=0)
    assert life(runs) == NOW
    runs.now -= AHEAD
    assert life(runs) == runs.now
    runs.now += 700
    assert life(runs) == runs.now - 700


def test_a_stamp_that_was_too_far_ahead_is_not_fresh_for_a_day_once_it_is_nearer(runs: RunsTree) -> None:
    beat(runs, ahead=MAX_AHEAD_SECONDS + 3600)
    assert life(runs) is None
    runs.now += 3600
    assert life(runs) == runs.now
    runs.now += 700
    assert life(runs) == runs.now - 700


def test_a_record_without_a_time_in_the_future_stays_the_same_object() -> None:
    metadata = Metadata.from_json({"status": "running", "last_update": to_iso(NOW)})
    record = RunRecord("r1", NOW, Thresholds(), metadata=metadata)
    assert FutureTimes().replaced(record, NOW) is record
    assert FutureTimes().replaced(record, NOW - 60) is not record


def test_a_stamp_counts_from_when_it_was_first_seen() -> None:
    times = FutureTimes()
    assert times.seen("rank of n1", 0, NOW + 60, NOW) == NOW
    assert times.seen("rank of n2", 0, NOW + 60, NOW + 1) == NOW + 1
    assert times.seen("rank of n1", 0, NOW + 60, NOW + 90) == NOW
    assert times.seen("rank of n1", 0, NOW + 165, NOW + 90) == NOW + 90
    assert times.seen("rank of n1", 0, NOW + 91, NOW + 91) == NOW + 91
    assert times.seen("rank of n1", 0, None, NOW + 92) is None
