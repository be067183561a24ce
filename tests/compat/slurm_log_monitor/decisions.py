"""What a policy decides about one failure: the decision alone, without a cluster."""

from __future__ import annotations

from itertools import count
from pathlib import Path

from trainwarden_remediator.decide.decide import AlertedFailure, Nothing, Restart, StopAndPage, decide
from trainwarden_remediator.decide.verdict import Wait
from trainwarden_remediator.incidents.history import History
from trainwarden_remediator.incidents.incident import Action
from trainwarden_remediator.policies.policy import load_policy

# The error types of the monitor's page.
ERROR_TYPES = (
    *("oom", "hang", "deadlock", "nccl", "nccl_timeout", "distributed_timeout", "communication", "watchdog_timeout"),
    *("cancelled", "slurm_failure", "numerical_instability", "exception", "torch"),
)


def decided(
    policy: str | Path,
    mode: str,
    error_type: str | None = None,
    *,
    used: int = 0,
    subsystem: str | None = None,
    signal: str | None = None,
) -> Restart | StopAndPage | Nothing:
    """The decision about a failure of a run that was restarted `used` times after such a failure mode."""
    failure = AlertedFailure(mode, error_type, subsystem, signal)
    decision = decide(failure, History({mode: used}), load_policy(str(policy)), 0.0)
    assert not isinstance(decision, Wait)
    return decision


def restarts(policy: str | Path, mode: str, error_type: str | None = None, **more: str) -> bool:
    """Whether the first failure of this kind leads to a restart."""
    return decided(policy, mode, error_type, subsystem=more.get("subsystem"), signal=more.get("signal")).action is (
        Action.RESTART
    )


def restarts_in_all(policy: str | Path, mode: str, error_type: str | None = None) -> int:
    """How often a run is restarted that fails in this way again and again."""
    return next(used for used in count() if decided(policy, mode, error_type, used=used).action is not Action.RESTART)
