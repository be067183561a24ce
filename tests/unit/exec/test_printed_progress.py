"""The phase, the steps and the budgets of a command that reports nothing and prints its steps."""

from pathlib import Path

import pytest

from tests.cases import cases
from trainwarden.exec.printed_progress import PENDING_BYTES, PrintedProgress
from trainwarden.exec.record_writer import ExternalRecordWriter
from trainwarden.identity import AttemptKey
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.record.progress import Progress, read_progress
from trainwarden.record.store import RecordStore
from trainwarden.record.thresholds import choose, stall_budgets, stall_text
from trainwarden.shell.heartbeat import heartbeat, phase
from trainwarden.training.outcome import SUCCEEDED, AttemptOutcome

KEY = AttemptKey("local", "7-1", 0)


class Watched:
    """A command, what it prints and what is written of it."""

    def __init__(self, folder: Path, given: str = "") -> None:
        self.now = 1000.0
        self.folder = folder
        self.printed = PrintedProgress(lambda: self.now)
        environment = {"TRAINWARDEN_STALL_SECONDS": given}
        self.writer = ExternalRecordWriter(
            RecordStore(folder), KEY, choose(None, environment), printed=self.printed, given=stall_budgets(given)
        )
        self.writer.announce()
        self.writer.alive()

    def prints(self, text: str, after: float = 1.0) -> None:
        self.now += after
        self.printed.add(text.encode())
        self.writer.read_output()
        self.writer.alive()

    @property
    def metadata(self) -> Metadata:
        metadata = read_metadata(self.folder)
        assert isinstance(metadata, Metadata)
        return metadata

    @property
    def progress(self) -> Progress:
        progress = read_progress(self.folder)
        assert isinstance(progress, Progress)
        return progress

    def judged(self) -> tuple[str | None, str | None, float | None]:
        """Phase, its source and its budget."""
        metadata = self.metadata
        return metadata.phase, metadata.phase_source, metadata.thresholds.stall_seconds.get(metadata.phase or "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "r1"


def test_without_a_budget_a_command_is_idle_until_it_prints_a_step_and_then_trains(folder: Path) -> None:
    job = Watched(folder)
    assert job.judged() == ("idle", None, None)
    job.prints("loading the model\n")
    assert job.judged() == ("idle", None, None)
    job.prints("step 1 loss 2.5\n")
    assert job.judged() == ("train", "output", 600.0)
    assert (job.progress.step, job.progress.loss, job.progress.attempt_key) == (1, 2.5, str(KEY))


def test_the_record_names_the_instance(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRAINWARDEN_INSTANCE_ID", "i-01fa5b57d64c6196a")
    assert Watched(folder).metadata.instance_id == "i-01fa5b57d64c6196a"


def test_with_a_budget_for_steps_every_phase_before_them_has_it_and_restarts_nothing(folder: Path) -> None:
    job = Watched(folder, "15")
    assert job.judged() == ("init", "output", 15.0)
    job.prints("loading the model\n")
    assert job.judged() == ("load", "output", 15.0)
    job.prints("step 1/100 loss 2.5\n")
    assert job.judged() == ("train", None, 15.0)
    job.prints("step 100/100 loss 1.5\n")
    assert job.judged() == ("eval", "output", 1800.0)


def test_a_budget_that_was_given_for_the_start_may_restart_it(folder: Path) -> None:
    job = Watched(folder, "init=60")
    assert job.judged() == ("init", None, 60.0)
    job.prints("hello\n")
    assert job.judged() == ("load", None, 60.0)
    job.prints("step 3\n")
    assert job.judged() == ("train", "output", 600.0)


def test_steps_that_are_far_apart_get_a_budget_that_fits(folder: Path) -> None:
    job = Watched(folder)
    job.prints("step 1\n")
    job.prints("step 2\n", after=900)
    assert job.judged() == ("train", "output", 2700.0)
    assert job.progress.moved_time == job.now


def test_an_epoch_that_counts_anew_moves_and_does_not_circle(folder: Path) -> None:
    job = Watched(folder, "15")
    for epoch in range(3):
        for step in (1, 5, 10):
            job.prints(f"Epoch {epoch}: {step * 10}%|###       | {step}/10 [00:01<00:09, 1.00it/s]\r")
    job.prints("Epoch 3:  10%|#         | 1/10 [00:01<00:09, 1.00it/s]\r\r")
    assert job.progress.step_time is not None
    assert job.progress.moved_time is not None
    assert job.progress.moved_time - job.progress.step_time <= 1.0


def test_a_command_that_reports_a_phase_itself_is_left_to_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(folder, "15")
    for name, value in (("RUN_ID", "r1"), ("RUNS_DIR", str(folder.parent)), ("ATTEMPT_KEY", str(KEY))):
        monkeypatch.setenv(f"TRAINWARDEN_{name}", value)
    assert phase(["compile"]) == 0
    job.prints("step 1\n")
    assert job.judged() == ("compile", None, 1800.0)
    assert job.metadata.thresholds.stall_seconds["init"] == 1800.0


def test_a_command_that_reports_its_steps_itself_is_left_to_it(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    job = Watched(folder)
    job.prints("step 1\n")
    for name, value in (("RUN_ID", "r1"), ("RUNS_DIR", str(folder.parent)), ("ATTEMPT_KEY", str(KEY))):
        monkeypatch.setenv(f"TRAINWARDEN_{name}", value)
    assert heartbeat(["--step", "70"]) == 0
    job.prints("step 2\n")
    assert job.progress.step == 70
    assert job.judged() == ("train", None, 600.0)


def test_an_attempt_after_another_counts_on(folder: Path) -> None:
    first = Watched(folder)
    first.prints("step 40 loss 2.0\n")
    second = Watched(folder)
    second.prints("step 30 loss 2.0\n")
    assert (second.progress.step, second.progress.high_water) == (30, 40)
    assert second.metadata.attempts[-1].resume_step == 30


def test_steps_that_are_read_at_once_are_all_counted(folder: Path) -> None:
    """A loop may make many between two looks: its first one is the start of the attempt."""
    job = Watched(folder)
    job.prints("loading\n" * 50 + "".join(f"step {step}/60 loss 2.0\n" for step in range(1, 61)))
    assert (job.progress.step, job.progress.steps_completed) == (60, 60)
    assert job.metadata.attempts[-1].resume_step == 1


def test_a_flood_of_output_is_bounded_and_its_last_step_counts(folder: Path) -> None:
    job = Watched(folder)
    for _ in range(5):
        job.printed.add(b"x" * PENDING_BYTES + b"\n")
    job.prints("step 77 loss 0.5\n")
    assert job.progress.step == 77


def test_the_last_step_counts_although_the_command_ended_right_after(folder: Path) -> None:
    job = Watched(folder)
    job.printed.add(b"step 100/100 loss 1.5")
    job.writer.end(SUCCEEDED)
    assert job.progress.step == 100
    assert job.metadata.status == "succeeded"


@pytest.mark.parametrize("is_read", [False, True])
def test_a_command_that_fails_right_after_its_first_step_has_failed_in_training(folder: Path, is_read: bool) -> None:
    job = Watched(folder)
    job.printed.add(b"step 7/20 loss 0.3\nRuntimeError: CUDA out of memory\n")
    if is_read:
        job.writer.read_output()
    job.writer.end(AttemptOutcome("failed", "RuntimeError: CUDA out of memory"))
    assert (job.metadata.status, job.metadata.phase) == ("failed", "train")
    assert job.metadata.attempts[-1].resume_step == 7


@cases("text", ["15", "15,init=300", "init=5m,train=15", "eval=1h, checkpoint=90s"])
def test_budgets_are_read_as_they_are_passed_on(text: str) -> None:
    assert stall_budgets(stall_text(stall_budgets(text))) == stall_budgets(text)


@cases("text", ["0", "train", "sprint=5", "5,train=6", "init=", "nan", "-3", ","])
def test_a_budget_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="TRAINWARDEN_STALL_SECONDS"):
        stall_budgets(text)
