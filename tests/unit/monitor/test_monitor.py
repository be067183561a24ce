"""Alerts without a Prometheus: one for each change of a run's status, over restarts of the monitor too."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.runs.records import NOW, RUN, close, foreign_run
from trainwarden.clients.slack import NotSent
from trainwarden.monitor import AlertManager, command
from trainwarden.monitor.alerts import Alert
from trainwarden.monitor.history import AlertHistory, HistoryUnreadable
from trainwarden.monitor.watch import Monitor
from trainwarden.runs.places import RecordFolder
from trainwarden.stack.slack_sink import SlackSink

ROOT = Path(__file__).parents[3]


class Kept:
    """A channel that keeps what it is given, unless it is closed."""

    def __init__(self, name: str = "kept") -> None:
        self.name = name
        self.alerts: list[Alert] = []
        self.is_closed = False

    def send(self, alert: Alert) -> None:
        if self.is_closed:
            raise NotSent("Slack gives no answer: connection")
        self.alerts.append(alert)


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("TRAINWARDEN_", "MONITORING_")) or name in {
            "STALE_MINUTES", "SLACK_WEBHOOK_URL", "SNS_TOPIC_ARN",
        }:  # fmt: skip
            monkeypatch.delenv(name)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def sink() -> Iterator[SlackSink]:
    made = SlackSink()
    yield made
    made.close()


def monitor(runs: Path, channels: list[Kept], *run_ids: str) -> Monitor:
    """A monitor as it is after a start: with the history of the one before."""
    history = AlertHistory(runs.parent / "history.json")
    history.load()
    alerts = AlertManager()
    alerts.channels += channels
    return Monitor(RecordFolder(runs), history, alerts, run_ids=run_ids)


def test_a_status_is_alerted_about_once_over_restarts_of_the_monitor(tmp_path: Path) -> None:
    runs, kept = tmp_path / "runs", Kept()
    foreign_run(runs)
    for now in (NOW, NOW + 60, NOW + 700, NOW + 760, NOW + 820):
        monitor(runs, [kept]).look(now)
    assert [alert.status for alert in kept.alerts] == ["TIMED_OUT"]
    (runs / RUN / "_error").write_text("CUDA out of memory")
    monitor(runs, [kept]).look(NOW + 900)
    (runs / RUN / "_error").unlink()
    (runs / RUN / "_complete").write_text("")
    monitor(runs, [kept]).look(NOW + 960)
    monitor(runs, [kept]).look(NOW + 1020)
    assert [alert.status for alert in kept.alerts] == ["TIMED_OUT", "FAILED", "SUCCEEDED"]


def test_a_run_that_comes_back_is_news_and_one_that_begins_is_none(tmp_path: Path) -> None:
    runs, kept = tmp_path / "runs", Kept()
    foreign_run(runs, age=0, progress_age=0)
    monitor(runs, [kept]).look(NOW)
    assert kept.alerts == []
    monitor(runs, [kept]).look(NOW + 700)
    foreign_run(runs, age=-700, progress_age=-700)
    monitor(runs, [kept]).look(NOW + 720)
    assert [alert.status for alert in kept.alerts] == ["TIMED_OUT", "RUNNING"]


def test_an_alert_that_was_not_sent_is_sent_in_the_next_round_and_by_that_channel_alone(tmp_path: Path) -> None:
    runs, slack, sns = tmp_path / "runs", Kept("slack"), Kept("sns")
    foreign_run(runs, age=700, progress_age=700)
    slack.is_closed = True
    found = monitor(runs, [slack, sns]).look(NOW)
    assert found.problems == [f"{RUN}: not sent by slack: Slack gives no answer: connection"]
    slack.is_closed = False
    monitor(runs, [slack, sns]).look(NOW + 60)
    monitor(runs, [slack, sns]).look(NOW + 120)
    assert (len(slack.alerts), len(sns.alerts)) == (1, 1)


def test_a_first_start_over_old_runs_is_silent_unless_one_is_asked_for(tmp_path: Path) -> None:
    runs, kept = tmp_path / "runs", Kept()
    foreign_run(runs, age=10**6, progress_age=10**6)
    monitor(runs, [kept]).look(NOW)
    assert kept.alerts == []
    (tmp_path / "history.json").unlink()
    monitor(runs, [kept], RUN).look(NOW)
    assert [alert.status for alert in kept.alerts] == ["TIMED_OUT"]


def test_a_run_that_never_appears_times_out(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    kept = Kept()
    awaiting = monitor(tmp_path / "runs", [kept], "absent")
    assert awaiting.look(NOW).missing == ["absent"]
    awaiting.look(NOW + 601)
    assert [alert.status for alert in kept.alerts] == ["TIMED_OUT"]
    assert "never started" in kept.alerts[0].text()


def test_a_history_that_cannot_be_written_ends_no_watch_and_repeats_no_alert(tmp_path: Path) -> None:
    runs, kept = tmp_path / "runs", Kept()
    foreign_run(runs, age=700, progress_age=700)
    watching = monitor(runs, [kept])
    (tmp_path / "history.json").mkdir()
    assert "history.json" in watching.look(NOW).problems[0]
    (tmp_path / "history.json").rmdir()
    assert watching.look(NOW + 60).problems == []
    monitor(runs, [kept]).look(NOW + 120)
    assert len(kept.alerts) == 1


def test_a_watch_waits_for_a_run_whose_folder_is_not_there_yet(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def appears(_seconds: float) -> None:
        (foreign_run(tmp_path / "runs") / "_complete").touch()

    monkeypatch.setattr("time.sleep", appears)
    assert command.main(["--runs-dir", str(tmp_path / "runs"), RUN]) == 0
    assert "no such folder" in capsys.readouterr().err


def test_a_history_that_cannot_be_read_sends_nothing_again(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "history.json").mkdir()
    with pytest.raises(HistoryUnreadable, match=r"history\.json: is not a plain file; expected"):
        monitor(tmp_path / "runs", [])


@pytest.mark.parametrize("garbled", ['{"version": 1, "ru', "", "[1]", '{"step": 7}', '{"runs": 3}'])
def test_a_history_that_is_garbled_is_kept_aside_and_the_watch_goes_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], garbled: str
) -> None:
    foreign_run(tmp_path / "runs", age=700 + NOW - time.time(), progress_age=700 + NOW - time.time())
    state = tmp_path / "history.json"
    state.write_text(garbled)
    argv = ["--runs-dir", str(tmp_path / "runs"), "--state-file", str(state), "--once"]
    assert command.main(argv) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"trainwarden monitor: {state}: ")
    assert f"expected what a monitor wrote there; kept as {state}.unreadable" in said.splitlines()[0]
    assert "TIMED_OUT" in said
    assert (tmp_path / "history.json.unreadable").read_text() == garbled
    assert command.main(argv) == 1
    assert capsys.readouterr().err == "", "the history that was begun anew counts"


@pytest.mark.process
def test_the_line_for_cron_works_in_the_environment_of_cron(tmp_path: Path, sink: SlackSink) -> None:
    page = (ROOT / "docs/monitor.md").read_text(encoding="utf-8")
    [line] = [line.strip() for line in page.splitlines() if line.strip().startswith("* * * * * ")]
    program = Path(sys.executable).with_name("trainwarden")
    silent = NOW - (time.time() - 3000)
    foreign_run(tmp_path / "runs", age=silent, progress_age=silent)
    (tmp_path / "monitor.env").write_text(f"SLACK_WEBHOOK_URL={sink.url}\nSTALE_MINUTES=20\n")
    for there, here in (
        ("* * * * * ", ""),
        ("/path/.venv/bin/trainwarden", str(program)),
        ("--s3 s3://my-bucket/training-runs", f"--runs-dir {tmp_path}/runs"),
    ):
        assert there in line
        line = line.replace(there, here)
    cron = ["env", "-i", f"HOME={tmp_path}", "PATH=/usr/bin:/bin", "sh", "-c", line]
    done = subprocess.run(cron, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (1, "")
    assert [message.payload["text"] for message in sink.messages] == ["🔥 Mistral Training TIMED_OUT"]
    assert "Both heartbeats stale (&gt;20m)" in sink.messages[0].text


def test_a_watch_of_one_run_ends_with_the_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = foreign_run(tmp_path / "runs")
    (folder / "_complete").write_text("")
    assert command.main(["--runs-dir", str(tmp_path / "runs"), RUN]) == 0
    told = capsys.readouterr()
    assert "SUCCEEDED" in told.out
    assert "✅ Mistral Training SUCCEEDED" in told.err, "without a channel the terminal is one"


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["--run-id", "mistral-20250804-1", "--once"], ["mistral-20250804-1", f"near names: {RUN}"]),
        (["--run-id", "../etc", "--once"], ["'../etc' is not usable"]),
        (["--stale-minutes", "-1"], ["--stale-minutes", "above 0"]),
        (["--interval", "soon"], ["--interval", "duration"]),
        (["--slack-webhook", "/no/such/file"], ["/no/such/file"]),
        (["--sns-topic", "pages"], ["arn:aws:sns:REGION:ACCOUNT:NAME"]),
        (["--env-file", "/no/such/file"], ["--env-file", "/no/such/file"]),
        (["--test-alert"], ["--slack-webhook"]),
        (["one", "--run-id", "two"], ["not both"]),
        (["--stale-minute", "7x"], ["--stale-minutes", "7x"]),
    ],
)
def test_misuse_is_status_2_and_one_line_that_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str], words: list[str]
) -> None:
    foreign_run(tmp_path / "runs")
    with pytest.raises(SystemExit) as end:
        command.main(["--runs-dir", str(tmp_path / "runs"), *argv])
    assert end.value.code == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    for word in words:
        assert word in said


def test_an_address_on_the_command_line_is_taken_with_a_warning_that_does_not_show_it(
    sink: SlackSink, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--test-alert", "--slack-webhook", sink.url]) == 0
    said = capsys.readouterr().err
    assert "write it into a file" in said
    assert sink.url not in said


def test_what_cannot_be_read_changes_no_status_and_sends_no_alert(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs, kept = tmp_path / "runs", Kept()
    folder = foreign_run(runs, age=700, progress_age=700)
    monitor(runs, [kept]).look(NOW)
    with monkeypatch.context() as patch:
        close(patch, folder)
        found = monitor(runs, [kept]).look(NOW + 60)
    assert [run.status for run in found.runs] == ["UNKNOWN"]
    assert command.status_of(found) == 3
    monitor(runs, [kept]).look(NOW + 120)
    assert [alert.status for alert in kept.alerts] == ["TIMED_OUT"]
