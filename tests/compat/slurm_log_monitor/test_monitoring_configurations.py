"""The shipped packs: each row of a pack is a line that it finds, and the signal by which it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.compat.slurm_log_monitor.user import User

pytestmark = [
    pytest.mark.seed("Monitoring and Automatic Restart", "Monitoring Configurations"),
    pytest.mark.process,
]

ITERATION = (
    " iteration     2001/  500000 | consumed samples: 4098048 | elapsed time per iteration (ms): 2411.7 | "
    "learning rate: 1.2E-04 | lm loss: %s | loss scale: 1.0 | grad norm: %s |"
)
WATCHDOG = (
    "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=431, OpType=ALLGATHER, "
    "Timeout(ms)=600000) ran for 600021 milliseconds before timing out."
)
# Row of the page: the line, and the signal that finds it.
BASIC = {
    "validation completion": (
        " validation loss at iteration 2000 | lm loss value: 2.731E+00 | lm loss PPL: 1.535E+01 |",
        "validation_complete",
    ),
    "checkpoint saves": (
        "  successfully saved checkpoint from iteration    2000 to /scratch/ckpt [ t 1/2, p 1/1 ]",
        "checkpoint_saved",
    ),
    "iteration updates with loss values": (ITERATION % ("2.61E+00", "0.41"), "training_iteration"),
    "OOM": (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.50 GiB. GPU 2 has a total capacity of 79 GiB",
        "cuda_oom",
    ),
    "torch errors": ("[rank2]: torch.AcceleratorError: CUDA error: unspecified launch failure", "torch_error"),
    "Python exceptions": ("KeyError: 'input_ids'", "python_exception"),
}
NCCL = {
    "NCCL ERROR": ("nid001:211:318 [3] NCCL ERROR socket setup failed on eth0", "nccl_error"),
    "NCCL WARN": ("nid001:211:318 [3] misc/socket.cc:49 NCCL WARN Call to bind failed", "nccl_warning"),
    "NCCL timeouts": (WATCHDOG, "nccl_timeout"),
    "communication errors": ("RuntimeError: [gloo] Connection reset by peer", "communication_error"),
    "collective operation failures": ("NCCL operation ncclAllGather failed: remote is gone", "nccl_collective_fail"),
}
HANGS = {
    "CUDA hang": ("RuntimeError: CUDA error: the launch timed out and was terminated", "cuda_hang"),
    "deadlock": ("Deadlock detected between ranks 0 and 5", "deadlock"),
    "ProcessGroup timeouts": (
        "RuntimeError: Timed out initializing process group in store based barrier on rank: 3",
        "processgroup_timeout",
    ),
}
STALL = {
    **HANGS,
    "watchdog": ("Watchdog has timed out", "watchdog_timeout"),
    "gradient NaN": (ITERATION % ("2.61E+00", "nan"), "gradient_invalid"),
    "loss NaN": (ITERATION % ("nan", "0.41"), "loss_invalid"),
}
PRODUCTION = {
    **NCCL,
    **HANGS,
    "CPU OOM": ("slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0.", "cpu_oom"),
    "NaN in gradients": (ITERATION % ("2.61E+00", "nan"), "gradient_nan"),
    "Inf in gradients": (ITERATION % ("2.61E+00", "inf"), "gradient_nan"),
    "NaN in loss": (ITERATION % ("nan", "0.41"), "loss_nan"),
    "Inf in loss": (ITERATION % ("inf", "0.41"), "loss_nan"),
}
_HEALTHY = "".join(
    [
        "nid001:211:318 [3] NCCL INFO Bootstrap : Using eth0:10.1.2.3<0>\n",
        "nid001:211:318 [3] NCCL INFO NET/Plugin : No plugin found, using internal implementation\n",
        "nid001:211:318 [3] NCCL INFO Channel 00/02 : 0 1 2 3\n",
        "nid001:211:318 [3] NCCL INFO comm 0x5581 rank 3 nranks 4 cudaDev 3 - Init COMPLETE\n",
        *(ITERATION.replace("2001", str(2001 + each)) % ("2.61E+00", "0.41") + "\n" for each in range(5)),
        BASIC["validation completion"][0] + "\n",
        BASIC["checkpoint saves"][0] + "\n",
    ]
)


def missed(user: User, pack: str, rows: dict[str, tuple[str, str]]) -> list[str]:
    """The rows whose line the pack does not find by its signal, each line in the log of a run of its own."""
    runs = {f"run-{number}": row for number, row in enumerate(rows)}
    for run_id, row in runs.items():
        user.file(f"logs/{run_id}.out", f"{rows[row][0]}\n")
    page = user.look(f"--collector.logs.path={user.folder}/logs/{{run_id}}.out", f"--collector.logs.signals={pack}")
    return [row for run_id, row in runs.items() if rows[row][1] not in page.signals(run_id)]


def test_megatron_basic_finds_success_progress_and_errors(user: User) -> None:
    assert missed(user, "megatron_basic", BASIC) == []


def test_megatron_nccl_extends_megatron_basic_with_nccl_debugging(user: User) -> None:
    assert missed(user, "megatron_nccl", {**BASIC, **NCCL}) == []


def test_megatron_stall_detection_extends_megatron_basic_with_hangs_and_nan(user: User) -> None:
    assert missed(user, "megatron_stall_detection", {**BASIC, **STALL}) == []


def test_megatron_production_combines_all_features(user: User) -> None:
    assert missed(user, "megatron_production", {**BASIC, **PRODUCTION}) == []


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="megatron_production leaves out the watchdog's signal of stall detection"
)
def test_megatron_production_finds_each_failure_that_the_packs_find_which_it_combines(user: User) -> None:
    lines = [line for line, _ in (*NCCL.values(), *STALL.values())]
    lines += ["Heartbeat monitor timed out!", "[PG 0 Rank 25] Heartbeat monitor timed out! Process will be terminated"]
    parts = ("megatron_nccl", "megatron_stall_detection")
    found = [line for line in lines if any(user.scan(line, part)["error_type"] != "none" for part in parts)]
    assert [line for line in found if user.scan(line, "megatron_production")["error_type"] == "none"] == []


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="a pack hides failures that the default judge finds in the same log"
)
def test_no_pack_sees_less_than_the_judge_that_is_built_in(user: User) -> None:
    lines = ["Heartbeat monitor timed out!", "slurmstepd: error: Detected 1 oom_kill event in StepId=4711.0."]
    packs = ("megatron_basic", "megatron_nccl", "megatron_stall_detection", "megatron_production")
    found = [line for line in lines if user.scan(line)["error_type"] != "none"]
    blind = [(pack, line) for pack in packs for line in found if user.scan(line, pack)["error_type"] == "none"]
    assert blind == []


def test_megatron_stall_detection_has_a_reduced_inactivity_threshold_of_15_minutes(user: User) -> None:
    usual, reduced = (
        user.exported(pack, _HEALTHY).value("training_log_silence_threshold_seconds", run_id="llama")
        for pack in ("megatron_basic", "megatron_stall_detection")
    )
    assert reduced == 15 * 60
    assert usual is not None
    assert usual > reduced


def test_a_healthy_log_with_nccl_debug_info_shows_no_failure_by_any_pack(user: User) -> None:
    packs = ("megatron_basic", "megatron_nccl", "megatron_stall_detection", "megatron_production")
    assert {pack: user.scan(_HEALTHY, pack)["error_type"] for pack in packs} == dict.fromkeys(packs, "none")


def test_iteration_updates_show_step_and_loss_on_the_page_of_the_run(user: User) -> None:
    page = user.exported("megatron_basic", _HEALTHY)
    assert page.value("training_step", run_id="llama") == 2005
    assert page.value("training_loss", run_id="llama") == 2.61
