"""Every failure has one entry, which says what to do."""

from tests.cases import cases
from trainwarden.failures.patterns import SIGNALS
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


@cases("slug", FAILURES)
def test_an_entry_uses_known_labels_and_states_what_to_do(slug: str) -> None:
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


def test_every_pattern_belongs_to_an_entry() -> None:
    assert {signal.split(b"\0")[2].decode() for signal in SIGNALS} <= {*FAILURES, ""}


def test_out_of_memory_and_nan_state_what_to_change_and_are_not_retried() -> None:
    memory, nan = FAILURES["host_oom"], FAILURES["numeric"]
    assert "batch size" in memory.hint
    assert "learning rate" in nan.hint
    assert not memory.retryable
    assert not nan.retryable
