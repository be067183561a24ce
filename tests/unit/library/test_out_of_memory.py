"""What is suggested after a GPU ran full has the numbers that PyTorch's message states."""

import pytest

import trainwarden
from tests.cases import cases
from trainwarden.failures.out_of_memory import suggestion
from trainwarden.record.sentinels import failure_sentinel
from trainwarden.taxonomy import FAILURES

OOM = FAILURES["cuda_oom"]
NEW = (
    "CUDA out of memory. Tried to allocate 4.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.15 GiB is free."
    " Including non-PyTorch memory, this process has 78.00 GiB memory in use. "
    "Of the allocated memory 76.00 GiB is allocated by PyTorch, and 0.85 GiB is reserved by PyTorch but unallocated. "
    "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True."
)
OLD = (
    "CUDA out of memory. Tried to allocate 4.00 GiB (GPU 0; 79.15 GiB total capacity; 76.00 GiB already allocated; "
    "1.15 GiB free; 76.85 GiB reserved in total by PyTorch) If reserved memory is >> allocated memory try setting "
    "max_split_size_mb to avoid fragmentation."
)
IN_PIECES = NEW.replace("76.00 GiB is", "40.00 GiB is").replace("0.85 GiB is", "36.85 GiB is")


@pytest.mark.parametrize("message", [NEW, OLD])
def test_the_batch_size_that_may_have_fitted_is_computed(message: str) -> None:
    """Needed were 80 GiB, and there were 78: 62 of 64 at most."""
    told = suggestion(OOM, message, 64)
    assert told.startswith("The step needed at least 80.0 GiB, and there were 78.0 GiB: use a batch size of 62 at most")
    assert "instead of 64" in told


@cases(("batch_size", "fits"), [(2, 1), (8, 7), (33, 32), (4096, 3993)])
def test_it_is_always_a_smaller_one_and_never_none(batch_size: int, fits: int) -> None:
    assert f"a batch size of {fits} at most instead of {batch_size}" in suggestion(OOM, NEW, batch_size)


@cases("batch_size", [None, 0, -4, float("nan"), float("inf")])
def test_without_a_batch_size_the_share_is_named(batch_size: float | None) -> None:
    told = suggestion(OOM, NEW, batch_size)
    assert "lower the batch size per device or the sequence length, by 3 % at least." in told


def test_a_batch_of_one_cannot_be_lowered() -> None:
    told = suggestion(OOM, NEW, 1)
    assert "batch size of 1 cannot be lowered, and gradient accumulation is no help" in told
    assert "a shorter sequence, activation checkpointing or sharding" in told
    assert "%" not in told
    assert suggestion(OOM, IN_PIECES, 1).endswith("or lower the sequence length.")


def test_sizes_below_a_gibibyte_are_in_mebibytes() -> None:
    message = IN_PIECES.replace("4.00 GiB", "20.00 MiB")
    assert "38.0 GiB were unused, in pieces too small for 20 MiB" in suggestion(OOM, message)


def test_memory_in_pieces_is_no_reason_for_a_smaller_batch_alone() -> None:
    told = suggestion(OOM, IN_PIECES, 64)
    assert told.startswith("38.0 GiB were unused, in pieces too small for 4.0 GiB: set PYTORCH_CUDA_ALLOC_CONF=")


@cases(
    "message",
    [
        "CUDA out of memory. Tried to allocate 2.00 GiB",
        "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.14 GiB",
        "",
        "1.00 GiB is free. 2.00 GiB is allocated",
    ],
)
def test_a_message_without_the_numbers_has_the_general_advice(message: str) -> None:
    assert suggestion(OOM, message, 64) == OOM.hint


def test_other_failures_keep_their_advice() -> None:
    assert suggestion(FAILURES["host_oom"], NEW, 64) == FAILURES["host_oom"].hint


def test_an_exception_and_the_record_of_its_failure_have_it() -> None:
    assert "62 at most" in trainwarden.recovery_suggestion(RuntimeError(NEW), batch_size=64)
    written = failure_sentinel(run_id="r", attempt=0, key="k", failure=OOM, message=NEW)
    assert written.hint is not None
    assert "by 3 % at least" in written.hint


def test_a_hostile_message_and_batch_size_raise_nothing() -> None:
    message = NEW.replace("79.15", "9" * 9).replace("76.00", "9" * 9)
    assert trainwarden.recovery_suggestion(RuntimeError(message), batch_size="64")  # type: ignore[arg-type]  # on purpose
