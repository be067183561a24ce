"""`trainwarden status` and `compare`, from records as the library and other tools write them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import trainwarden
from tests.cases import cases
from tests.unit.runs.records import NOW, RUN, close, foreign_run, write
from trainwarden import cli
from trainwarden.record.clock import to_iso
from trainwarden.runs.arguments import GPU_HOUR_DOLLARS
from trainwarden.runs.table import number_text

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def at_that_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STALE_MINUTES", raising=False)


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    def call(*argv: str) -> tuple[int, str]:
        status = cli.main([argv[0], "--runs-dir", str(tmp_path), *argv[1:]])
        return status, capsys.readouterr().out

    return call


def test_status_shows_what_a_person_needs_on_the_first_lines(
    tmp_path: Path, command: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    folder = foreign_run(tmp_path)
    status, text = command("status", RUN, "--once")
    assert status == 0
    assert text.splitlines()[0] == f"{RUN}  RUNNING  training"
    assert "Step        1500/5000, 30.0 %, 4 h left" in text
    (folder / "_error").write_text("CUDA out of memory \x1b]0;x\x07")
    status, text = command("status", RUN)
    assert status == 1
    assert text.splitlines()[:3] == [
        f"{RUN}  FAILED  training",
        "Reason      Error: CUDA out of memory",
        "Do          Reduce batch size or sequence length",
    ]
    assert "\x1b" not in text


def test_the_gpus_of_a_run_are_named_and_those_that_others_use(
    tmp_path: Path, command: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    folder = foreign_run(tmp_path)
    known = json.loads((folder / "metadata.json").read_text())
    write(folder / "metadata.json", **known, attempt_key="local:1", gpu_type="NVIDIA H100", gpu_count=8)
    (folder / "ranks").mkdir()
    beat = {"time": NOW, "host": "n1", "attempt_key": "local:1"}
    write(folder / "ranks/3.json", rank=3, gpu=3, gpu_taken_bytes=60 * 2**30, **beat)
    write(folder / "ranks/4.json", rank=4, gpu=4, gpu_taken_bytes=60 * 2**30, **{**beat, "attempt_key": "local:0"})
    _, text = command("status", RUN, "--once")
    assert (
        "GPUs        8 x NVIDIA H100; before the training other processes used 60.0 GiB of rank 3's: nvidia-smi\n"
        in text
    )
    _, text = command("status", RUN, "--json")
    taken = [{"rank": 3, "host": "n1", "gpu": 3, "bytes": 60 * 2**30}]
    assert json.loads(text)["gpus"] == {"type": "NVIDIA H100", "count": 8, "taken": taken}


def test_a_full_gpu_leads_to_the_batch_size_that_may_fit(
    tmp_path: Path, command: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    folder = foreign_run(tmp_path)
    (folder / "_error").write_text(
        "CUDA out of memory. Tried to allocate 4.00 GiB (GPU 0; 79.15 GiB total capacity; 76.00 GiB already allocated; "
        "1.15 GiB free; 76.85 GiB reserved in total by PyTorch)"
    )
    _, text = command("status", RUN)
    assert "Do          The step needed at least 80.0 GiB, and there were 78.0 GiB: lower the batch size per" in text
    lines = [
        {"timestamp": to_iso(NOW - 9), "event_type": "training_configuration", "data": {"batch_size": size}}
        for size in (128, 64, "many")
    ]
    (folder / "events.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    _, text = command("status", RUN)
    assert "use a batch size of 62 at most instead of 64" in text


def test_in_a_terminal_it_is_shown_again_until_the_run_ends(
    tmp_path: Path, command: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = foreign_run(tmp_path)
    monkeypatch.setattr("time.time", lambda: NOW)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("time.sleep", lambda _seconds: (folder / "_complete").touch())
    status, text = command("status", RUN)
    assert status == 0
    assert [word for word in text.split() if word in ("RUNNING", "SUCCEEDED")] == ["RUNNING", "SUCCEEDED"]


def test_a_run_that_stands_still_is_stalled(
    tmp_path: Path, command: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    folder = foreign_run(tmp_path)
    write(folder / "progress.json", step=7, total_steps=20, last_updated=to_iso(NOW), moved_time=to_iso(NOW - 900))
    status, text = command("status", RUN, "--once")
    assert (status, text.splitlines()[:2]) == (1, [f"{RUN}  STALLED  training", "Reason      no new step for 15 min"])
    found = json.loads(command("status", RUN, "--json")[1])
    assert (found["stalled_seconds"], found["eta_seconds"]) == (900, None)


def test_the_rank_that_lags_behind_and_those_that_are_silent_are_named(
    tmp_path: Path, command: Callable[..., tuple[int, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("time.time", lambda: NOW)
    folder = foreign_run(tmp_path)
    (folder / "ranks").mkdir()
    for rank, step, age in ((0, 9, 0), (1, 5, 0), (2, 9, 900)):
        write(folder / f"ranks/{rank}.json", rank=rank, step=step, time=to_iso(NOW - age), host=f"n{rank}")
    text = command("status", RUN)[1]
    assert "Ranks       3 on 3 hosts; rank 1 is behind, at step 5, on n1; silent: 2" in text


def test_a_wrong_name_is_answered_with_near_ones(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    foreign_run(tmp_path)
    for argv in (["status", "mistral-2025"], ["compare", RUN, "mistrel-20250804-171621"]):
        with pytest.raises(SystemExit) as end:
            cli.main([*argv, "--runs-dir", str(tmp_path)])
        assert end.value.code == 2
        said = capsys.readouterr().err
        assert f"near names: {RUN}" in said
        assert said.count("\n") == 1


def test_runs_as_json_have_the_fields_of_status(tmp_path: Path, command: Callable[..., tuple[int, str]]) -> None:
    foreign_run(tmp_path)
    [run] = json.loads(command("runs", "--json")[1])["runs"]
    one = json.loads(command("status", RUN, "--json")[1])
    assert run["run_id"] == RUN
    assert run.keys() == one.keys() - {"record"}


@pytest.fixture
def trained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """`good`, one attempt; `bad`, an attempt that failed and one that finished."""
    monkeypatch.setenv("TRAINWARDEN_NODE_DIR", str(tmp_path / "node"))

    def train(name: str, steps: int, loss: float, *, fails: bool = False) -> None:
        with trainwarden.run(name, dir=tmp_path) as run:
            for step in range(1, steps + 1):
                run.step(step, loss=loss, tokens=10)
            if fails:
                raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")

    monkeypatch.setenv("SLURM_JOB_ID", "7")
    train("good", 10, 2.0)
    with pytest.raises(RuntimeError):
        train("bad", 4, 4.0, fails=True)
    monkeypatch.setenv("SLURM_RESTART_COUNT", "1")
    train("bad", 5, 3.0)
    return tmp_path


def test_attempts_and_runs_are_compared(trained: Path, command: Callable[..., tuple[int, str]]) -> None:
    status, text = command("compare", "good", "bad", "--gpus", "8", "--json")
    assert status == 0
    document = json.loads(text)
    good, bad = document["runs"]
    assert [each["status"] for each in bad["attempts"]] == ["FAILED", "SUCCEEDED"]
    assert [each["steps"] for each in bad["attempts"]] == [4, 5], "each attempt's own, not the run's sum"
    assert [each["loss"] for each in bad["attempts"]] == [4.0, 3.0]
    assert bad["failures"] == {"cuda_oom": 1}
    assert (good["loss"], bad["loss"], bad["steps"]) == (2.0, 3.0, 9)
    assert document["changes"][0]["loss"] == pytest.approx(0.5)
    hours = sum(each["duration_seconds"] for each in bad["attempts"]) * 8 / 3600
    assert bad["cost_dollars"] == pytest.approx(hours * 4)
    table = command("compare", "good", "bad")[1].splitlines()
    assert table[0].split() == [
        "RUN", "ATTEMPT", "STATUS", "DURATION", "STEPS", "STEPS/S", "TOKENS/S", "LOSS", "COST", "FAILURE",
    ]  # fmt: skip
    assert table[4].startswith("bad   all")
    assert "bad against good:" in table[5]
    assert "loss +50.0%" in table[5]


def test_a_trend_is_over_three_runs_in_their_order_and_states_whether_each_followed_it(
    tmp_path: Path, command: Callable[..., tuple[int, str]]
) -> None:
    for name, duration, loss in (("a", 100, 4.0), ("b", 110, 2.0), ("c", 121, 3.0), ("d", None, None)):
        (tmp_path / name).mkdir()
        training = {"status": "completed", "duration_seconds": duration, "final_loss": loss}
        write(tmp_path / name / "summary.json", attempt=0, training=training, errors=[], gpu_stats={})
        write(tmp_path / name / "metadata.json", status="succeeded", attempt=0, end_time=to_iso(NOW))
    document = json.loads(command("compare", "a", "b", "c", "d", "--json")[1])
    [trend] = document["trends"]
    assert (trend["run_id"], trend["of"], trend["count"]) == (None, "runs", 4)
    assert trend["duration_seconds"] == {"change": pytest.approx(0.1), "steady": True}
    assert trend["loss"] == {"change": pytest.approx(0.75**0.5 - 1), "steady": False}
    assert "steps_per_second" not in trend, "unknown"
    text = command("compare", "a", "b", "c", "d")[1]
    assert "from one to the next of 4 runs, on average: duration +10.0% each time, loss -13.4%\n" in text
    assert json.loads(command("compare", "a", "b", "--json")[1])["trends"] == [], "two are a difference"


def test_an_attempt_that_was_killed_is_read_from_the_journal(
    tmp_path: Path, command: Callable[..., tuple[int, str]]
) -> None:
    folder = tmp_path / "r"
    folder.mkdir()
    lost = {"attempt": 0, "last_update": to_iso(NOW + 60), "step": 30}
    events: list[tuple[str, float, dict[str, Any]]] = [
        ("training_started", NOW, {"attempt": 0}),
        ("attempt_lost", NOW + 100, lost),
        ("training_started", NOW + 100, {"attempt": 1}),
    ]
    lines = [json.dumps({"timestamp": to_iso(when), "event_type": name, "data": data}) for name, when, data in events]
    (folder / "events.jsonl").write_text("\n".join(["{", *lines]))
    write(folder / "metadata.json", status="running", attempt=1, last_update=to_iso(NOW + 160))
    [run] = json.loads(command("compare", "r", "--json")[1])["runs"]
    first, second = run["attempts"]
    assert (first["status"], first["duration_seconds"], first["failure"]) == ("LOST", 60, "no end recorded")
    assert second["duration_seconds"] == 60


def test_a_record_of_another_tool_is_one_attempt(tmp_path: Path, command: Callable[..., tuple[int, str]]) -> None:
    foreign_run(tmp_path)
    [run] = json.loads(command("compare", RUN, "--json")[1])["runs"]
    assert [(each["duration_seconds"], each["loss"]) for each in run["attempts"]] == [(127 * 60 + 24, 2.134)]


def test_the_price_is_that_of_the_rules() -> None:
    values = yaml.safe_load((ROOT / "rules/values.yml").read_text())
    assert values["values"]["price.gpu_hour_dollars"]["default"] == GPU_HOUR_DOLLARS


@cases("option", [["--gpus", "0"], ["--gpu-hour-dollars", "-1"], ["--gpu-hour-dollars", "x"]])
def test_wrong_options_are_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], option: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["compare", RUN, *option])
    assert end.value.code == 2
    assert option[0] in capsys.readouterr().err


def test_a_large_number_is_whole() -> None:
    assert [number_text(value) for value in (173_412.6, 9102.4, 0.27777, 1.5, 1e-4)] == [
        *("173413", "9102", "0.2778", "1.5", "0.0001"),
    ]


@pytest.mark.process
@pytest.mark.parametrize(
    "argv",
    [
        ("runs",), ("runs", "--json"), ("status", RUN), ("status", RUN, "--json"), ("compare", RUN), ("health", RUN),
        ("monitor", "--once"), ("top", "--once"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_a_reader_that_goes_away_is_no_error(tmp_path: Path, argv: tuple[str, ...]) -> None:
    foreign_run(tmp_path / "runs")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "trainwarden", argv[0], "--runs-dir", str(tmp_path / "runs"), *argv[1:]],
            stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False,
            env={**os.environ, "HOME": str(tmp_path), "SLACK_WEBHOOK_URL": ""}, cwd=tmp_path,
        )  # fmt: skip
    finally:
        os.close(writing)
    assert done.returncode == 141, done.stderr
    assert b"Broken" not in done.stderr


@cases("argv", [("status", RUN), ("health", RUN), ("compare", RUN, RUN), ("report", RUN), ("runs",)])
def test_a_folder_without_permission_is_misuse_and_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: tuple[str, ...]
) -> None:
    closed = tmp_path / "closed"
    look = Path.is_dir

    def is_dir(path: Path) -> bool:
        if path.is_relative_to(closed):
            raise PermissionError(13, "Permission denied", str(path))
        return look(path)

    monkeypatch.setattr(Path, "is_dir", is_dir)
    with pytest.raises(SystemExit) as end:
        cli.main([argv[0], "--runs-dir", str(closed), *argv[1:]])
    assert end.value.code == 2
    assert capsys.readouterr().err == f"trainwarden {argv[0]}: {closed}: this user cannot read that folder\n"


def test_the_list_of_runs_shows_no_secrets(tmp_path: Path, command: Callable[..., tuple[int, str]]) -> None:
    folder = foreign_run(tmp_path)
    write(folder / "_error", message="boom token=hf_abcdefghijklmnopqrstuvwx12", time=to_iso(NOW))
    _, told = command("runs")
    assert "boom token=[redacted]" in told
    assert "hf_" not in told


@cases(
    ("argv", "status"),
    [
        (("status", RUN), 3), (("health", RUN), 3), (("top", "--once"), 3), (("monitor", "--once"), 3), (("runs",), 0),
        (("runs", "--json"), 0),
    ],
)  # fmt: skip
def test_every_command_shows_a_record_that_cannot_be_read_as_unknown(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    argv: tuple[str, ...],
    status: int,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    folder = foreign_run(tmp_path / "runs")
    os.utime(folder, (NOW, NOW))
    close(monkeypatch, folder)
    assert cli.main([argv[0], "--runs-dir", str(tmp_path / "runs"), *argv[1:]]) == status
    printed = capsys.readouterr()
    assert "unknown" in printed.out.lower()
    assert "TIMED_OUT" not in printed.out + printed.err


def test_a_record_with_absurd_numbers_widens_no_table(tmp_path: Path, command: Callable[..., tuple[int, str]]) -> None:
    folder = foreign_run(tmp_path)
    metadata = json.loads((folder / "metadata.json").read_text())
    write(folder / "metadata.json", **metadata | {"attempt": 10**50})
    write(folder / "progress.json", step=10**200, total_steps=10**400, loss=2.0)
    for number, huge in enumerate((1.0, 1e150, 1e290)):
        training = {"duration_seconds": huge, "steps_completed": 10**60, "tokens_per_second": huge, "final_loss": huge}
        write(folder / f"summary.{number}.json", run_id=RUN, attempt=number, training=training)
    for words in (("runs",), ("compare", RUN, "--gpus", "8"), ("status", RUN, "--once")):
        _, told = command(*words)
        assert max(map(len, told.splitlines())) < 200, words
    told = command("compare", RUN)[1]
    assert "tokens/s x1e+145 each time" in told
    assert "1.16e+145 d" in told
