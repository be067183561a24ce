"""`trainwarden slurm` and `trainwarden watch --slurm-job`, by their command lines, with jobs that a file lists."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.unit.clients.slurm.commands import FakeSlurm, job_22_05
from trainwarden.jobs import adopted_job, log_command
from trainwarden.jobs.slurm_command import main
from trainwarden.record.metadata import Metadata, read_metadata
from trainwarden.stack.slack_sink import SlackSink

pytestmark = pytest.mark.process
_OOM = "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"


class Slurm:
    """A cluster of one list of jobs, and the folders of logs and records."""

    def __init__(self, folder: Path) -> None:
        self.bin, self.runs, self.folder = folder / "bin", folder / "runs", folder
        self.bin.mkdir()
        self._slurm = FakeSlurm(self.bin)

    def list(self, *jobs: dict[str, Any]) -> None:
        """Let squeue list these."""
        self._slurm.jobs(
            [
                job_22_05(
                    **{
                        "comment": "",
                        "restart_cnt": 0,
                        "user_id": os.getuid(),
                        "current_working_directory": str(self.folder),
                        "standard_output": f"{job['job_id']}.out",
                        **job,
                    }
                )
                for job in jobs
            ]
        )

    def run(self, *arguments: str) -> int:
        """The exit status of `trainwarden slurm`."""
        return main([*arguments, f"--slurm-bin-dir={self.bin}"])

    def adopt(self, *arguments: str) -> int:
        """The exit status of `trainwarden slurm adopt`, whose looks follow each other fast."""
        return self.run("adopt", f"--runs-dir={self.runs}", "--interval=0.1", *arguments)

    def metadata(self, run_id: str) -> Metadata:
        """The metadata of a run."""
        found = read_metadata(self.runs / run_id)
        assert isinstance(found, Metadata)
        return found


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Slurm:
    """A cluster; the umask that the command sets is put back."""
    monkeypatch.setattr("os.umask", lambda mask: mask)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return Slurm(tmp_path)


def ended(state: str, code: int = 0) -> dict[str, Any]:
    """What a job shows that ended long ago."""
    return {"job_state": state, "exit_code": code << 8, "end_time": 1795271900}


def test_the_jobs_that_would_be_watched_are_listed(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    file = slurm.folder / "jobs.yml"
    file.write_text("jobs: [{match: {partition: gpu}}]\n")
    file.chmod(0o600)
    slurm.list(
        {"job_id": 7, "partition": "gpu"},
        {"job_id": 8, "partition": "cpu"},
        {"job_id": 9, "partition": "cpu", "comment": "trainwarden:llama", "standard_error": "/x/%j.err"},
    )
    assert slurm.run("jobs", f"--config={file}") == 0
    folder = slurm.folder
    assert capsys.readouterr().out.splitlines() == [
        f"7  running  train-7  {folder}/7.out",
        f"9  running  llama  {folder}/9.out /x/9.err",
    ]


def test_watch_looks_once_where_that_is_asked_for(slurm: Slurm) -> None:
    file = slurm.folder / "jobs.yml"
    file.write_text(f"runs_dir: {slurm.runs}\njobs: [{{match: {{partition: main}}}}]\n")
    file.chmod(0o600)
    slurm.list({"job_id": 7})
    assert slurm.run("watch", f"--config={file}", "--once") == 0
    assert slurm.metadata("train-7").status == "running"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["4711"], "squeue lists no job 4711"),
        (["x"], "'x' is no job id"),
        (["10"], "several tasks of an array"),
        (["7", "--run-id=other"], "marked with run llama"),
        (["7", "--run-id=no/id"], "not usable"),
        (["7", "--signals=/no/such.yaml"], "/no/such.yaml"),
        (["7", "--restart-stalls"], "--inactivity beside it"),
    ],
)
def test_what_cannot_be_adopted_is_said(
    slurm: Slurm, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    slurm.list(
        {"job_id": 7, "comment": "trainwarden:llama"},
        {"job_id": 10, "array_job_id": 10, "array_task_string": "1-9", "job_state": "PENDING"},
    )
    assert slurm.adopt(*arguments) == 2
    assert said in capsys.readouterr().err


@pytest.mark.parametrize(
    ("state", "code", "status", "word"),
    [("COMPLETED", 0, 0, "succeeded"), ("FAILED", 1, 1, "failed"), ("CANCELLED", 0, 1, "cancelled")],
)
def test_the_status_of_adopt_is_how_the_job_ended(
    slurm: Slurm, capsys: pytest.CaptureFixture[str], state: str, code: int, status: int, word: str
) -> None:
    slurm.list({"job_id": 7, **ended(state, code)})
    assert slurm.adopt("7") == status
    assert capsys.readouterr().out == f"run train-7: {word}\n"
    assert slurm.metadata("train-7").status == word


def test_a_record_that_is_anothers_ends_adopt_with_2(slurm: Slurm) -> None:
    (slurm.runs / "llama").mkdir(parents=True)
    (slurm.runs / "llama/metadata.json").write_text('{"run_id": "llama", "status": "running", "pid": 7}')
    slurm.list({"job_id": 7, "comment": "trainwarden:llama"})
    assert slurm.adopt("7") == 2


def test_a_job_that_slurm_forgets_ends_adopt_with_3(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> None:
    slurm.list({"job_id": 7})
    find = adopted_job.find_job

    def found(*arguments: Any) -> Any:
        job = find(*arguments)
        slurm.list()
        return job

    monkeypatch.setattr("trainwarden.jobs.slurm_command.find_job", found)
    assert slurm.adopt("7") == 3


def test_the_options_of_adopt_are_in_the_record_beside_those_of_the_rule(slurm: Slurm) -> None:
    file = slurm.folder / "jobs.yml"
    file.write_text("jobs: [{match: {name: train}, framework: megatron, policy: alert_only, inactivity: 1h}]\n")
    file.chmod(0o600)
    (slurm.folder / "mine.yaml").write_text("inactivity_threshold_seconds: 77\nlog_signals: []\n")
    slurm.list({"job_id": 7, **ended("COMPLETED")})
    options = (f"--config={file}", "--signals=mine.yaml", "--policy=megatron_transient", "--restart-stalls")
    assert slurm.adopt("7", *options) == 0
    metadata = slurm.metadata("train-7")
    assert (metadata.framework, metadata.policy) == ("megatron", "megatron_transient")
    assert metadata.signals == f"{slurm.folder}/mine.yaml"
    assert metadata.thresholds.stall_seconds["train"] == 77.0


def watched(slurm: Slurm, *arguments: str) -> int:
    """The exit status of `trainwarden watch` of the log of job 7."""
    return log_command.main(
        [f"{slurm.folder}/train.log", "--slurm-job=7", f"--runs-dir={slurm.runs}", "--interval=0.1", *arguments]
    )


@pytest.fixture
def on_path(slurm: Slurm, monkeypatch: pytest.MonkeyPatch) -> Callable[..., int]:
    """`trainwarden watch`, which takes the commands from PATH."""
    monkeypatch.setenv("PATH", f"{slurm.bin}:{os.environ['PATH']}")
    return lambda *arguments: watched(slurm, *arguments)


def test_the_job_of_a_log_is_watched_with_an_alert_on_the_terminal(
    slurm: Slurm, on_path: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    (slurm.folder / "train.log").write_text(f"step 10/100 loss 2.5\n{_OOM}")
    slurm.list({"job_id": 7, **ended("FAILED", 1)})
    assert on_path() == 1
    shown = capsys.readouterr()
    assert "train-7  failed  step 10" in shown.out.lower()
    assert "out of memory" in shown.err


def test_the_job_of_a_log_is_watched_with_an_alert_in_slack(
    slurm: Slurm, on_path: Callable[..., int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (slurm.folder / "train.log").write_text("step 100/100 loss 2.5\n")
    slurm.list({"job_id": 7, **ended("COMPLETED")})
    sink = SlackSink()
    try:
        monkeypatch.setenv("SLACK_WEBHOOK_URL", sink.url)
        assert on_path() == 0
    finally:
        sink.close()
    (message,) = sink.messages
    assert "Run ID: train-7" in message.plain().replace("*", "")
    assert "SUCCEEDED" in message.title
    assert capsys.readouterr().err == ""


def test_a_job_of_a_log_that_slurm_does_not_list_is_misuse(
    slurm: Slurm, on_path: Callable[..., int], capsys: pytest.CaptureFixture[str]
) -> None:
    slurm.list()
    assert on_path() == 2
    assert "squeue lists no job 7" in capsys.readouterr().err
