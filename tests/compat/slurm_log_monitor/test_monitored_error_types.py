"""Each error type of the table: a line of a log that is named so, and whether the recommended policy restarts it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.compat.slurm_log_monitor.decisions import ERROR_TYPES, restarts

if TYPE_CHECKING:
    from tests.compat.slurm_log_monitor.user import User

pytestmark = pytest.mark.seed("Monitoring and Automatic Restart", "Monitored Error Types")

_MIGRATION = Path(__file__).resolve().parents[3] / "docs/from-slurm-log-monitor.md"
# Whether the page's recommended policy restarts it. `cancelled` has tests of its own.
RESTARTABLE = {
    "oom": False,
    "hang": True,
    "deadlock": True,
    "nccl": True,
    "nccl_timeout": True,
    "distributed_timeout": True,
    "communication": True,
    "watchdog_timeout": True,
    "slurm_failure": True,
    "numerical_instability": False,
    "exception": False,
    "torch": False,
}
# By the signals of megatron_production.
LINES = {
    "oom": [
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.50 GiB. GPU 2 has a total capacity of 79 GiB",
        "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0.",
    ],
    "hang": [
        "RuntimeError: CUDA error: the launch timed out and was terminated",
        "ProcessGroupNCCL's watchdog got stuck for 600 seconds without making progress",
    ],
    "deadlock": ["Deadlock detected between ranks 0 and 5"],
    "nccl": [
        "nid001:211:318 [3] NCCL ERROR socket setup failed on eth0",
        "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:1970, unhandled system error",
    ],
    "nccl_timeout": ["[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=431, Timeout(ms)=600000)"],
    "distributed_timeout": ["RuntimeError: Timed out initializing process group in store based barrier on rank: 3"],
    "communication": [
        "ConnectionResetError: [Errno 104] Connection reset by peer",
        "OSError: [Errno 113] No route to host",
    ],
    "numerical_instability": [
        " iteration       5/      10 | lm loss: nan | grad norm: 1.0 |",
        " iteration       5/      10 | lm loss: inf | grad norm: 1.0 |",
    ],
    "exception": ["KeyError: 'input_ids'", "[rank3]: AssertionError"],
    "torch": ["[rank2]: torch.AcceleratorError: CUDA error: unspecified launch failure"],
}


def named(user: User, lines: dict[str, list[str]], *signals: str) -> list[tuple[str, str, str]]:
    """Of lines of each type those that are named otherwise, with the type and what they are named."""
    found = [(kind, line, user.scan(f"{line}\n", *signals)["error_type"]) for kind in lines for line in lines[kind]]
    return [each for each in found if each[0] != each[2]]


def test_each_type_is_detected_and_categorized_by_the_recommended_monitoring(user: User) -> None:
    assert named(user, LINES, "megatron_production") == []


@pytest.mark.xfail(strict=True, raises=AssertionError, reason="megatron_production does not look for watchdog_timeout")
def test_watchdog_timeout_is_detected_by_the_recommended_monitoring(user: User) -> None:
    lines = {"watchdog_timeout": ["Watchdog has timed out", "Heartbeat monitor timed out!"]}
    assert [(kind, line) for kind, line, name in named(user, lines, "megatron_production") if name != "hang"] == []


def test_watchdog_timeout_is_detected_by_stall_detection(user: User) -> None:
    lines = {"watchdog_timeout": ["Watchdog has timed out", "Heartbeat monitor timed out!"]}
    assert named(user, lines, "megatron_stall_detection") == []


def test_what_slurm_does_to_a_job_is_categorized_by_its_lines_in_the_log(user: User) -> None:
    cancelled = user.scan("slurmstepd: error: *** JOB 4711 ON nid001 CANCELLED AT 2027-01-05T10:00:00 ***\n")
    assert (cancelled["error_type"], cancelled["subsystem"]) == ("cancelled", "scheduler")
    failed = user.scan("slurmstepd: error: execve(): train: No such file or directory\n")
    assert (failed["error_type"], failed["subsystem"]) == ("slurm_failure", "scheduler")


def test_each_restartable_type_is_restarted_by_the_recommended_policy_and_no_other() -> None:
    assert {*RESTARTABLE, "cancelled"} == set(ERROR_TYPES)
    assert {kind: restarts("megatron_transient", "crash", kind) for kind in RESTARTABLE} == RESTARTABLE


def test_each_type_may_be_named_in_a_policy(user: User) -> None:
    kinds = [kind for kind in ERROR_TYPES if kind != "cancelled"]
    listed = user.file(
        "mine.yaml",
        f"class_name: SelectiveRestartPolicy\ndefault_action: stop\nrestart_on_error_types: [{', '.join(kinds)}]\n",
    )
    assert [kind for kind in kinds if not restarts(listed, "crash", kind)] == []
    assert user.check_policy(listed)[0] == 0
    assert "mine.yaml" not in user.said


def test_cancelled_in_a_policy_is_accepted_and_a_warning_says_that_a_users_own_cancel_is_left(user: User) -> None:
    listed = user.file("mine.yaml", "class_name: SelectiveRestartPolicy\nrestart_on_error_types: [cancelled]\n")
    status, said = user.check_policy(listed)
    assert status == 0
    assert "cancelled" in said


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="the first table of the migration page is silent about a cancelled job"
)
def test_cancelled_differs_on_purpose_and_the_first_table_of_the_migration_page_says_so() -> None:
    table = re.search(r"(?:^\|.*\n)+", _MIGRATION.read_text(encoding="utf-8"), re.MULTILINE)
    rows = table.group().splitlines() if table else []
    assert [row for row in rows if "`cancelled`" in row and "scancel" in row], rows
