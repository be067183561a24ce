"""Files as the page shows them: one that chooses monitoring and restarts, a policy of one's own, and no restarts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.compat.slurm_log_monitor.decisions import ERROR_TYPES, restarts, restarts_in_all
from trainwarden_remediator.policies.policy import load_policy

if TYPE_CHECKING:
    from tests.compat.slurm_log_monitor.user import User

pytestmark = pytest.mark.seed("Monitoring and Automatic Restart", "Usage Examples")

BASIC = """\
defaults:
  - /monitoring: megatron_production
  - /restart: megatron_transient
"""
MY_POLICY = """\
# config/restart/my_policy.yaml
policies:
  - mode: crash
    implementation:
      class_name: SelectiveRestartPolicy
      max_retries: 5
      default_action: stop

      # NCCL alone
      restart_on_error_types:
        - nccl
        - nccl_timeout

      # memory never
      exclude_error_types:
        - oom
"""
MONITOR_ONLY = """\
defaults:
  - /monitoring: megatron_production
  # nothing about restarts
"""
OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.50 GiB. GPU 2 has a total capacity of 79 GiB\n"
NCCL = "nid001:211:318 [3] NCCL ERROR socket setup failed on eth0\n"


def test_basic_usage_one_file_is_given_to_both(user: User) -> None:
    both = user.file("config/experiment.yaml", BASIC)
    assert user.scan(NCCL, both)["signal"] == "nccl_error"
    assert user.said == ""
    status, said = user.check_policy(both)
    assert (status, said.count("\n")) == (0, 4)
    assert dict(load_policy(str(both)).rules) == dict(load_policy("megatron_transient").rules)
    assert [user.replay(log, both)["now"] for log in (OOM, NCCL)] == ["none", "restart"]


def test_basic_usage_what_the_file_says_itself_comes_on_top(user: User) -> None:
    own = "  - _self_\ninactivity_threshold_seconds: 77\n" + MY_POLICY.replace("max_retries: 5", "max_retries: 9")
    own += "log_signals: [{name: luck, pattern: out of luck, state: {class_name: CrashState}}]\n"
    both = user.file("config/experiment.yaml", BASIC + own)
    assert user.scan("we are out of luck\n", both)["signal"] == "luck"
    assert user.scan(OOM, both)["signal"] == "cuda_oom"
    assert user.said == ""
    limits = [restarts_in_all(both, mode, "nccl") for mode in ("crash", "stall", "timeout")]
    assert limits == [9, 2, 1]


def test_custom_selective_policy(user: User) -> None:
    mine = user.file("config/restart/my_policy.yaml", MY_POLICY)
    assert user.check_policy(mine) == (0, "crash: SelectiveRestartPolicy, at most 5\n")
    assert {kind for kind in ERROR_TYPES if restarts(mine, "crash", kind)} == {"nccl", "nccl_timeout"}
    assert restarts_in_all(mine, "crash", "nccl") == 5
    assert [mode for mode in ("stall", "timeout", "success") if restarts(mine, mode, "nccl")] == []


def test_custom_selective_policy_is_chosen_by_its_name(user: User) -> None:
    user.file("config/restart/my_policy.yaml", MY_POLICY)
    chosen = user.file("config/experiment.yaml", BASIC.replace("megatron_transient", "my_policy"))
    assert restarts_in_all(chosen, "crash", "nccl") == 5
    assert not restarts(chosen, "crash", "hang")


def test_monitor_only_restarts_nothing_and_the_log_is_judged_all_the_same(user: User) -> None:
    watched = user.file("config/experiment.yaml", MONITOR_ONLY)
    status, said = user.check_policy(watched)
    assert status == 0
    assert "it names no policy" in said
    modes = ("crash", "stall", "timeout", "success")
    kinds = (*ERROR_TYPES, None)
    assert [(mode, kind) for mode in modes for kind in kinds if restarts(watched, mode, kind)] == []
    assert user.scan(NCCL, watched)["error_type"] == "nccl"
    assert user.replay(NCCL, watched)["now"] == "none"


def test_monitor_only_is_also_the_policy_none(user: User) -> None:
    modes = ("crash", "stall", "timeout", "success")
    names = ("none", "observe")
    assert [
        (name, mode, kind) for name in names for mode in modes for kind in ERROR_TYPES if restarts(name, mode, kind)
    ] == []
    assert user.replay(NCCL, "none")["now"] == "none"
