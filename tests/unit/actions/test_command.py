"""`trainwarden actions` as a process, and what its options say."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.actions.test_service import EVALUATE, House
from tests.waiting import wait_until
from trainwarden.actions.ledger import Ledger
from trainwarden.cli import main
from trainwarden.errors import UsageError


def start(house: House, *options: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "trainwarden", "actions", "--allow-root", "--interval=100ms", "--grace=100ms"]
    files = [f"--config={house.folder}/actions.yml", f"--state-dir={house.folder}/state"]
    with (house.folder / "service.log").open("ab") as log:
        return subprocess.Popen([*command, *files, *options], stderr=log)


def shown(house: House, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main(["actions", "list", f"--state-dir={house.folder}/state", "--format=json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


@pytest.mark.process
def test_a_killed_service_runs_nothing_twice_and_a_stopped_one_ends_well(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    house = House(tmp_path)
    house.configure(EVALUATE.format(trigger="event: checkpoint_saved"))
    house.does(f"import os, time; open('{house.folder}/started', 'a').write(f'[{{os.getpid()}}]\\n'); time.sleep(300)")
    process = start(house)
    began = wait_until((house.folder / "service.log").read_text)
    assert "1 actions" in began
    wait_until(lambda: not Ledger(house.folder / "state", reading=True).is_new, "the first look")
    house.saved(500)
    wait_until(lambda: house.started, "the command runs")
    process.send_signal(signal.SIGKILL)
    process.wait()
    os.kill(int(house.started[0][0]), signal.SIGKILL)

    process = start(house)
    wait_until(lambda: shown(house, capsys)[0]["state"] == "in_doubt", "it says so")
    house.saved(600)
    wait_until(lambda: len(house.started) == 2, "the next one runs")
    with pytest.raises(UsageError, match="another service uses it"):
        Ledger(house.folder / "state")
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    first, second = shown(house, capsys)
    assert (first["state"], second["state"]) == ("in_doubt", "interrupted")
    assert [each["state"] for each in second["history"]] == ["waiting", "starting", "running", "interrupted"]  # type: ignore[attr-defined]


@pytest.mark.process
def test_an_operator_changes_the_configuration_and_sees_what_was_done(tmp_path: Path) -> None:
    house = House(tmp_path)
    house.configure(EVALUATE.format(trigger="event: checkpoint_saved"))
    metrics = tmp_path / "actions.prom"

    def value(series: str) -> float | None:
        lines = (line.rsplit(" ", 1) for line in metrics.read_text().splitlines()) if metrics.exists() else ()
        return {name: float(number) for name, number in lines if not name.startswith("#")}.get(series)

    process = start(house, f"--metrics-file={metrics}")
    ended = 'trainwarden_actions_commands_total{action="evaluate",state="succeeded"}'
    wait_until(lambda: value(ended) == 0, "a series before its first event")
    house.saved(500)
    wait_until(lambda: value(ended) == 1, metrics.read_text)
    assert (value("trainwarden_actions_last_look_timestamp_seconds") or 0) > metrics.stat().st_mtime - 60

    good = (house.folder / "actions.yml").read_text()
    house.configure("actions: {evaluate: 5}\n")
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: value("trainwarden_actions_config_last_reload_successful") == 0, "it is refused")
    assert "stays as it was" in (house.folder / "service.log").read_text()
    house.saved(600)
    wait_until(lambda: value(ended) == 2, "as it was before")

    (house.folder / "actions.yml").write_text(good.replace("evaluate:", "judge:"))
    process.send_signal(signal.SIGHUP)
    wait_until(lambda: value("trainwarden_actions_config_last_reload_successful") == 1, "it is taken")
    house.saved(700)
    judged = 'trainwarden_actions_commands_total{action="judge",state="succeeded"}'
    wait_until(lambda: value(judged) == 1, metrics.read_text)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert (value(ended), [line[-1] for line in house.started]) == (2, ["500", "600", "700"])


def test_a_wrong_configuration_is_status_2_with_the_place(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "actions.yml"
    file.write_text("actions:\n  a: {command: [x]}\n")
    file.chmod(0o600)
    assert main(["actions", "--config", str(file)]) == 2
    assert "actions.yml: line 2: key actions.a.command[0]: 'x', expected an absolute path" in capsys.readouterr().err


def test_check_shows_what_would_be_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "actions.yml"
    file.write_text("actions:\n  a: {event: checkpoint_saved, sbatch: [eval.sh, '{run_id}']}\n")
    file.chmod(0o600)
    assert main(["actions", "--config", str(file), "--check"]) == 0
    assert capsys.readouterr().out == "a: event checkpoint_saved starts: sbatch eval.sh '{run_id}'\n"


def test_root_needs_to_say_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "actions.yml"
    file.write_text("{}")
    file.chmod(0o600)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    if file.stat().st_uid != 0:
        monkeypatch.setattr("trainwarden.actions.configuration._check_owner", lambda _: None)
    assert main(["actions", "--config", str(file), "--state-dir", str(tmp_path)]) == 2
    assert "this user is root, expected the user whose runs these are" in capsys.readouterr().err


def test_list_names_a_folder_without_a_service(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["actions", "list", "--state-dir", str(tmp_path)]) == 2
    assert "there is no actions.db" in capsys.readouterr().err
