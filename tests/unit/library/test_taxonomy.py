"""Every failure has one entry, and what Python raises finds it."""

import io
import json
import pickle
import subprocess
import sys
import zipfile
from collections.abc import Callable

import numpy as np
import pytest

from tests.unit.library.looking import classify_exit
from trainwarden.classify import classify_exception, classify_message
from trainwarden.phrases import PHRASES
from trainwarden.taxonomy import ACTIONS, CATEGORIES, FAILURES, FAULTS, SEVERITIES

# The labels by which logs of failed trainings are sorted, and `unknown`.
LABELS = frozenset(
    (
        "oom",
        "host_oom",
        "nccl",
        "nccl_timeout",
        "distributed_timeout",
        "communication",
        "hang",
        "deadlock",
        "numerical_instability",
        "gpu_hardware",
        "cuda_error",
        "driver",
        "storage",
        "checkpoint",
        "data_loading",
        "configuration",
        "model_creation",
        "exception",
        "cancelled",
        "time_limit",
        "preempted",
        "node_failure",
        "slurm_failure",
        "auth_network",
        "unknown",
    )
)


@pytest.mark.parametrize("slug", FAILURES)
def test_an_entry_uses_the_known_words_and_says_what_to_do(slug: str) -> None:
    entry = FAILURES[slug]
    assert entry.error_type in LABELS
    assert entry.category in CATEGORIES
    assert entry.fault in FAULTS
    assert entry.severity in SEVERITIES
    assert entry.action in ACTIONS
    assert 30 < len(entry.hint) <= 300
    assert entry.hint.endswith(".")
    assert not (entry.retryable and entry.action == "stop")


def test_every_label_by_which_logs_are_sorted_has_an_entry() -> None:
    assert {entry.error_type for entry in FAILURES.values()} == LABELS


def test_what_may_be_repeated_in_the_process_may_be_repeated_as_a_job_too() -> None:
    assert all(entry.retryable for entry in FAILURES.values() if entry.retryable_in_process)
    assert not FAILURES["cuda_illegal_access"].retryable_in_process
    assert FAILURES["cuda_illegal_access"].retryable


def test_every_phrase_belongs_to_an_entry() -> None:
    assert {slug for slug, _ in PHRASES} <= set(FAILURES)


def _raised(call: Callable[[], object]) -> Exception:
    try:
        call()
    except Exception as error:  # noqa: BLE001  # whatever the case raises
        return error
    raise AssertionError("nothing was raised")


def _error(exc: BaseException) -> Callable[[], object]:
    def call() -> None:
        raise exc

    return call


def _chained(outer: BaseException, inner: BaseException) -> Callable[[], object]:
    def call() -> None:
        try:
            raise inner
        except type(inner) as cause:
            raise outer from cause

    return call


def _handled(outer: BaseException, inner: BaseException) -> Callable[[], object]:
    def call() -> None:
        try:
            raise inner
        except type(inner):
            raise outer  # noqa: B904  # the implicit context is what is tested

    return call


CASES: dict[str, tuple[Callable[[], object], str]] = {
    "numpy without memory": (lambda: np.ones(10**15), "host_oom"),
    "a truncated pickle": (lambda: pickle.load(io.BytesIO()), "ckpt_corrupt"),
    "a file that is no zip": (lambda: zipfile.ZipFile(io.BytesIO(b"not a zip")).close(), "ckpt_corrupt"),
    "a missing checkpoint": (lambda: open("/nowhere/iter_0000100/x.pt"), "ckpt_missing"),  # noqa: PTH123, SIM115
    "another missing file": (lambda: open("/nowhere/x.txt"), "storage_missing"),  # noqa: PTH123, SIM115
    "undecodable data": (b"\xff".decode, "data_corrupt"),
    "a missing package": (lambda: __import__("no_such_package"), "missing_module"),
    "a reset": (_error(ConnectionResetError(104, "Connection reset by peer")), "peer_reset"),
    "a broken pipe": (_error(BrokenPipeError(32, "Broken pipe")), "peer_reset"),
    "an end of file from a peer": (_error(EOFError()), "peer_reset"),
    "a silent peer": (_error(TimeoutError("timed out")), "peer_timeout"),
    "a rendezvous": (_error(TimeoutError("rendezvous at 10.0.0.1:1: ranks [1] did not come")), "rendezvous"),
    "a port in use": (_error(OSError(98, "Address already in use")), "rendezvous"),
    "a full disk": (_error(OSError(28, "No space left on device")), "storage_quota"),
    "a quota": (_error(OSError(122, "Disk quota exceeded")), "storage_quota"),
    "a read-only disk": (_error(OSError(30, "Read-only file system")), "storage_permission"),
    "a NaN by type": (_error(FloatingPointError("at step 3")), "numeric"),
    "a NaN by message": (_error(ValueError("loss is NaN at step 3")), "numeric"),
    "torch without GPU memory": (_error(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")), "cuda_oom"),
    "a bad kernel": (
        _error(RuntimeError("CUDA error: an illegal memory access was encountered")),
        "cuda_illegal_access",
    ),
    "a device assert": (_error(RuntimeError("CUDA error: device-side assert triggered")), "device_assert"),
    "NCCL": (_error(RuntimeError("NCCL error in: x.cpp:1, unhandled system error")), "nccl_system"),
    "a collective's watchdog": (
        _error(RuntimeError("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)")),
        "nccl_watchdog_timeout",
    ),
    "another model": (_error(RuntimeError("size mismatch for h.0.weight")), "ckpt_mismatch"),
    "the script itself": (_error(KeyError("lr")), "user_exception"),
    "a known cause": (_chained(RuntimeError("step failed"), MemoryError()), "host_oom"),
    "a known context": (_handled(RuntimeError("step failed"), ConnectionResetError()), "peer_reset"),
    "a training inside an except": (_handled(MemoryError(), FileNotFoundError(2, "x", "ckpt")), "host_oom"),
}


@pytest.mark.parametrize("case", CASES)
def test_an_exception_finds_its_entry(case: str) -> None:
    call, slug = CASES[case]
    assert classify_exception(_raised(call)).slug == slug


def test_types_of_other_libraries_are_known_by_name() -> None:
    out_of_memory = type("OutOfMemoryError", (RuntimeError,), {})
    assert classify_exception(out_of_memory("Tried to allocate 2 GiB")).slug == "cuda_oom"


def test_causes_that_form_a_ring_end() -> None:
    first, second = ValueError(), KeyError()
    first.__cause__, second.__cause__ = second, first
    assert classify_exception(first).slug == "user_exception"


def test_an_exception_that_cannot_be_printed_is_still_classified() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise RuntimeError

    assert classify_exception(Mute()).slug == "user_exception"


def test_out_of_memory_and_nan_say_what_to_change_and_are_not_retried() -> None:
    memory, nan = FAILURES["host_oom"], FAILURES["numeric"]
    assert "batch size" in memory.hint
    assert "learning rate" in nan.hint
    assert not memory.retryable
    assert not nan.retryable


@pytest.mark.parametrize(
    ("status", "slug"),
    [
        (1, "nonzero_exit"),
        (2, "config_error"),
        (93, "launcher_stop"),
        (-9, "killed"),
        (137, "killed"),
        (-11, "crash_signal"),
        (134, "crash_signal"),
        (-15, "cancelled"),
        (143, "cancelled"),
        (130, "cancelled"),
        (255, "nonzero_exit"),
        (-99, "killed"),
    ],
)
def test_an_exit_status_finds_its_entry(status: int, slug: str) -> None:
    assert classify_exit(status).slug == slug


def test_status_0_is_no_failure_and_a_bare_kill_is_of_unknown_type() -> None:
    assert classify_exit(0) is None
    assert classify_exit(-9).error_type == "unknown"
    assert classify_exit(-9).retryable


@pytest.mark.parametrize(
    "line",
    [
        "lm loss: 2.1E+00 | grad norm: 0.4 | number of nan iterations:   0 |",
        "CUDA graph: batch shape unchanged",
        "loss 1.2, information",
    ],
)
def test_what_a_healthy_training_prints_is_no_failure(line: str) -> None:
    assert classify_message(line) is None


def test_it_can_be_listed_without_loading_what_it_talks_about() -> None:
    code = (
        "import json, sys, trainwarden.classify; print(json.dumps([m for m in ('numpy', 'torch') if m in sys.modules]))"
    )
    assert json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) == []
