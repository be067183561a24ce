"""What the page recommends, and that it can be followed."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from tests.compat.slurm_log_monitor.decisions import ERROR_TYPES, decided, restarts, restarts_in_all
from trainwarden_remediator.incidents.incident import Action

if TYPE_CHECKING:
    from tests.compat.slurm_log_monitor.user import User

pytestmark = pytest.mark.seed("Monitoring and Automatic Restart", "Best Practices")

SAVED = "  successfully saved checkpoint from iteration    2000 to {path} [ t 1/2, p 1/1 ]\n"
NOTES = """\
log_signals:
  - name: seats
    pattern: 'license server refused'
    state: {class_name: CrashState}
    actions: [{class_name: RestartAction, note: seats}]
    metadata: {error_type: license}
"""


def test_start_conservative_the_two_recommended_policies_restart_less_than_the_aggressive_one() -> None:
    kinds = (*ERROR_TYPES, "unknown", "storage", "node_failure")
    restarted = {
        policy: {kind for kind in kinds if restarts(policy, "crash", kind)}
        for policy in ("megatron_conservative", "megatron_transient", "megatron_aggressive")
    }
    assert restarted["megatron_conservative"] < restarted["megatron_transient"] < restarted["megatron_aggressive"]


def test_monitor_first_a_policy_that_restarts_nothing_still_shows_what_failed_and_what_another_would_do(
    user: User,
) -> None:
    log = "nid001:211:318 [3] NCCL ERROR socket setup failed on eth0\n"
    shown = {policy: user.replay(log, policy) for policy in ("none", "megatron_transient")}
    assert {policy: each["now"] for policy, each in shown.items()} == {"none": "none", "megatron_transient": "restart"}
    assert {each["error_type"] for each in shown.values()} == {"nccl"}


def test_check_logs_the_extracted_metadata_can_be_reviewed(user: User) -> None:
    found = user.scan("NCCL operation ncclAllGather failed: remote is gone\n", "megatron_production")
    keys = ("signal", "error_type", "subsystem", "severity", "fields")
    expected = ["nccl_collective_fail", "nccl_collective", "distributed", "critical", {"op": "ncclAllGather"}]
    assert [found[key] for key in keys] == expected


def test_set_max_retries_each_class_ends_its_restarts_there_and_has_a_limit_without_it(user: User) -> None:
    found = {}
    for name in ("AlwaysRestartPolicy", "SelectiveRestartPolicy"):
        listed = "restart_on_error_types: [nccl]\n" if name == "SelectiveRestartPolicy" else ""
        for limit in (2, 5, None):
            retries = f"max_retries: {limit}\n" if limit else ""
            policy = user.file("mine.yaml", f"class_name: {name}\n{retries}{listed}")
            found[name, limit] = restarts_in_all(policy, "crash", "nccl")
            assert decided(policy, "crash", "nccl", used=9).action is Action.ESCALATE, "a person is asked then"
    assert found == {(name, limit): limit or 3 for name, limit in found}


def test_exclude_permanent_errors_no_selective_policy_restarts_memory_or_code(user: User) -> None:
    policies = ("megatron_transient", "megatron_conservative", "megatron_aggressive")
    permanent = ("oom", "host_oom", "exception", "torch")
    assert [(name, kind) for name in policies for kind in permanent if restarts(name, "crash", kind)] == []
    oom = user.file(
        "mine.yaml", "class_name: SelectiveRestartPolicy\ndefault_action: restart\nexclude_error_types: [oom]\n"
    )
    assert [restarts(oom, "crash", kind) for kind in ("oom", "host_oom", "nccl")] == [False, False, True]


class Watched:
    """A run, its log, and `trainwarden actions` beside it, which looks once when it is asked to."""

    def __init__(self, user: User, configuration: str) -> None:
        self.user = user
        self.run = user.folder / "runs/llama"
        (self.run / "logs").mkdir(parents=True)
        (self.run / "events.jsonl").touch()
        self.configuration = user.file("actions.yml", f"runs_dir: {user.folder}/runs\n{configuration}")
        self.configuration.chmod(0o600)
        self.look()

    def look(self, log: str = "") -> None:
        with (self.run / "logs/training_log_latest.txt").open("a", encoding="utf-8") as file:
            file.write(log)
        flags = [f"--config={self.configuration}", f"--state-dir={self.user.folder}/state", "--once", "--allow-root"]
        command = [sys.executable, "-m", "trainwarden", "actions", *flags]
        subprocess.run(command, check=True, capture_output=True, timeout=120)


@pytest.mark.process
def test_automate_evaluations_the_packaged_preset_enqueues_a_command_for_each_checkpoint(user: User) -> None:
    evaluations = user.folder / "evaluations"
    evaluate = user.file("evaluate.sh", f'#!/bin/sh\necho "$1 $2" >> {evaluations}\n')
    evaluate.chmod(0o755)
    watched = Watched(
        user,
        "signals: megatron_checkpoint_eval\n"
        f'actions:\n  evaluate:\n    command: [{evaluate}, "{{path}}", "{{iteration}}"]\n'
        f"    parameters: {{path: {{type: path, under: [{user.folder}]}}, iteration: {{type: int}}}}\n",
    )
    saved = [user.folder / f"iter_{number}" for number in (1, 2)]
    for each in saved:
        watched.look(SAVED.format(path=each))
    assert evaluations.read_text(encoding="utf-8").splitlines() == [f"{each} 2000" for each in saved]


def test_automate_evaluations_the_preset_finds_all_that_production_finds(user: User) -> None:
    oom = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.50 GiB. GPU 2 has a total capacity of 79 GiB\n"
    )
    watchdog = "[Rank 5] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=431, Timeout(ms)=600000)\n"
    chosen = user.file("config/experiment.yaml", "defaults:\n  - /monitoring: megatron_checkpoint_eval\n")
    found = [user.scan(log, chosen)["error_type"] for log in (oom, watchdog, SAVED.format(path="/ckpt"))]
    assert found == ["oom", "nccl_timeout", "none"]


@pytest.mark.process
def test_separate_policy_from_actions_a_restart_action_is_a_note_and_the_policy_decides(user: User) -> None:
    mine = user.file("mine.yaml", NOTES)
    mine.chmod(0o600)
    watched = Watched(user, f"signals: {mine}\nactions: {{}}\n")
    watched.look("license server refused: no seats\n")
    [event] = [json.loads(line) for line in (watched.run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    assert event["event_type"] == "signal_noted"
    noted = {key: event["data"][key] for key in ("signal", "actions", "note", "error_type")}
    assert noted == {"signal": "seats", "actions": ["RestartAction"], "note": "seats", "error_type": "license"}
    assert "policy" in event["data"]["decided_by"]
    assert not restarts("megatron_transient", "crash", "license")
