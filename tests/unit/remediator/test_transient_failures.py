"""The default policy over the whole taxonomy: transient failures come back, all others wait for a person."""

from __future__ import annotations

from pathlib import Path

from tests.offenders import assert_none
from trainwarden.taxonomy import FAILURES
from trainwarden_remediator.decide.decide import (
    AlertedFailure,
    Circumstances,
    Nothing,
    RestartElsewhere,
    StopAndPage,
    decide,
)
from trainwarden_remediator.decide.verdict import Wait
from trainwarden_remediator.incidents.history import History
from trainwarden_remediator.incidents.incident import Action
from trainwarden_remediator.policies.policy import load_policy

POLICY = load_policy("megatron_transient")
# What is restarted wherever it comes to run: the network, other nodes, and ends from outside.
TRANSIENT = frozenset(
    (
        *("nccl_watchdog_timeout", "nccl_watchdog_stuck", "deadlock", "nccl_remote_closed", "nccl_async_fatal"),
        *("nccl_system", "rendezvous", "store_timeout", "peer_reset", "peer_timeout", "nccl_net_ib", "efa_fabric"),
        *("ib_flap", "hub_network", "storage_io", "ckpt_save_failure", "data_worker_died", "killed", "terminated"),
        *("node_fail", "ray_node_died", "ray_worker_died", "straggler", "prolog_failed", "slurm_failure"),
        *("stall", "startup_hang", "livelock", "heartbeat_lost"),
    )
)
HARDWARE = frozenset(("gpu_ecc", "gpu_lost", "nvlink", "amdgpu_reset", "sdc_suspect", "gsp", "driver_setup"))


def _crash(slug: str) -> AlertedFailure:
    known = FAILURES[slug]
    return AlertedFailure("crash", known.error_type, known.subsystem, slug)


def test_only_transient_failures_are_restarted() -> None:
    def wanted(slug: str) -> Action:
        return Action.RESTART if slug in TRANSIENT else Action.ESCALATE if slug in HARDWARE else Action.NONE

    decisions = {slug: decide(_crash(slug), History({}), POLICY, 0.0) for slug in sorted(FAILURES)}
    assert not any(isinstance(each, Wait) for each in decisions.values())
    assert_none(
        f"{slug}: {decision}"
        for slug, decision in decisions.items()
        if not isinstance(decision, Wait) and decision.action is not wanted(slug)
    )


def test_what_needs_a_change_by_a_person_is_restarted_by_no_careful_policy() -> None:
    slugs = [
        slug for slug, known in FAILURES.items() if known.action == "stop" and known.fault in {"user", "configuration"}
    ]
    assert len(slugs) > 10
    assert_none(
        f"{slug}: {name}: {decision}"
        for slug in slugs
        for name in ("megatron_transient", "megatron_conservative")
        if not isinstance(decision := decide(_crash(slug), History({}), load_policy(name), 0.0), Nothing)
    )


def test_a_defect_of_a_node_is_restarted_only_away_from_it() -> None:
    around = Circumstances(suspects={"n7": "TrainGpuLost"}, cluster_nodes=100)
    for slug in sorted(HARDWARE):
        decision = decide(_crash(slug), History({}), POLICY, 0.0, around)
        assert isinstance(decision, RestartElsewhere), slug
        assert list(decision.exclude_nodes) == ["n7"], slug
        unknown = decide(_crash(slug), History({}), POLICY, 0.0)
        assert isinstance(unknown, StopAndPage), slug
        assert "no evidence of which" in unknown.reason, slug


def test_a_policy_that_avoids_no_nodes_restarts_no_defect_of_one(tmp_path: Path) -> None:
    rule = "{class_name: SelectiveRestartPolicy, restart_elsewhere_on_error_types: [gpu_hardware]}"
    (tmp_path / "mine.yaml").write_text(f"policies: [{{mode: crash, implementation: {rule}}}]\n", encoding="utf-8")
    around = Circumstances(suspects={"n7": "TrainGpuLost"}, cluster_nodes=100)
    policy = load_policy(str(tmp_path / "mine.yaml"))
    decision = decide(_crash("gpu_lost"), History({}), policy, 0.0, around)
    assert isinstance(decision, StopAndPage)
    assert "the policy excludes no nodes (limits: exclude_nodes), such as n7" in decision.reason
    [warning] = policy.warnings()
    assert "restart_elsewhere_on_error_types restarts nothing without limits: exclude_nodes" in warning
