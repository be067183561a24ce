"""The file of `trainwarden slurm watch`: what it may hold, who may write it, and which rule is that of a job."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.offenders import assert_none, raised
from tests.unit.clients.slurm.commands import job_22_05
from trainwarden.clients.slurm.jobs import SlurmJob, read_job
from trainwarden.errors import UsageError
from trainwarden.jobs.configuration import JobsConfiguration, read_configuration
from trainwarden.jobs.slurm_run import run_id_of


def written(folder: Path, text: str) -> Path:
    """A file of this user that nobody else may write."""
    file = folder / "jobs.yml"
    file.write_text(text, encoding="utf-8")
    file.chmod(0o640)
    return file


def read(folder: Path, text: str) -> JobsConfiguration:
    """What a file of this text means."""
    return read_configuration(written(folder, text))


def job(**changes: Any) -> SlurmJob:
    """A running job without a mark."""
    return read_job(job_22_05(7, **{"comment": "", "account": "vision", **changes}))


def test_every_key_has_its_meaning(tmp_path: Path) -> None:
    signals = tmp_path / "mine.yaml"
    signals.write_text("inactivity_threshold_seconds: 77\nlog_signals: []\n")
    found = read(
        tmp_path,
        f"""\
runs_dir: /var/lib/runs
log_roots: [/scratch, /home]
mark: true
marked: false
grace: 7m
max_jobs: 50
jobs:
  - match: {{partition: [gpu*, a100], user: alice}}
    run_id: '%x'
    logs: [/scratch/%u/%x-%j.out]
    inactivity: 30m
    restart_stalls: true
    signals: {signals}
    policy: megatron_transient
    framework: megatron
    model: llama
  - match: {{name: 'debug-*'}}
    ignore: true
""",
    )
    assert (found.runs_dir, found.log_roots) == (Path("/var/lib/runs"), ("/scratch", "/home"))
    assert (found.mark, found.marked, found.grace, found.max_jobs) == (True, False, 420.0, 50)
    first, second = found.rules
    assert first.match == {"partition": ("gpu*", "a100"), "user": ("alice",)}
    assert (first.run_id, first.logs, first.inactivity) == ("%x", ("/scratch/%u/%x-%j.out",), 1800.0)
    assert (first.restart_stalls, first.signals, first.policy) == (True, str(signals), "megatron_transient")
    assert (first.framework, first.model) == ("megatron", "llama")
    assert second.ignore


def test_a_signal_file_says_how_long_a_log_may_stand_still(tmp_path: Path) -> None:
    signals = tmp_path / "mine.yaml"
    signals.write_text("inactivity_threshold_seconds: 77\nlog_signals: []\n")
    (rule,) = read(tmp_path, f"jobs: [{{match: {{name: x}}, signals: {signals}, restart_stalls: true}}]").rules
    assert (rule.inactivity, rule.restart_stalls) == (77.0, True)


MISTAKES = [
    ("job: []", ["job", "jobs"]),
    ("jobs: {partition: gpu}", ["jobs", "a list of rules"]),
    ("jobs: [{policy: x}]", ["match"]),
    ("jobs: [{match: {}}]", ["match", "patterns"]),
    ("jobs: [{match: {queue: gpu}}]", ["queue", "partition"]),
    ("jobs: [{match: {name: x}, inactivty: 5m}]", ["inactivty", "inactivity"]),
    ("jobs: [{match: {name: x}, inactivity: soon}]", ["inactivity", "'soon'"]),
    ("jobs: [{match: {name: x}, restart_stalls: true}]", ["restart_stalls", "inactivity beside it"]),
    ("jobs: [{match: {name: x}, restart_stalls: maybe}]", ["restart_stalls", "'maybe'"]),
    ("jobs: [{match: {name: x}, logs: [out/%j.log]}]", ["'out/%j.log'", "an absolute path"]),
    ("jobs: [{match: {name: x}, signals: mine.yaml}]", ["signals", "an absolute path"]),
    ("jobs: [{match: {name: x}, signals: /no/such/file.yaml}]", ["/no/such/file.yaml"]),
    ("jobs: [{match: {name: x}, run_id: '%x-%q'}]", ["run_id", "%q"]),
    ("jobs: [{match: {name: x}, policy: 'Restart all'}]", ["policy", "'Restart all'"]),
    ("log_roots: [scratch]", ["'scratch'", "an absolute path"]),
    ("runs_dir: runs", ["runs_dir", "an absolute path"]),
    ("max_jobs: 0", ["max_jobs", "1 to 100000"]),
    ("grace: -1m", ["grace"]),
]


def test_what_is_wrong_is_named(tmp_path: Path) -> None:
    def said(text: str) -> str:
        return raised(UsageError, lambda: read(tmp_path, text))

    found = [(text, named, said(text)) for text, named in MISTAKES]
    assert_none(
        f"{text}: no {word!r} in {message!r}" for text, named, message in found for word in named if word not in message
    )


@pytest.mark.parametrize("mode", [0o660, 0o606])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    file = written(tmp_path, "jobs: []")
    file.chmod(mode)
    with pytest.raises(UsageError, match=f"mode {mode:o}; expected a file of this user or root"):
        read_configuration(file)


def test_a_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = written(tmp_path, "jobs: []")
    if os.geteuid() == 0:
        os.chown(file, 65534, -1)
    else:
        monkeypatch.setattr("os.geteuid", lambda: file.stat().st_uid + 1)
    with pytest.raises(UsageError, match=f"uid {file.stat().st_uid}, mode 640"):
        read_configuration(file)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"absent\.yml: No such file"):
        read_configuration(tmp_path / "absent.yml")


@pytest.mark.parametrize(
    ("match", "fits"),
    [
        ("{partition: main}", True),
        ("{partition: 'ma*'}", True),
        ("{partition: Main}", False),
        ("{account: vision, user: alice}", True),
        ("{account: vision, user: bob}", False),
        ("{account: [speech, vis*]}", True),
        ("{name: 'tr?in'}", True),
        ("{comment: '*urgent*'}", True),
        ("{comment: urgent}", False),
    ],
)
def test_a_rule_fits_where_one_pattern_of_each_field_does(tmp_path: Path, match: str, fits: bool) -> None:
    found = read(tmp_path, f"jobs: [{{match: {match}}}]")
    assert (found.rule_of(job(comment="very urgent indeed")) is not None) == fits


def test_a_job_that_waits_in_several_partitions_is_matched_by_each(tmp_path: Path) -> None:
    found = read(tmp_path, "jobs: [{match: {partition: a100}}]")
    assert found.rule_of(job(partition="main,a100")) is not None


def test_the_first_rule_that_fits_counts(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        "jobs:\n"
        "  - {match: {name: 'debug-*'}, ignore: true}\n"
        "  - {match: {comment: '*trainwarden:prod-*'}, policy: megatron_transient}\n"
        "  - {match: {user: alice}, policy: alert_only}\n",
    )
    policies = {
        name: rule.policy if (rule := found.rule_of(each)) else None
        for name, each in {
            "debug": job(name="debug-1"),
            "marked": job(comment="trainwarden:prod-7"),
            "plain": job(),
            "other": job(user_name="bob"),
        }.items()
    }
    assert policies == {"debug": None, "marked": "megatron_transient", "plain": "alert_only", "other": None}


def test_marked_jobs_without_a_rule_are_runs_unless_they_are_not_to_be(tmp_path: Path) -> None:
    marked = job(comment="trainwarden:llama")
    assert read(tmp_path, "jobs: []").rule_of(marked) is not None
    assert read(tmp_path, "marked: false").rule_of(marked) is None
    assert read(tmp_path, "jobs: []").rule_of(job()) is None


def test_a_run_is_named_by_the_mark_and_else_by_the_rule(tmp_path: Path) -> None:
    (rule,) = read(tmp_path, "jobs: [{match: {user: alice}, run_id: '%u-%x'}]").rules
    task = {"array_job_id": 5, "array_task_id": 3}
    assert run_id_of(job(), rule) == "alice-train"
    assert run_id_of(job(comment="trainwarden:llama"), rule) == "llama"
    assert run_id_of(job(comment="trainwarden:llama", **task), rule) == "llama_3"
    assert run_id_of(job(comment="trainwarden:llama-%a", **task), rule) == "llama-3"
