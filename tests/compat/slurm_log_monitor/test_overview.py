"""Log-based monitoring, selective restart policies, signal extraction: in one process, as that tool was."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trainwarden.cli import main

if TYPE_CHECKING:
    from tests.compat.slurm_log_monitor.user import User

pytestmark = pytest.mark.seed("Monitoring and Automatic Restart", "Overview")

LOG = """\
 iteration     2001/  500000 | consumed samples: 4098048 | elapsed time per iteration (ms): 2411.7 | lm loss: 2.61E+00 |
nid001:211:318 [3] NCCL ERROR socket setup failed on eth0
"""


def test_log_based_monitoring_and_signal_extraction_from_a_slurm_log(user: User) -> None:
    found = user.scan(LOG, "megatron_production")
    assert found["error_type"] == "nccl"
    assert found["evidence"][0] == {"line": 2, "text": "nid001:211:318 [3] NCCL ERROR socket setup failed on eth0"}
    assert found["fields"] == {"message": "NCCL ERROR socket setup failed on eth0"}
    progress = found["progress"]
    assert (progress["step"], progress["total_steps"], progress["loss"]) == (2001, 500000, 2.61)


def test_a_selective_restart_policy_decides_upon_what_the_log_shows(user: User) -> None:
    assert user.replay(LOG, "megatron_transient")["now"] == "restart"
    oom = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.50 GiB. GPU 2 has a total capacity\n"
    assert user.replay(oom, "megatron_transient")["now"] == "none"


@pytest.mark.xfail(
    strict=True, raises=AssertionError, reason="no single command watches, judges, restarts and sends messages"
)
@pytest.mark.parametrize("scheduler", ["slurm", "ray"])
def test_one_process_watches_judges_and_restarts(scheduler: str) -> None:
    try:
        status = main([scheduler, "guard", "--help"])
    except SystemExit as ended:
        status = int(ended.code or 0)
    assert status == 0
