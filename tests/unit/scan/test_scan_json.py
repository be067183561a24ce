"""What programs read from `trainwarden scan --format json`, and its exit status."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.scan.conftest import LATER, OOM, STEPS, Scanned

Scan = Callable[..., Scanned]
Write = Callable[..., Path]
KEYS = [
    "file", "error_type", "failure", "signal", "subsystem", "severity", "fault", "action", "suggestion", "fields",
    "evidence", "also", "progress",
]  # fmt: skip
PROGRESS = {
    "step", "total_steps", "loss", "learning_rate", "grad_norm", "tokens_per_second", "samples_per_second", "epoch",
    "step_time_seconds",
}  # fmt: skip


def test_a_failure_is_reported_with_its_evidence_and_how_far_the_run_was(scan: Scan, log: Write) -> None:
    path = log(STEPS + OOM + "srun: error: gpu-1: task 3: Exited with exit code 1\n")
    done = scan("--format", "json", path)
    (one,) = done.objects
    assert done.status == 1
    assert list(one) == KEYS
    assert (one["file"], one["error_type"], one["failure"]) == (str(path), "oom", "cuda_oom")
    assert one["severity"] == "critical"
    assert one["suggestion"]
    assert one["fields"]["allocation_size"] == "2.00 GiB"
    assert one["evidence"] == [{"line": 41, "text": OOM.strip()}]
    assert {"error_type": "exception", "signal": "slurm_task_exited", "line": 42} in one["also"]
    assert set(one["progress"]) == PROGRESS
    assert (one["progress"]["step"], one["progress"]["total_steps"], one["progress"]["loss"]) == (40, 5000, 2.004)


def test_a_healthy_log_has_the_same_keys_and_nothing_in_them(scan: Scan, log: Write) -> None:
    done = scan("--format", "json", log("all is well\n"))
    (one,) = done.objects
    assert done.status == 0
    assert list(one) == KEYS
    assert one["error_type"] == "none"
    assert (one["fields"], one["evidence"], one["also"], one["progress"]) == ({}, [], [], {})
    assert [one[key] for key in KEYS[2:9]] == [None] * 7


@cases(
    ("line", "error_type"),
    [
        ("slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO TIME LIMIT ***\n", "time_limit"),
        ("slurmstepd: error: *** JOB 12 ON n1 CANCELLED AT 2026-11-21T10:00:00 DUE TO PREEMPTION ***\n", "preempted"),
        ("slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED AT 2026-11-21T10:00:00 ***\n", "cancelled"),
    ],
)
def test_what_ended_the_run_from_outside_is_a_failure_found(scan: Scan, log: Write, line: str, error_type: str) -> None:
    done = scan("--format", "json", log(STEPS + line))
    assert (done.status, done.objects[0]["error_type"]) == (1, error_type)


def test_one_object_for_each_file_in_the_order_of_the_arguments_and_a_bad_file_beats_a_failure(
    scan: Scan, log: Write, tmp_path: Path
) -> None:
    bad, good = log(OOM, "bad"), log("fine\n", "good")
    done = scan("--format", "json", good, tmp_path / "absent", bad, tmp_path)
    assert done.status == 2
    assert [Path(one["file"]).name for one in done.objects] == ["good", "absent", "bad", tmp_path.name]
    assert [one["error_type"] for one in done.objects] == ["none", None, "oom", None]
    assert all(list(one) == KEYS for one in done.objects)
    assert "absent: No such file" in done.err
    assert "is a folder" in done.err


def test_a_file_is_named_as_it_was_typed(
    scan: Scan, log: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log("fine\n", "train.log")
    monkeypatch.chdir(tmp_path)
    assert [one["file"] for one in scan("--format", "json", "./train.log", "train.log").objects] == [
        "./train.log",
        "train.log",
    ]


def test_lines_are_counted_by_line_feeds_alone(scan: Scan, log: Write) -> None:
    bars = "".join(f"\r{step}%|##  | {step}/100 [00:01<00:09, 1.0it/s]" for step in range(50))
    (one,) = scan("--format", "json", log(f"first\n{bars}\nthird\n{OOM}")).objects
    assert one["evidence"][0]["line"] == 4


def test_what_the_training_got_over_is_no_failure_also_in_a_short_log(scan: Scan, log: Write) -> None:
    done = scan("--format", "json", log(STEPS + OOM + LATER))
    (one,) = done.objects
    assert (done.status, one["error_type"]) == (0, "none")
    assert "cuda_oom" in [other["signal"] for other in one["also"]]


def test_other_ranks_last_lines_after_a_failure_do_not_hide_it(scan: Scan, log: Write) -> None:
    late = "".join(LATER.splitlines(keepends=True)[:2])
    assert scan("--format", "json", log(STEPS + OOM + late)).status == 1


def test_nothing_but_objects_is_on_standard_output(scan: Scan, log: Write) -> None:
    done = scan("--format", "json", log(b"\x1b[31mCUDA out of memory\x1b[0m \xff\xfe\x00\xe2\x80\xa8\n"))
    assert len(done.out.splitlines()) == done.out.count("\n") == 1
    assert "\x1b" not in done.out
    assert json.loads(done.out)["error_type"] == "oom"


def test_users_packs_add_up_and_grade_failures(scan: Scan, log: Write, tmp_path: Path) -> None:
    for name, severity in (("one", "fatal"), ("two", "info")):
        (tmp_path / f"{name}.yaml").write_text(
            f"log_signals: [{{name: {name}, pattern: 'lost the {name} key', state: {{class_name: CrashState}},"
            f" metadata: {{error_type: keys, severity: {severity}, fault: user}}}}]"
        )
    packs = ("--signals", tmp_path / "one.yaml", "--signals", tmp_path / "two.yaml")
    done = scan(*packs, "--format", "json", log("lost the one key\n"), log("lost the two key\n", "b"), log(OOM, "c"))
    assert [(one["error_type"], one["severity"]) for one in done.objects] == [
        ("keys", "critical"),
        ("keys", "info"),
        ("none", None),
    ]


def test_a_pack_of_which_no_signal_can_be_used_ends_with_2(scan: Scan, log: Write, tmp_path: Path) -> None:
    pack = tmp_path / "bad.yaml"
    pack.write_text("log_signals: [{name: bad, pattern: '((', state: {class_name: CrashState}}]")
    done = scan("--signals", pack, log(OOM))
    assert (done.status, done.out) == (2, "")
    assert done.err.splitlines()[-1] == f"trainwarden scan: --signals {pack}: holds no signal that can be used"


@cases("arguments", [(), ("--signals", "no-such-pack", "x"), ("--format", "xml", "x"), ("-", "-")], ids=str)
def test_misuse_ends_with_2(scan: Scan, arguments: tuple[str, ...]) -> None:
    done = scan(*arguments)
    assert done.status == 2
    assert done.out == ""
    assert done.err


def test_the_logs_of_one_attempts_ranks_have_one_cause(scan: Scan, log: Write) -> None:
    victim = log("[rank1]: torch.distributed.DistBackendError: NCCL error: remote process exited\n", "rank1")
    culprit = log(STEPS + OOM, "rank0")
    done = scan("--together", "--format", "json", victim, culprit)
    (one,) = done.objects
    assert (done.status, one["error_type"], one["file"]) == (1, "oom", str(culprit))
    assert one["evidence"] == [{"file": str(culprit), "line": 41, "text": OOM.strip()}]
    assert str(victim) in [other["file"] for other in one["also"]]
    assert one["progress"]["step"] == 40


def test_a_pattern_that_would_never_end_loses_its_own_signal_and_the_rest_is_found(
    scan: Scan, log: Write, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden.signals.patterns.TIME_LIMIT_SECONDS", 0.05)
    (tmp_path / "slow.yaml").write_text("extends: all\nlog_signals: [{name: slow, pattern: 'x(a|aa)+$'}]")
    evil = "".join(f"xaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa{n}\n" for n in range(20))
    done = scan("--signals", tmp_path / "slow.yaml", "--format", "json", log(evil + OOM), log(evil + OOM, "again"))
    assert [(one["error_type"], one["evidence"][0]["line"]) for one in done.objects] == [("oom", 21)] * 2
    assert "signal slow is off" in caplog.text
