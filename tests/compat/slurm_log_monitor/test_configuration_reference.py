"""The two schemas: each key, each class, each value of a list."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.request import urlopen

import pytest
import yaml

from tests.compat.slurm_log_monitor.decisions import ERROR_TYPES, restarts, restarts_in_all
from tests.compat.slurm_log_monitor.user import until
from trainwarden.record.clock import to_iso
from trainwarden.stack.ports import free_ports

if TYPE_CHECKING:
    from tests.compat.slurm_log_monitor.user import User

pytestmark = pytest.mark.seed("Monitoring and Automatic Restart", "Configuration Reference")

_RULES = Path(__file__).resolve().parents[3] / "rules/alerts/run_parts.yml"
MONITORING = r"""
class_name: SlurmLogMonitor
poll_interval_seconds: 180           # how often the log is read
check_interval_seconds: 120          # how often silence is looked for
inactivity_threshold_seconds: 1200   # silence that is a stall

log_signals:
  - name: card_lost
    pattern: 'card (?P<card>\d+) was lost'
    pattern_type: regex
    state:
      class_name: CrashState
    actions:
      - class_name: ErrorNoteAction
        note: card
    metadata:
      error_type: hang
      subsystem: cuda
      severity: critical
    extract_groups:
      index: card
  - name: all_done
    pattern: 'all (?P<steps>\d+) steps done'
    pattern_type: regex
    state:
      class_name: SuccessState
    actions:
      - class_name: ExecutionAction
        command: [/bin/touch, DONE]
    extract_groups:
      steps: steps
  - name: standing
    pattern: 'no step since'
    pattern_type: regex
    state:
      class_name: StalledState
    actions:
      - class_name: RestartAction
        note: stood
    metadata:
      error_type: nccl
      subsystem: distributed
      severity: error
  - name: late
    pattern: 'gave up waiting'
    pattern_type: regex
    state:
      class_name: TimeoutState
    actions:
      - class_name: TerminationAction
        note: waited
    metadata:
      severity: warning
"""
LINES = "card 7 was lost\nall 9000 steps done\nno step since 10:00\ngave up waiting\n"
POLICY = """
class_name: SelectiveRestartPolicy
max_retries: 3
default_action: {default}

# one is enough
restart_on_error_types: [hang, nccl]
restart_on_subsystems: [distributed]
restart_on_signals: [cuda_hang]

# none of these
exclude_error_types: [oom, exception]
"""


def monitoring(user: User, text: str = MONITORING) -> Path:
    return user.file("runs/mine.yaml", text.replace("DONE", f"{user.folder}/done"))


def record(user: User, signals: Path, log: str = "") -> Path:
    """The record of a run that goes on, with its log; returns its folder."""
    run = user.folder / "runs/llama"
    (run / "logs").mkdir(parents=True, exist_ok=True)
    began = to_iso(time.time() - 60)
    document = {
        "run_id": "llama",
        "status": "running",
        "phase": "training",
        "last_update": to_iso(time.time()),
        "instance_id": "n1",
        "version": 1,
        "attempt": 0,
        "attempt_key": "slurm:4711:0",
        "job_id": "4711",
        "scheduler": "slurm",
        "attempt_start_time": began,
        "start_time": began,
        "signals": str(signals),
    }
    (run / "metadata.json").write_text(json.dumps(document), encoding="utf-8")
    (run / "events.jsonl").touch()
    with (run / "logs/training_log_latest.txt").open("a", encoding="utf-8") as file:
        file.write(log)
    return run


def test_every_key_of_the_monitoring_schema_is_read_without_a_warning(user: User) -> None:
    mine = monitoring(user)
    user.scan("nothing\n", mine)
    # A command runs only where the configuration of `trainwarden actions` has it, which is said.
    [warning] = user.said.splitlines()
    assert "ExecutionAction" in warning
    user.scan("nothing\n", monitoring(user, MONITORING.replace("        command: [/bin/touch, DONE]\n", "")))


def test_error_type_subsystem_severity_and_groups_are_found_with_the_signal(user: User) -> None:
    mine = monitoring(user)
    keys = ("signal", "error_type", "subsystem", "severity", "fields")
    found = {line: [user.scan(f"{line}\n", mine)[key] for key in keys] for line in LINES.splitlines()}
    assert found == {
        "card 7 was lost": ["card_lost", "hang", "cuda", "critical", {"index": "7"}],
        "all 9000 steps done": [None, "none", None, None, {}],
        "no step since 10:00": ["standing", "nccl", "distributed", "error", {}],
        "gave up waiting": ["late", "time_limit", None, "warning", {}],
    }


@pytest.mark.process
def test_the_inactivity_threshold_is_how_long_the_log_of_the_run_may_be_silent(user: User) -> None:
    page = user.exported(monitoring(user), "nothing\n")
    assert page.value("training_log_silence_threshold_seconds", run_id="llama") == 1200


@pytest.mark.process
def test_each_state_is_a_failure_mode_for_the_policy_while_the_job_goes_on(user: User) -> None:
    record(user, monitoring(user), LINES)
    page = user.look("--collector.runs.scope=all")
    stated = {each["signal"]: each["state"] for each, _ in page.labelled("training_log_state_timestamp_seconds")}
    assert stated == {"card_lost": "crash", "all_done": "success", "standing": "stall", "late": "timeout"}
    rules = yaml.safe_load(_RULES.read_text(encoding="utf-8"))
    alerts = [rule for group in rules["groups"] for rule in group["rules"] if rule.get("alert") == "TrainRunSignalled"]
    modes = {rule["labels"]["failure_mode"]: rule for rule in alerts}
    assert set(modes) == set(stated.values())
    assert [mode for mode, rule in modes.items() if f'state="{mode}"' not in rule["expr"]] == []
    assert [mode for mode, rule in modes.items() if rule["labels"]["remediate"] != "true"] == ["success"]


@pytest.mark.process
def test_each_action_is_carried_out_and_none_of_them_restarts_or_ends_the_job(user: User) -> None:
    mine = monitoring(user)
    run = record(user, mine)
    actions = f"actions:\n  finish: {{command: [/bin/touch, {user.folder}/done]}}\n"
    configuration = user.file("actions.yml", f"runs_dir: {user.folder}/runs\nsignals: {mine}\n{actions}")
    for each in (configuration, mine):
        each.chmod(0o600)
    command = [sys.executable, "-m", "trainwarden", "actions", f"--config={configuration}", "--once", "--allow-root"]
    command.append(f"--state-dir={user.folder}/actions")
    for log in ("", LINES):
        record(user, mine, log)
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    events = [json.loads(line) for line in (run / "events.jsonl").read_text(encoding="utf-8").splitlines()]
    noted = {each["data"]["signal"]: each["data"] for each in events if each["event_type"] == "signal_noted"}
    keys = ("actions", "note", "severity")
    assert {name: [data.get(key) for key in keys] for name, data in noted.items()} == {
        "card_lost": [["ErrorNoteAction"], "card", "critical"],
        "standing": [["RestartAction"], "stood", "error"],
        "late": [["TerminationAction"], "waited", "warning"],
    }
    assert noted["card_lost"]["fields"]["index"] == "7"
    assert (user.folder / "done").exists()
    assert json.loads((run / "metadata.json").read_text(encoding="utf-8"))["status"] == "running"


@pytest.mark.process
@pytest.mark.xfail(strict=True, raises=AssertionError, reason="the exporter reads a signal file at its start alone")
def test_an_edited_signal_file_is_read_again_on_sighup(user: User) -> None:
    mine, log = monitoring(user), user.file("logs/llama.out", "card 7 was lost\n")
    [port] = free_ports(1)
    flags = (
        f"web.listen-address: ['127.0.0.1:{port}']\ncollector:\n  disable-defaults: true\n  logs:\n    enabled: true\n"
    )
    flags += f"    interval: 100ms\n    signals: {mine}\n    path: ['{user.folder}/logs/{{run_id}}.out']\n"
    flags += f"    state: {user.folder}/state\n  runs: {{enabled: true, path: {user.folder}/runs}}\n"
    command = [sys.executable, "-m", "trainwarden_exporter", f"--config.file={user.file('exporter.yml', flags)}"]
    said = user.folder / "exporter.log"
    with said.open("wb") as output:
        exporter = subprocess.Popen(command, stdout=output, stderr=output)

    def page() -> str:
        try:
            with urlopen(f"http://127.0.0.1:{port}/metrics", timeout=60) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def count(name: str) -> bool:
        return f'run_id="llama",signal="{name}"' in page()

    try:
        until(lambda: count("card_lost"), lambda: said.read_text(encoding="utf-8"))
        again = "  - name: fan_stopped\n    pattern: 'fan stopped'\n    state: {class_name: CrashState}\n"
        mine.write_text(mine.read_text(encoding="utf-8") + again, encoding="utf-8")
        os.kill(exporter.pid, signal.SIGHUP)
        until(lambda: "read again" in said.read_text(encoding="utf-8"), "the answer to the signal")
        with log.open("a", encoding="utf-8") as file:
            file.write("fan stopped\nno step since 10:00\n")
        # What comes after the new signal in the same file is found: so the line before it was searched.
        until(lambda: 'signal="standing",error_type="nccl",role="root"} 1' in page(), page)
        assert count("fan_stopped")
        assert "mine.yaml" in said.read_text(encoding="utf-8")
    finally:
        exporter.terminate()
        exporter.wait(60)


def test_every_key_of_the_restart_policy_schema_is_read(user: User) -> None:
    """A file of one class holds for every failure mode but success."""
    mine = user.file("config/restart/mine.yaml", POLICY.format(default="stop"))
    status, said = user.check_policy(mine)
    assert (status, said.splitlines()) == (
        0,
        [f"{mode}: SelectiveRestartPolicy, at most 3" for mode in ("crash", "stall", "timeout")],
    )
    assert [restarts_in_all(mine, mode, "hang") for mode in ("crash", "stall", "timeout")] == [3, 3, 3]
    assert not restarts(mine, "success", "hang")


def test_any_list_that_matches_restarts_and_an_exclusion_never(user: User) -> None:
    stop = user.file("stop.yaml", POLICY.format(default="stop"))
    restart = user.file("restart.yaml", POLICY.format(default="restart"))
    cells: dict[str, tuple[str, dict[str, str], bool, bool]] = {
        "by its type": ("nccl", {}, True, True),
        "by its subsystem": ("license", {"subsystem": "distributed"}, True, True),
        "by its signal": ("hang", {"signal": "cuda_hang"}, True, True),
        "excluded": ("oom", {}, False, False),
        "excluded, and of a subsystem that is listed": ("oom", {"subsystem": "distributed"}, False, False),
        "by no list": ("license", {}, False, True),
    }
    found = {
        name: (kind, more, restarts(stop, "crash", kind, **more), restarts(restart, "crash", kind, **more))
        for name, (kind, more, _, _) in cells.items()
    }
    assert found == cells


def test_a_signal_of_the_users_own_file_is_restarted_by_its_name(user: User) -> None:
    mine = user.file("mine.yaml", "class_name: SelectiveRestartPolicy\nrestart_on_signals: [card_lost]\n")
    assert restarts(mine, "crash", "license", signal="card_lost")
    assert not restarts(mine, "crash", "license", signal="late")


def test_every_name_of_an_error_type_a_subsystem_and_a_signal_is_known_to_a_policy(user: User) -> None:
    lists = {
        "restart_on_error_types": [
            kind for kind in ERROR_TYPES if kind not in {"oom", "exception", "torch", "cancelled"}
        ],
        "exclude_error_types": ["oom", "exception", "torch"],
        "restart_on_subsystems": ["distributed", "slurm", "cuda", "cpu"],
        "restart_on_signals": [
            *("cuda_hang", "deadlock", "nccl_error", "nccl_timeout", "nccl_collective_fail", "communication_error"),
            *("processgroup_timeout", "watchdog_timeout", "loss_nan", "gradient_nan", "cuda_oom", "cpu_oom"),
            *("torch_error", "python_exception"),
        ],
    }
    mine = user.file("mine.yaml", yaml.safe_dump({"class_name": "SelectiveRestartPolicy", **lists}))
    status, said = user.check_policy(mine)
    assert (status, [line for line in said.splitlines() if "mine.yaml" in line]) == (0, [])
