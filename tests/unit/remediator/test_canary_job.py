"""The canary: one job that is submitted once, healed in every mode, and of no weight in the decisions about others."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client.metrics_core import Metric

from tests.unit.remediator.simulated_cluster import FakeClock
from tests.unit.remediator.simulation import Make, Simulation
from trainwarden.clients.slurm.jobs import SlurmJob, read_job
from trainwarden.record.progress import Progress, read_progress
from trainwarden_remediator.canary_job.canary_job import RUN_ID, CanaryHealings
from trainwarden_remediator.canary_job.keeper import DOUBT_SECONDS, Keeper, SlurmCanary, keep
from trainwarden_remediator.canary_job.training import BrokenOnSchedule, train
from trainwarden_remediator.cli import main
from trainwarden_remediator.database.database import open_database
from trainwarden_remediator.database.schema import outbox
from trainwarden_remediator.errors import ConfigError, Unknown
from trainwarden_remediator.examine.choice import load_policies
from trainwarden_remediator.incidents.incident import State
from trainwarden_remediator.notify.outbox import HAND_OVER, Outbox

HOUR = 3600.0


def job(job_id: int, state: str) -> SlurmJob:
    return read_job({"job_id": job_id, "job_state": state.upper(), "comment": f"trainwarden:{RUN_ID}", "user_id": 7})


@dataclass
class Queue:
    """A scheduler whose answers a test sets; a submission may be accepted and its answer lost."""

    listed: list[SlurmJob] = field(default_factory=list)
    submitted: int = 0
    cancelled: list[str] = field(default_factory=list)
    down: bool = False
    lost: bool = False

    def jobs(self) -> Sequence[SlurmJob] | Unknown:
        return Unknown("no answer") if self.down else self.listed

    def submit(self) -> str | None:
        self.submitted += 1
        if self.lost:
            return None
        self.listed.append(job(self.submitted, "pending"))
        return str(self.submitted)

    def cancel(self, job: SlurmJob) -> None:
        self.cancelled.append(job.job_id)


@dataclass
class Kept:
    """A keeper that may be restarted, and its world."""

    file: Path
    queue: Queue = field(default_factory=Queue)
    now: float = 1000.0

    def look(self, after: float = 0.0) -> str:
        self.now += after
        return Keeper(self.queue, self.file, HOUR, lambda: self.now).look()  # each look by a new process


@pytest.fixture
def kept(tmp_path: Path) -> Kept:
    return Kept(tmp_path / "state.json")


def test_one_job_is_submitted_and_then_left_alone(kept: Kept) -> None:
    assert kept.look() == "submitted job 1"
    for state in ("pending", "running", "completing"):
        kept.queue.listed = [job(1, state)]
        assert kept.look(10 * HOUR) == f"job 1 is {state}"
    assert kept.queue.submitted == 1


def test_nothing_is_submitted_while_the_scheduler_gives_no_answer(kept: Kept) -> None:
    kept.queue.down = True
    assert "unknown" in kept.look()
    assert kept.queue.submitted == 0


def test_a_submission_without_an_answer_is_not_repeated_before_it_is_settled(kept: Kept) -> None:
    kept.queue.lost = True
    kept.look()
    kept.look(DOUBT_SECONDS - 1)
    assert kept.queue.submitted == 1
    kept.look(1)
    assert kept.queue.submitted == 2


def test_a_job_that_was_accepted_twice_is_removed_while_it_waits(kept: Kept) -> None:
    kept.queue.listed = [job(12, "pending"), job(9, "running"), job(11, "running")]
    assert kept.look() == "job 9 is running, and removed 12, which waited beside it"
    assert kept.queue.cancelled == ["12"]


@pytest.mark.parametrize("gone", [False, True])
def test_a_job_that_has_failed_is_left_to_the_remediator_for_an_hour(kept: Kept, gone: bool) -> None:
    kept.look()
    kept.queue.listed = [job(1, "running")]
    kept.look(HOUR)
    kept.queue.listed = [] if gone else [job(1, "failed")]
    assert "the remediator is to start it again" in kept.look()
    kept.look(HOUR - 1)
    assert kept.queue.submitted == 1
    assert kept.look(1) == "submitted job 2"


def test_the_hour_begins_anew_once_the_job_was_healed(kept: Kept) -> None:
    kept.look()
    for state in ("running", "failed", "running", "failed"):
        kept.queue.listed = [job(1, state)]
        kept.look(0.7 * HOUR)
    assert kept.queue.submitted == 1


@pytest.mark.parametrize("state", ["cancelled", "timeout", "preempted", "completed", "deadline"])
def test_a_job_that_ended_otherwise_is_submitted_again_at_once(kept: Kept, state: str) -> None:
    kept.look()
    kept.queue.listed = [job(1, "running")]
    kept.look(60)
    kept.queue.listed = [job(1, state)]
    assert kept.look(1) == "submitted job 2"


def test_a_clock_that_is_set_back_submits_nothing_twice(kept: Kept) -> None:
    kept.queue.lost = True
    kept.look()
    kept.look(-10 * HOUR)
    assert kept.queue.submitted == 1


def test_two_keepers_of_one_folder_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def second(_seconds: float) -> None:
        keep(Queue(), tmp_path, HOUR)

    monkeypatch.setattr("time.sleep", second)
    with pytest.raises(ConfigError, match="another canary is kept"):
        keep(Queue(), tmp_path, HOUR)


def test_the_keeper_needs_a_place_for_records_and_slurm(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--driver=slurm", "canary"]) == 2
    assert "--runs-dir" in capsys.readouterr().err
    assert main([f"--runs-dir={tmp_path}", "canary"]) == 2
    assert "trainwarden up" in capsys.readouterr().err
    assert main([f"--runs-dir={tmp_path}", "canary", "--every=often"]) == 2
    assert "--every" in capsys.readouterr().err


def test_a_job_is_no_canary_by_its_name_or_of_another_user(tmp_path: Path) -> None:
    class Client:
        def jobs(self) -> list[SlurmJob]:
            ours = job(1, "running")
            return [replace(ours, run_id="r", name=RUN_ID), replace(ours, user_id=8), ours]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.getuid", lambda: 7)
        client: Any = Client()
        assert SlurmCanary(client, ["true"], tmp_path).jobs() == [job(1, "running")]


def test_it_is_healed_in_every_mode_where_the_operator_keeps_one() -> None:
    for mode in ("observe", "canary", "opt-in", "act"):
        policies = load_policies("observe", None, ["*=none"], mode, canary_job=True)
        choice = policies.of(RUN_ID, None)
        assert (choice.policy.name, policies.observed(RUN_ID, choice)) == ("canary", None)
        assert policies.of("other", None).policy.name == "none"
    without = load_policies("default", None, [], "observe")
    assert without.observed(RUN_ID, without.of(RUN_ID, "canary")) is not None


@pytest.mark.parametrize(("users", "calls"), [((), []), ((8,), []), ((7,), ["prepare: none", "commit: none"])])
def test_a_run_of_another_user_by_its_name_has_none_of_its_exemptions(
    make: Make, users: tuple[int, ...], calls: list[str]
) -> None:
    simulation = broken(make, canary_users=frozenset(users))
    simulation.clusters[0].user = 7
    simulation.tick(120, every=5)
    assert simulation.driver.calls == calls
    if not calls:
        assert "reserved" in simulation.store.of_run(RUN_ID)[-1].reason


def test_only_one_user_may_have_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    token = tmp_path / "token"
    token.write_text("secret")
    flags = [f"--webhook-token-file={token}", "--canary"]
    assert main([*flags, "--canary-user=no-such-user", "check-config"]) == 2
    assert "--canary-user: 'no-such-user'" in "".join(capsys.readouterr())
    assert main([*flags, "check-config"]) == 0


def broken(make: Make, **options: Any) -> Simulation:
    """Runs that hang, the first of which is the canary."""
    simulation = make(**options)
    simulation.clusters[0].run_id = RUN_ID
    simulation.policies.canary_job = True
    return simulation


def test_a_storm_of_others_does_not_stop_it_and_it_makes_none(make: Make) -> None:
    simulation = broken(make, runs=3, storm_runs=2)
    simulation.tick(120, every=5)
    assert {run: simulation.store.of_run(run)[0].state for run in (RUN_ID, "run-2", "run-3")} == dict.fromkeys(
        (RUN_ID, "run-2", "run-3"), State.DONE
    )
    stormy = broken(make, runs=4, storm_runs=2)
    stormy.tick(120, every=5)
    assert stormy.store.of_run(RUN_ID)[0].state is State.DONE
    assert {stormy.store.of_run(f"run-{number}")[0].state for number in (2, 3, 4)} == {State.PROPOSED}


def test_it_counts_in_no_budget_of_the_fleet_and_in_no_recovery_of_users(make: Make) -> None:
    simulation = broken(make)
    simulation.tick(120, every=5)
    assert simulation.store.of_run(RUN_ID)[0].state is State.DONE
    assert len(simulation.store.restarts_since(0.0)) == 1
    assert simulation.store.restarts_since(0.0, leave_out=RUN_ID) == ()
    assert len(simulation.store.recovery_seconds()) == 1
    assert simulation.store.recovery_seconds(leave_out=RUN_ID) == []


@pytest.mark.parametrize(("faults", "kinds"), [([], set()), (["refused"] * 9, {HAND_OVER})])
def test_people_hear_of_it_only_when_it_needs_one(make: Make, faults: list[str], kinds: set[str]) -> None:
    simulation = broken(make)
    simulation.driver.faults = faults
    engine = simulation.engine  # the same database
    simulation.store.note_message = Outbox(engine, simulation.clock, ["slack"]).note
    simulation.tick(120, every=5)
    with engine.begin() as connection:
        assert {row.kind for row in connection.execute(sa.select(outbox.c.kind))} == kinds


def values(families: Sequence[Metric]) -> dict[str, float]:
    return {
        sample.name.removeprefix("trainwarden_remediator_canary_"): sample.value
        for each in families
        for sample in each.samples
    }


def test_the_metrics_tell_since_when_it_is_expected_and_when_it_was_healed(tmp_path: Path, make: Make) -> None:
    clock = FakeClock()
    engine = open_database(tmp_path)
    assert list(CanaryHealings(engine, clock, expected=False).families()) == []
    begun = clock.now()
    assert values([*CanaryHealings(engine, clock, expected=True).families()]) == {
        "expected_since_timestamp_seconds": begun
    }
    clock.elapsed += HOUR
    assert values([*CanaryHealings(engine, clock, expected=True).families()]) == {
        "expected_since_timestamp_seconds": begun
    }
    # Where it was given up and is kept again, it counts from then.
    assert list(CanaryHealings(engine, clock, expected=False).families()) == []
    assert values([*CanaryHealings(engine, clock, expected=True).families()]) == {
        "expected_since_timestamp_seconds": begun + HOUR
    }
    engine.dispose()

    simulation = broken(make, runs=2)
    simulation.tick(120, every=5)
    engine = simulation.engine  # the same database
    healed = simulation.store.of_run(RUN_ID)[0].updated
    found = values([*CanaryHealings(engine, simulation.clock, expected=True).families()])
    assert found["last_healed_timestamp_seconds"] == healed


def test_it_breaks_in_turn_by_a_crash_and_a_hang_and_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Hangs(Exception):
        pass

    slept: list[float] = []

    def sleep(seconds: float) -> None:
        slept.append(seconds)
        if seconds == HOUR:
            raise Hangs

    monkeypatch.setattr("trainwarden_remediator.canary_job.training.time.sleep", sleep)
    monkeypatch.setattr("trainwarden_remediator.canary_job.training.time.monotonic", lambda: float(len(slept)))
    monkeypatch.setenv("TRAINWARDEN_NODE_DIR", "")
    for start, expected in enumerate((BrokenOnSchedule, Hangs, BrokenOnSchedule)):
        monkeypatch.setenv("TRAINWARDEN_ATTEMPT_KEY", f"local:canary:{start}")
        with pytest.raises(expected):
            train(tmp_path, 25.0, 0.0)
        slept.clear()
    progress = read_progress(tmp_path / RUN_ID)
    assert isinstance(progress, Progress)
    assert progress.high_water is not None
    assert progress.high_water > 60
    assert len(list((tmp_path / RUN_ID / "checkpoints").iterdir())) <= 3
    assert "hangs on schedule" in capsys.readouterr().out
    attempts = json.loads((tmp_path / RUN_ID / "metadata.json").read_text())["attempts"]
    assert [each.get("resume_step") for each in attempts][1:] == [22, 42]
