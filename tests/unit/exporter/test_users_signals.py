"""Signals of users decide: which pack a run names, what it finds, and what is shown of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.exporter.logs_tree import LATEST, OOM, LogsTree
from tests.unit.exporter.runs_tree import HOST
from tests.waiting import wait_until
from trainwarden.record.clock import to_iso
from trainwarden.signals.tailing.template import Template

PACK = """
extends: all
log_signals:
  - name: license_lost
    pattern: 'license server (?P<host>\\S+) refused: (?P<why>.+)'
    state: {class_name: CrashState}
    metadata: {error_type: license, severity: critical}
    extract_groups: {server: host, reason: why}
"""
REFUSED = "license server lic1 refused: no seats left\n"


@pytest.fixture
def logs(tmp_path: Path) -> LogsTree:
    return LogsTree(tmp_path)


def users_pack(logs: LogsTree) -> str:
    path = logs.folder / "runs" / "mine.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(PACK)
    return str(path)


def test_a_pack_that_the_record_names_later_finds_what_stood_in_the_first_line(logs: LogsTree) -> None:
    pack = users_pack(logs)
    logs.write("r", REFUSED + OOM)
    logs.look()
    assert (logs.count("r", "license_lost"), logs.count("r", "cuda_oom")) == (None, 1)
    logs.runs.metadata("r", signals=pack)
    logs.look()
    assert (logs.count("r", "license_lost"), logs.count("r", "cuda_oom")) == (1, 1)
    logs.write("r", REFUSED)
    logs.restart()
    logs.look()
    assert (logs.count("r", "license_lost"), logs.count("r", "cuda_oom")) == (2, 1)


def test_a_users_signal_explains_what_the_record_has_only_as_an_exception(logs: LogsTree) -> None:
    logs.runs.metadata("r", signals=users_pack(logs))
    logs.write("r", REFUSED + "RuntimeError: cannot go on\n")
    logs.look()
    logs.runs.metadata("r", signals=users_pack(logs), status="failed")
    said = {"message": "RuntimeError: cannot go on", "error_type": "exception", "failure": "user_exception"}
    logs.runs.write("r", "_error", {"attempt_key": "local:77-1:0", "time": to_iso(logs.runs.now), **said})
    for _ in range(3):
        logs.look()
    shown = logs.labels("training_failure_info", "r")
    assert (shown["error_type"], shown["failure"]) == ("license", "license_lost")
    message = logs.labels("training_failure_message_info", "r")["message"]
    assert "server=lic1, reason=no seats left" in message


def test_a_users_signal_explains_a_run_that_failed_before_its_log_was_read_once(logs: LogsTree) -> None:
    logs.write("r", REFUSED + "RuntimeError: cannot go on\n")
    logs.runs.metadata("r", signals=users_pack(logs), status="failed")
    said = {"message": "RuntimeError: cannot go on", "error_type": "exception", "failure": "user_exception"}
    logs.runs.write("r", "_error", {"attempt_key": "local:77-1:0", "time": to_iso(logs.runs.now), **said})
    for _ in range(3):
        logs.look()
    assert logs.labels("training_failure_info", "r")["failure"] == "license_lost"


def test_a_template_of_a_run_that_names_no_run_is_reported(logs: LogsTree) -> None:
    logs.runs.metadata("r", log_path=f"{logs.folder}/runs/train.log")
    logs.look()
    assert logs.value("trainwarden_log_errors_total", reason="template") == 1


def test_the_template_of_slurm_in_a_shipped_pack_is_taken(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "slurm-4711.out").write_text(OOM)
    logs = LogsTree(tmp_path, roots=(str(tmp_path / "runs"), str(work)))
    logs.runs.metadata("r", signals="megatron_basic", job_id="4711")
    logs.look()
    assert logs.count("r", "cuda_oom") == 1
    assert logs.value("trainwarden_log_errors_total", reason="template") == 0


@cases("kind", ["hard link", "symbolic link", "same path"])
def test_one_output_under_two_paths_is_counted_once(tmp_path: Path, kind: str) -> None:
    (tmp_path / "out").mkdir()
    logs = LogsTree(tmp_path, templates=(Template.parse(f"{tmp_path}/out/{{run_id}}.out"),))
    other = tmp_path / "out" / "r.out"
    log = logs.write("r", OOM)
    if kind == "hard link":
        other.hardlink_to(log)
    elif kind == "symbolic link":
        other.write_bytes(log.read_bytes())
        log.unlink()
        log.symlink_to(other)
    logs.runs.metadata("r", log_path=f"{tmp_path}//runs/r/{LATEST}" if kind == "same path" else str(other))
    logs.look()
    assert logs.count("r", "cuda_oom") == 1
    with (other if kind != "same path" else log).open("a") as file:
        file.write(OOM)
    os.utime(log)
    logs.look()
    assert logs.count("r", "cuda_oom") == 2


@pytest.mark.parametrize("label", ["", "0: "])
def test_one_output_in_two_files_is_counted_once(tmp_path: Path, label: str) -> None:
    # `srun --label trainwarden exec`: the scheduler's file gets what `exec` keeps in the record.
    logs = LogsTree(tmp_path, templates=(Template.parse(f"{tmp_path}/slurm-%j.out"),))
    logs.runs.metadata("r", job_id="4711")
    scheduler = tmp_path / "slurm-4711.out"
    scheduler.write_text("prologue of the job\n")
    for number in range(3):
        logs.write("r", OOM + f"rank 1: {OOM}")
        with scheduler.open("a") as file:
            file.write(f"{label}{OOM}{label}rank 1: {OOM}")
        logs.look()
        assert logs.count("r", "cuda_oom") == 2 * number + 2
        if number == 1:
            logs.restart()
    with scheduler.open("a") as file:
        file.write("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 7.00 GiB.\n")
    logs.look()
    assert logs.count("r", "cuda_oom") == 7
    # Of the next attempt the same text is another event, in whichever file.
    logs.runs.metadata("r", job_id="4711", attempt_key="slurm:4711:1", attempt=1)
    with scheduler.open("a") as file:
        file.write(OOM)
    logs.look()
    assert logs.count("r", "cuda_oom") == 8


def test_a_storm_in_two_files_is_counted_nearly_once(tmp_path: Path) -> None:
    logs = LogsTree(tmp_path, templates=(Template.parse(f"{tmp_path}/{{run_id}}.out"),))
    logs.runs.metadata("r")
    storm = "".join(f"rank {number}: {OOM}" for number in range(5_000))
    (tmp_path / "r.out").write_text("prologue\n" + storm)
    logs.write("r", storm)
    for _ in range(3):
        logs.look()
    # A busy machine may not answer within the first looks.
    wait_until(lambda: logs.look() and (logs.count("r", "cuda_oom") or 0) >= 5_000)
    assert 5_000 <= (logs.count("r", "cuda_oom") or 0) < 5_050


def test_nul_bytes_in_a_log_are_reported(logs: LogsTree) -> None:
    logs.runs.metadata("r")
    logs.write("r", OOM.encode("utf-16-le") + b"\n")
    logs.look()
    assert logs.value("trainwarden_log_errors_total", reason="nuls") == 1


STATES = """
extends: all
log_signals:
  - {name: lost, pattern: 'lost it', state: {class_name: CrashState}, metadata: {error_type: license}}
  - {name: stuck, pattern: 'no progress', state: {class_name: StalledState}}
  - {name: late, pattern: 'out of time', state: {class_name: TimeoutState}}
  - {name: done, pattern: 'all done', state: {class_name: SuccessState}}
  - {name: seen, pattern: 'saw it', metadata: {error_type: license}}
"""


def stated(logs: LogsTree) -> set[tuple[str, str, str, str]]:
    """The attempt, state, signal and error type of all that is stated."""
    found = [dict(key) for key in logs.samples.get("training_log_state_timestamp_seconds", {})]
    return {(each["attempt"], each["state"], each["signal"], each.get("error_type", "")) for each in found}


@pytest.fixture
def stating(logs: LogsTree) -> LogsTree:
    path = logs.folder / "runs" / "states.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(STATES)
    logs.runs.metadata("r", signals=str(path), attempt=0)
    logs.look()
    return logs


def test_what_signals_of_a_user_state_of_a_run_is_shown_while_it_runs(stating: LogsTree) -> None:
    stating.write("r", "lost it\nno progress\nout of time\nall done\nsaw it\n" + OOM)
    written = stating.runs.now
    stating.look()
    expected = {
        ("0", "crash", "lost", "license"),
        ("0", "stall", "stuck", "hang"),
        ("0", "timeout", "late", "time_limit"),
        ("0", "success", "done", ""),
    }
    assert stated(stating) == expected
    assert stating.value("training_log_state_timestamp_seconds", state="crash") == written
    stating.restart()
    stating.look()
    stating.look()
    assert stated(stating) == expected, "the next exporter shows it, too"
    stating.runs.metadata("r", signals=str(stating.folder / "runs" / "states.yaml"), attempt=0, status="failed")
    stating.look()
    stating.look()
    assert stated(stating) == set()


def test_what_the_run_has_survived_is_stated_no_more(stating: LogsTree) -> None:
    stating.write("r", "step 1/100 loss 2.0\nlost it\nall done\nstep 2/100 loss 2.0\n")
    stating.look()
    assert {state for _, state, _, _ in stated(stating)} == {"crash", "success"}
    stating.write("r", "".join(f"step {step}/100 loss 2.0\n" for step in range(3, 6)))
    stating.look()
    assert stated(stating) == set()


def test_shipped_signals_state_nothing_of_a_run_that_goes_on(logs: LogsTree) -> None:
    logs.runs.metadata("r", signals="megatron_basic", attempt=0)
    logs.write("r", OOM)
    logs.look()
    logs.look()
    assert stated(logs) == set()


def test_what_the_attempt_before_stated_is_gone_with_it(stating: LogsTree) -> None:
    stating.write("r", "lost it\n")
    stating.look()
    assert stated(stating) != set()
    stating.runs.now += 60
    began = {"attempt": 1, "attempt_key": "local:78-1:0", "attempt_start_time": to_iso(stating.runs.now)}
    stating.runs.metadata("r", signals=str(stating.folder / "runs" / "states.yaml"), **began)
    stating.look()
    stating.look()
    assert stated(stating) == set()


@cases(("node", "owner", "counts"), [(HOST, 0, 1), ("node2", 0, 0), (HOST, 1, 0)])
def test_the_log_of_a_plain_job_on_a_disk_of_its_node_is_read_there(
    tmp_path: Path, node: str, owner: int, counts: int
) -> None:
    """Its record is written on another host, from where the log is not there; it must belong to the job's user."""
    template = Template.parse(f"{tmp_path}/local/%x-%j.out")
    logs = LogsTree(tmp_path, templates=(template,))
    written = {"job_id": "17", "scheduler": "slurm", "attempt_key": "slurm:17:0", "host": "head"}
    stated = {"slurm_job_name": "train", "slurm_node": node}
    logs.runs.metadata("r", **written, user_id=os.getuid() + owner, environment=stated)
    (tmp_path / "local").mkdir()
    log = tmp_path / "local/train-17.out"
    log.write_text("step 5/100 loss 2.0\n" + OOM)
    log.chmod(0o600)
    page = logs.look()
    assert (logs.count("r", "cuda_oom") or 0) == counts
    assert "training_run_state{" not in page, "the state is the other exporter's"
