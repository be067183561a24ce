"""What the logs of runs say, as it is exported: every signal once, whatever happens to the files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.exporter.logs_tree import LATEST, OOM, LogsTree
from tests.unit.exporter.runs_tree import NOW
from trainwarden.redaction import REDACTED
from trainwarden.signals.tailing.template import Template

NOISE = "iteration 10/ 100 | consumed samples: 640 | elapsed time per iteration (ms): 512.3 | lm loss: 6.3E+00 |\n"


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[LogsTree]:
    tree = LogsTree(tmp_path)
    tree.runs.metadata("r")
    yield tree
    tree.state.close()


def last_write(logs: LogsTree, seconds: float) -> float | None:
    """When the run's log was last written to, by the page `seconds` later."""
    logs.look(seconds)
    return logs.value("training_log_last_write_timestamp_seconds", run_id="r")


def test_a_first_event_shows_as_a_rise_from_zero(logs: LogsTree) -> None:
    logs.write("r", "hello\n")
    logs.look()
    assert logs.count("r", "cuda_oom") == 0
    logs.write("r", OOM)
    logs.look()
    assert logs.count("r", "cuda_oom") == 1
    labels = {"run_id": "r", "signal": "cuda_oom", "error_type": "oom", "role": "root"}
    assert logs.value("training_log_signal_last_timestamp_seconds", **labels) == NOW + 2


def test_counts_go_on_over_a_restart(logs: LogsTree) -> None:
    logs.write("r", OOM)
    logs.look()
    logs.restart()
    logs.write("r", OOM * 2)
    logs.look()
    logs.look()
    assert logs.count("r", "cuda_oom") == 3


def test_an_exporter_that_began_before_the_one_before_had_ended_keeps_its_counts_from_then_on(
    logs: LogsTree, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    path, before = logs.write("r", OOM), logs.state
    logs.look()
    logs.restart(overlapping=True)
    assert "another exporter keeps its state there" in caplog.text
    logs.write("r", OOM)
    logs.look()
    before.close()
    logs.look()
    assert "the other exporter has ended" in caplog.text
    path.unlink()  # what was counted of it can be had from the state alone
    logs.restart()
    logs.look()
    assert logs.count("r", "cuda_oom") == 2


def test_the_log_that_the_next_attempt_puts_aside_is_not_read_again(logs: LogsTree) -> None:
    path = logs.write("r", OOM)
    logs.look()
    path.rename(path.with_name("training_log_1799999999_1.txt"))
    logs.write("r", OOM)
    for _ in range(3):
        logs.look()
    assert logs.count("r", "cuda_oom") == 2


def test_a_rotated_log_that_has_another_name_of_the_run_is_not_read_again(logs: LogsTree) -> None:
    path = logs.write("r", OOM, "logs/rank_1.txt")
    logs.look()
    path.rename(path.with_name("rank_1_old.txt"))
    logs.write("r", OOM, "logs/rank_1.txt")
    logs.look()
    logs.restart()
    logs.write("r", OOM, "logs/rank_1_old.txt")
    logs.look()
    logs.look()
    assert logs.count("r", "cuda_oom") == 3


@pytest.mark.parametrize("copy", ["rank_1.1.txt", pytest.param("rank_1-20251122.txt", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("seen", ["never", "in the making", "as a whole"])
def test_a_copy_that_is_made_to_cut_the_log_off_is_read_only_where_the_log_was_not(
    logs: LogsTree, copy: str, seen: str
) -> None:
    path = logs.write("r", NOISE + OOM * 2, "logs/rank_1.txt")
    logs.look()
    logs.write("r", OOM, "logs/rank_1.txt")
    content = path.read_bytes()
    if seen != "never":
        logs.write("r", content[: len(content) // 2] if seen == "in the making" else content, f"logs/{copy}")
        logs.look()
        logs.write("r", OOM, "logs/rank_1.txt")
    path.with_name(copy).write_bytes(path.read_bytes())
    path.write_bytes(b"")
    logs.write("r", OOM, "logs/rank_1.txt")
    for _ in range(3):
        logs.look()
    assert logs.count("r", "cuda_oom") == (4 if seen == "never" else 5)
    logs.restart()
    logs.write("r", OOM, "logs/rank_1.txt")
    for _ in range(40):
        logs.look()
    assert logs.count("r", "cuda_oom") == (5 if seen == "never" else 6)


def test_a_copy_beside_a_log_that_goes_on_is_not_counted(logs: LogsTree) -> None:
    path = logs.write("r", NOISE + OOM * 2, "logs/rank_1.txt")
    logs.look()
    path.with_name("rank_1.backup.txt").write_bytes(path.read_bytes())
    for _ in range(40):
        logs.look()
        logs.write("r", NOISE, "logs/rank_1.txt")
    assert logs.count("r", "cuda_oom") == 2


def test_a_log_that_begins_as_another_one_does_is_read(logs: LogsTree) -> None:
    logs.write("r", NOISE * 9 + OOM, "logs/rank_1.txt")
    logs.look()
    logs.write("r", NOISE * 9, "logs/rank_11.txt")
    logs.look()
    logs.write("r", NOISE + OOM, "logs/rank_11.txt")
    logs.look()
    assert logs.count("r", "cuda_oom") == 2


def test_a_file_of_two_names_is_read_once(logs: LogsTree) -> None:
    path = logs.write("r", OOM, "logs/real.txt")
    path.with_name("training_log_latest.txt").symlink_to("real.txt")
    logs.look()
    logs.look()
    assert logs.count("r", "cuda_oom") == 1


@pytest.mark.parametrize("known_before", [False, True])
def test_a_link_that_is_turned_to_the_next_log_counts_each_once(logs: LogsTree, known_before: bool) -> None:
    first = logs.write("r", OOM, "logs/first.txt")
    link = first.with_name("training_log_latest.txt")
    link.symlink_to("first.txt")
    logs.look()
    logs.write("r", OOM, "logs/first.txt")
    logs.write("r", OOM, "logs/second.txt")
    if known_before:
        logs.look()
    link.unlink()
    link.symlink_to("second.txt")
    for _ in range(3):
        logs.look()
        logs.write("r", OOM, "logs/second.txt")
    logs.look()
    assert logs.count("r", "cuda_oom") == 6


def test_a_damaged_state_is_set_aside_and_named(logs: LogsTree, caplog: pytest.LogCaptureFixture) -> None:
    logs.write("r", OOM)
    logs.look()
    (logs.folder / "state" / "r.json").write_bytes(b'{"version": 1, "run": "r"')
    logs.restart()
    logs.look()
    assert logs.count("r", "cuda_oom") == 1
    assert logs.value("trainwarden_log_errors_total", reason="state") == 1
    assert [path.name.partition("-")[0] for path in (logs.folder / "state").glob("*damaged*")] == ["r.json.damaged"]
    assert "r.json" in caplog.text


@pytest.mark.parametrize("damage", ['"counts":{"cuda_oom":"many"}', '"counts":[]'])
def test_a_state_of_another_shape_is_set_aside(logs: LogsTree, damage: str) -> None:
    logs.write("r", OOM)
    logs.look()
    file = logs.folder / "state" / "r.json"
    text = file.read_text()
    start = text.index('"counts"')
    file.write_text(text[:start] + damage + text[text.index("}", start) + 1 :])
    logs.restart()
    logs.look()
    assert logs.count("r", "cuda_oom") == 1
    assert logs.value("trainwarden_log_errors_total", reason="state") == 1


def test_a_pipe_a_foreign_file_and_garbage_cost_no_other_rank(logs: LogsTree, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(OOM)
    logs.write("r", b"\xff\xfe\x00" * 1000 + b"\n" + OOM.encode())
    folder = tmp_path / "runs" / "r" / "logs"
    os.mkfifo(folder / "pipe.txt")
    (folder / "link.txt").symlink_to(tmp_path / "secret")
    logs.look()
    assert logs.count("r", "cuda_oom") == 1
    assert logs.value("trainwarden_log_errors_total", reason="no_plain_file") == 1
    assert logs.value("trainwarden_log_errors_total", reason="outside") == 1


def test_a_storm_leaves_a_lag_that_shrinks_and_other_logs_get_their_turn(
    logs: LogsTree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden_exporter.collectors.logs.reader.ROUND_BYTES", 2**20)
    logs.runs.metadata("quiet")
    logs.write("r", b"nothing but noise\n" * 200_000)
    logs.write("quiet", OOM)
    lags = []
    for _ in range(5):
        logs.look()
        lags.append(logs.value("trainwarden_log_lag_bytes", run_id="r"))
    assert logs.count("quiet", "cuda_oom") == 1
    assert 2_000_000 < (lags[0] or 0) < 3_000_000
    assert lags[-1] == 0


def test_silence_and_its_threshold_are_reported(tmp_path: Path) -> None:
    pack = tmp_path / "mine.yaml"
    pack.write_text("inactivity_threshold_seconds: 900\nlog_signals: [{name: a, pattern: b}]\n")
    logs = LogsTree(tmp_path, pack=str(pack))
    logs.runs.metadata("r")
    logs.write("r", "hello\n")
    logs.look(100)
    assert logs.value("training_log_last_write_timestamp_seconds", run_id="r") == NOW
    assert logs.value("training_log_silence_threshold_seconds", run_id="r") == 900
    logs.state.close()


@pytest.mark.parametrize("ahead", [60, 1800, 86400], ids=["a minute", "half an hour", "a day"])
def test_a_log_dated_in_the_future_falls_silent_all_the_same(logs: LogsTree, ahead: float) -> None:
    logs.runs.metadata("r")
    path = logs.write("r", "hello\n")
    os.utime(path, (NOW + ahead, NOW + ahead))
    assert [last_write(logs, seconds) for seconds in (5, 10, 30)] == [NOW + 5] * 3
    with path.open("a") as file:
        file.write("one more\n")
    os.utime(path, (NOW + ahead + 1, NOW + ahead + 1))
    assert last_write(logs, 10) == NOW + 55


def test_a_log_falls_silent_although_the_clock_was_set_back(logs: LogsTree) -> None:
    logs.runs.metadata("r")
    logs.write("r", "hello\n")
    logs.look()
    back = NOW + 2 - 3600
    assert [last_write(logs, seconds) for seconds in (-3600, 60)] == [back, back]


def test_logs_of_another_host_are_left_to_its_exporter(logs: LogsTree) -> None:
    logs.runs.metadata("theirs", host="node2")
    logs.write("theirs", OOM)
    logs.look()
    assert logs.count("theirs", "cuda_oom") is None


def test_a_run_names_its_pack_and_its_log(logs: LogsTree) -> None:
    logs.write("r", "sorry, we are out of luck\n" + OOM, "out/job.out")
    (logs.folder / "runs" / "mine.yaml").write_text("log_signals: [{name: luck, pattern: out of luck}]\n")
    logs.runs.metadata(
        "r", signals=f"{logs.folder}/runs/mine.yaml", log_path=f"{logs.folder}/runs/{{run_id}}/out/*.out"
    )
    logs.look()
    assert (logs.count("r", "luck"), logs.count("r", "cuda_oom")) == (1, None)


def test_a_pack_outside_the_folders_of_logs_is_not_read(logs: LogsTree, tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("log_signals: [{name: luck, pattern: out of luck}]\n")
    logs.runs.metadata("r", signals=str(tmp_path / "mine.yaml"))
    logs.write("r", OOM)
    logs.look()
    assert logs.count("r", "cuda_oom") == 1
    assert logs.value("trainwarden_log_errors_total", reason="pack") == 1


def test_a_run_without_a_record_is_known_by_its_log(tmp_path: Path) -> None:
    (tmp_path / "out" / "solo").mkdir(parents=True)
    (tmp_path / "out" / "solo" / "train.out").write_text("step: 6/100 loss: 1.5\n" + OOM)
    logs = LogsTree(tmp_path, (Template.parse(f"{tmp_path}/out/{{run_id}}/*.out"),))
    logs.look()
    assert logs.count("solo", "cuda_oom") == 1
    assert (logs.value("training_step", run_id="solo"), logs.value("training_steps_target", run_id="solo")) == (6, 100)
    assert logs.value("training_run_state", run_id="solo", state="failed") is None
    logs.state.close()


def test_series_beyond_the_limit_are_counted_and_events_go_before_zeros(tmp_path: Path) -> None:
    logs = LogsTree(tmp_path, max_series=2)
    for run_id in ("a", "b"):
        logs.runs.metadata(run_id)
        logs.write(run_id, OOM)
    logs.look()
    assert len(logs.samples["training_log_signals_total"]) == 2
    assert logs.count("a", "cuda_oom") == 1
    assert (logs.value("trainwarden_log_series_dropped") or 0) > 100
    logs.state.close()


def test_files_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    logs = LogsTree(tmp_path, max_files=3)
    logs.runs.metadata("r")
    for rank in range(8):
        logs.write("r", "hello\n", f"logs/rank_{rank}.txt")
    logs.look()
    assert logs.value("trainwarden_log_files", outcome="followed") == 3
    assert logs.value("trainwarden_log_files", outcome="dropped") == 5
    logs.state.close()


def test_a_hostile_line_breaks_no_page_and_shows_no_secret(logs: LogsTree) -> None:
    logs.runs.metadata("r", status="failed")
    logs.write(
        "r",
        'torch.OutOfMemoryError: CUDA out of memory. "} 1\\n token=hunter2 \x1b[31m \ud800'.encode(errors="replace"),
    )
    page = logs.look()
    shown = logs.labels("training_failure_message_info", "r")["message"]
    assert "hunter2" not in page
    assert REDACTED in shown
    assert LATEST not in page
