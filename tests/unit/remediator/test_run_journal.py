"""The line of a run's own journal that says why it is not restarted: once, and never into a file of anybody else."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.unit.remediator.simulated_cluster import RUN
from tests.unit.remediator.simulation import Simulation
from trainwarden.clients.slack import NotSent
from trainwarden.record.lines import MAX_LINE
from trainwarden.training.journal import ROTATE_BYTES
from trainwarden_remediator.database.database import open_database
from trainwarden_remediator.drivers.driver import ScheduledJob, Shape
from trainwarden_remediator.notify.message import Notice
from trainwarden_remediator.notify.notify import Notifier
from trainwarden_remediator.notify.outbox import DECISION, HAND_OVER, Outbox
from trainwarden_remediator.notify.run_journal import JOURNALED, RunJournal
from trainwarden_remediator.store.switches import freeze

NOTICE = Notice(HAND_OVER, RUN, "", "", (("Reason", "no start"), ("Incident", "i1")), "slurm:17:0")
BEFORE = '{"event_type": "training_started"}\n'


@pytest.fixture
def journal(tmp_path: Path) -> Path:
    """The journal of a run whose library has begun it."""
    folder = tmp_path / "runs" / RUN
    folder.mkdir(parents=True)
    (folder / "events.jsonl").write_text(BEFORE)
    return folder / "events.jsonl"


def channel(journal: Path) -> RunJournal:
    return RunJournal(journal.parents[1])


@pytest.mark.parametrize(
    ("policy", "event_type", "reason"),
    [
        ("megatron_conservative", "attempt_not_restarted", "policy megatron_conservative"),
        ("default", "person_needed", "the scheduler refused"),
    ],
)
def test_a_refusal_and_a_hand_over_are_in_the_journal_of_the_run_once(
    tmp_path: Path, journal: Path, policy: str, event_type: str, reason: str
) -> None:
    simulation = Simulation(tmp_path / "simulated", two_phase=True, policy=policy)
    engine = open_database(tmp_path / "simulated")
    outbox = Outbox(engine, simulation.clock, ["journal"], {"journal": JOURNALED})
    simulation.store.note_message = outbox.note
    notifier = Notifier(outbox, [channel(journal)], monotonic=simulation.clock.monotonic)
    if event_type == "person_needed":
        simulation.driver.faults = ["refused"]
    else:
        simulation.cluster.crash()
    for _ in range(3):
        simulation.tick(5)
        notifier.deliver()
    _, line = [json.loads(each) for each in journal.read_text().splitlines()]
    assert line["event_type"] == event_type
    assert reason in line["data"]["reason"]
    assert line["data"]["attempt_key"] == "sim:17:0"
    assert line["data"]["incident"] in {each.id for each in simulation.store.of_run(RUN)}
    engine.dispose()
    simulation.close()


@pytest.mark.parametrize("shape", [Shape.SUBMIT, Shape.RESUBMIT], ids=["submit", "resubmit"])
@pytest.mark.parametrize("faults", [[], ["none", "lost reply", "lost reply", "lost reply"]], ids=["told", "repeated"])
def test_a_job_that_comes_back_under_a_new_id_is_in_the_journal_once_with_both_ids(
    tmp_path: Path, journal: Path, shape: Shape, faults: list[str]
) -> None:
    simulation = Simulation(tmp_path / "simulated", shape=shape)
    engine = open_database(tmp_path / "simulated")
    outbox = Outbox(engine, simulation.clock, ["journal"], {"journal": JOURNALED})
    simulation.store.note_message = outbox.note
    simulation.driver.faults = faults
    notifier = Notifier(outbox, [channel(journal)], monotonic=simulation.clock.monotonic)
    [incident] = simulation.settle()
    notifier.deliver()
    _, line = [json.loads(each) for each in journal.read_text().splitlines()]
    assert line["event_type"] == "attempt_resubmitted"
    assert incident.successor == simulation.cluster.job_id
    assert f"job 17 comes back as job {incident.successor}" in line["data"]["jobs"]
    assert (line["data"]["attempt_key"], line["data"]["incident"]) == ("sim:17:0", incident.id)
    engine.dispose()
    simulation.close()


def change_job(simulation: Simulation, monkeypatch: pytest.MonkeyPatch, **changes: object) -> None:
    """Let the scheduler show the job otherwise."""
    shown = simulation.driver.job

    def job(job_id: str) -> ScheduledJob:
        found = shown(job_id)
        assert isinstance(found, ScheduledJob)
        return replace(found, **changes)  # type: ignore[arg-type]

    monkeypatch.setattr(simulation.driver, "job", job)


def of_another_user(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    change_job(simulation, monkeypatch, refusal="job 17 belongs to uid 4711; see --slurm-allow-user")


def without_a_mark(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    change_job(simulation, monkeypatch, run_id=None)


def frozen(simulation: Simulation, _monkeypatch: pytest.MonkeyPatch) -> None:
    with simulation.engine.begin() as connection:
        freeze(connection, RUN, "ann", "fabric work", simulation.clock.now(), None)


def in_a_storm(simulation: Simulation, _monkeypatch: pytest.MonkeyPatch) -> None:
    simulation.store.switches.begin_storm("", "7 runs are to be restarted", lambda _connection: None)


@pytest.mark.parametrize(
    ("hinder", "reason"),
    [
        (of_another_user, "belongs to uid 4711"),
        (without_a_mark, "is not marked as belonging to the run"),
        (frozen, "frozen by ann"),
        (in_a_storm, "7 runs are to be restarted"),
    ],
)
def test_a_refusal_by_no_policy_is_in_the_journal_of_the_run_once_and_no_news_to_others(
    tmp_path: Path,
    journal: Path,
    monkeypatch: pytest.MonkeyPatch,
    hinder: Callable[[Simulation, pytest.MonkeyPatch], None],
    reason: str,
) -> None:
    simulation = Simulation(tmp_path / "simulated", two_phase=True)
    engine = open_database(tmp_path / "simulated")
    outbox = Outbox(engine, simulation.clock, ["journal", "slack"], {"journal": JOURNALED})
    simulation.store.note_message = outbox.note
    notifier = Notifier(outbox, [channel(journal)], monotonic=simulation.clock.monotonic)
    hinder(simulation, monkeypatch)
    for _ in range(3):
        simulation.tick(30)
        notifier.deliver()
    _, line = [json.loads(each) for each in journal.read_text().splitlines()]
    assert line["event_type"] == "attempt_not_restarted"
    assert reason in line["data"]["reason"]
    assert line["data"]["attempt_key"] == "sim:17:0"
    assert [each.kind for each in outbox.due("slack") if each.kind != DECISION] == []
    engine.dispose()
    simulation.close()


def test_a_line_that_was_written_before_the_process_ended_is_not_written_again(journal: Path) -> None:
    channel(journal).send(NOTICE, "i1-escalated")
    channel(journal).send(NOTICE, "i1-escalated")
    assert journal.read_text().count("person_needed") == 1


def test_a_line_begins_anew_after_one_that_was_cut_off(journal: Path) -> None:
    journal.write_text('{"event_type": "gpu_st')
    channel(journal).send(NOTICE, "m")
    assert json.loads(journal.read_text().splitlines()[1])["event_type"] == "person_needed"


def test_restarts_are_left_to_the_library(journal: Path) -> None:
    channel(journal).send(Notice(DECISION, RUN, "", "", ()), "m")
    assert journal.read_text() == BEFORE


def test_no_journal_is_created(journal: Path) -> None:
    """It would belong to the remediator, and the training could not write it."""
    journal.unlink()
    channel(journal).send(NOTICE, "m")
    assert not journal.exists()
    channel(journal).send(Notice(HAND_OVER, "../x", "", "", ()), "m")


@pytest.mark.parametrize("make", [os.symlink, os.link])
def test_a_file_of_another_name_is_left_alone(journal: Path, tmp_path: Path, make: object) -> None:
    """A user could point the journal at a file that the remediator alone may write."""
    other = tmp_path / "other"
    journal.replace(other)
    assert callable(make)
    make(other, journal)
    channel(journal).send(NOTICE, "m")
    assert other.read_text() == BEFORE


def test_a_pipe_is_no_journal(journal: Path) -> None:
    journal.unlink()
    os.mkfifo(journal)
    reader = os.open(journal, os.O_RDONLY | os.O_NONBLOCK)
    try:
        channel(journal).send(NOTICE, "m")
        assert os.read(reader, 1) == b""
    finally:
        os.close(reader)


def test_a_journal_that_nobody_rotates_does_not_grow_for_ever(journal: Path) -> None:
    size = ROTATE_BYTES + MAX_LINE + 1
    os.truncate(journal, size)
    channel(journal).send(NOTICE, "m")
    assert journal.stat().st_size == size


def test_a_full_disk_is_tried_again_and_leaves_no_half_of_a_line(
    journal: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:5]))
    with pytest.raises(NotSent, match=os.strerror(errno.ENOSPC)) as caught:
        channel(journal).send(NOTICE, "m")
    assert caught.value.of_message, "other runs may have room"
    assert journal.read_text() == BEFORE
    monkeypatch.undo()
    channel(journal).send(NOTICE, "m")
    assert "person_needed" in journal.read_text()
