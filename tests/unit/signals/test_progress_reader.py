"""Progress is right however the log arrives: in pieces, from many ranks, over restarts, and when it is hostile."""

import json

import pytest

from tests.cases import cases
from trainwarden.signals.progress import ProgressReader
from trainwarden.signals.progress.reader import CHUNK, LEARNING_BYTES, RECORD_LIMIT

CHATTER = b"node01:12:34 [0] NCCL INFO Channel 00/24 : 0 1 2 3 4 5 6 7 via P2P/CUMEM\n"


def bar(n: int, total: int, text: str = "") -> bytes:
    return f"\r{text}{100 * n // total:3d}%|██▌       | {n}/{total} [00:10<00:20,  2.00it/s]".encode()


def fed(*pieces: bytes) -> ProgressReader:
    reader = ProgressReader()
    for piece in pieces:
        reader.feed(piece)
    return reader


def test_the_cut_of_the_log_into_pieces_changes_nothing() -> None:
    log = b"step: 9 loss: 2.5 lr: 1e-4\r\nstep: 10 loss: 2.25 lr: 2e-4\n" + bar(11, 90) + bar(12, 90) + b"\n"
    whole = fed(log).progress()
    assert (whole.step, whole.loss, whole.learning_rate) == (10, 2.25, 2e-4)
    for size in (1, 2, 7, 30):
        pieces = [log[start : start + size] for start in range(0, len(log), size)]
        assert fed(*pieces).progress() == whole


def test_a_line_counts_only_once_it_ended() -> None:
    reader = fed(b"step: 7 loss: 1.5\nstep: 12")
    assert reader.progress().step == 7
    reader.feed(b"34 loss: 1.25\n")
    assert (reader.progress().step, reader.progress().loss) == (1234, 1.25)


def test_ranks_that_print_in_turns_are_one_picture() -> None:
    lines = [f"[rank{rank}]: step: {step}  loss: {step}.5\n" for step in range(5) for rank in (3, 1, 0, 2)]
    progress = fed("".join(lines).encode()).progress()
    assert (progress.step, progress.loss, progress.high_water) == (4, 4.5, 4)


def test_a_rollback_lowers_the_step_and_not_the_high_water() -> None:
    reader = ProgressReader()
    for first in (0, 0, 50):
        for step in range(first, 100):
            reader.feed(f"iteration {step}/500 | lm loss: 2.0 |\n".encode())
        assert (reader.progress().step, reader.progress().high_water) == (99, 99)
    reader.feed(b"iteration 20/500 | lm loss: 2.0 |\n")
    assert (reader.progress().step, reader.progress().high_water) == (20, 99)


def test_high_water_counts_on_over_the_epochs_of_a_bar_that_starts_anew() -> None:
    reader = ProgressReader()
    for epoch in range(3):
        for n in (1, 50, 99):
            reader.feed(bar(n, 100, f"Epoch {epoch}: ") + b"\r")
    assert (reader.progress().step, reader.progress().high_water) == (99, 299)


def test_what_an_attempt_recorded_does_not_outlive_its_restart() -> None:
    reader = fed(b"step: 500 loss: 2.0 grad_norm: 1.5\n", b"step: 1 loss: 9.0\n")
    assert (reader.progress().loss, reader.progress().grad_norm) == (9.0, None)


def test_a_value_that_is_no_longer_printed_gets_old() -> None:
    reader = ProgressReader()
    for step in range(0, 40, 10):
        reader.feed(f"step: {step} loss: 2.5 tokens_per_second: 100\n".encode())
    for step in range(31, 50):
        reader.feed(f"step: {step} tokens_per_second: 100\n".encode())
    assert reader.progress().loss == 2.5  # printed every tenth step
    reader.feed(b"step: 95 tokens_per_second: 100\n")
    assert reader.progress().loss is None


def test_an_evaluations_bar_within_the_trainings_is_not_the_step() -> None:
    reader = fed(bar(100, 500))
    for n in range(1, 7):
        reader.feed(bar(n, 6))
    assert (reader.progress().step, reader.progress().total_steps) == (100, 500)
    reader.feed(bar(101, 500) + b"\n")
    assert (reader.progress().step, reader.progress().high_water) == (101, 101)


def test_an_evaluations_bar_at_the_end_of_a_piece_does_not_hide_the_trainings() -> None:
    log = b"".join(bar(n, 500) for n in range(90, 101)) + b"".join(bar(n, 6) for n in range(1, 7)) + b"\n"
    assert (fed(log).progress().step, fed(log).progress().total_steps) == (100, 500)


def test_a_better_kind_of_step_that_is_no_longer_printed_gives_way() -> None:
    reader = fed(b"global_step: 5 loss: 2.5\n", bar(400, 500) + b"\n")
    assert reader.progress().step == 5
    for _ in range(5):
        reader.feed(CHATTER * (CHUNK // len(CHATTER)))
    reader.feed(bar(450, 500) + b"\n")
    assert reader.progress().step == 450


def test_a_global_step_beats_a_bar_of_the_epoch_and_a_bare_step() -> None:
    reader = fed(b"{'global_step': 1200, 'loss': 2.5}\n" + bar(20, 100, "Epoch 12: ") + b"\nstep=3\n")
    assert reader.progress().step == 1200


def test_records_within_floods_are_found() -> None:
    reader = fed(CHATTER * (LEARNING_BYTES // len(CHATTER) + 1), CHATTER * 20_000)
    reader.feed(CHATTER * 100 + b"step: 77 loss: 2.5\n" + CHATTER * ((CHUNK - RECORD_LIMIT) // len(CHATTER)))
    assert (reader.progress().step, reader.progress().loss) == (77, 2.5)


def test_a_bar_that_is_followed_by_a_traceback_without_a_line_end_counts() -> None:
    reader = fed(
        bar(6, 300) + b"Traceback (most recent call last):\n", b'  File "trainer.py", line 3711, in training_step\n'
    )
    assert reader.progress().step == 6


def test_the_state_survives_a_restart_of_the_reader() -> None:
    log = b"step: 9 loss: nan lr: 1e-4\n" + bar(12, 90) + b"\nstep: 10 loss: 2.5\n"
    first = fed(log[:40])
    state = json.loads(json.dumps(first.state()))
    second = ProgressReader()
    second.restore(state)
    second.feed(log[state["offset"] :])
    assert second.progress() == fed(log).progress()
    assert len(json.dumps(second.state())) < 2000


@pytest.mark.timeout(30)  # what is not linear takes hours
@cases(
    "record",
    [
        b"step " * 200_000,
        b"loss: 1" * 200_000,
        b"1%|" * 300_000,
        b"{'loss': " + b"[" * 500_000,
        b"step: 1 " + b"1," * 400_000,
        b"Epoch [" * 100_000,
        b"\x1b[" * 400_000,
        b"iteration" + b" " * 900_000 + b"5",
        bytes(range(256)) * 4000,
        b"loss 1\r" * 100_000,
        b"step: " + b"9" * 900_000,
    ],
)
def test_hostile_records_cost_bounded_work(record: bytes) -> None:
    reader = ProgressReader()
    reader.feed(record)
    reader.feed(b"\nstep: 5 loss: 1.5\n")
    assert reader.progress().loss == 1.5


def test_a_record_without_end_is_not_kept() -> None:
    reader = ProgressReader()
    for _ in range(40):
        reader.feed(b"x" * CHUNK)
    assert reader.state()["offset"] == 40 * CHUNK
