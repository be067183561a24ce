"""The command line: every mistake is named, in one line, with status 2, before anything is touched."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

import trainwarden_remediator
from tests.offenders import assert_none
from tests.unit.remediator.simulation import Simulation
from trainwarden_remediator.cli import main
from trainwarden_remediator.database.database import FILE, open_database

_POLICY = Path(trainwarden_remediator.__file__).with_name("policies") / "default.yaml"


@pytest.fixture
def flags(tmp_path: Path) -> dict[str, str]:
    token = tmp_path / "token"
    token.write_text("secret\n")
    return {
        "--web.listen-address": "127.0.0.1:0",
        "--state-dir": str(tmp_path / "state"),
        "--webhook-token-file": str(token),
        "--driver": "local",
        "--local-launcher-url": "http://127.0.0.1:1",
        "--local-launcher-token-file": str(token),
    }


WRONG_FLAGS: list[tuple[str, str | None, str]] = [
    ("--webhook-token-file", "/nonexistent", "--webhook-token-file: /nonexistent: No such file"),
    ("--webhook-token-file", "/dev/null", "--webhook-token-file: /dev/null: empty"),
    ("--local-launcher-token-file", "/dev/null", "--local-launcher-token-file: /dev/null: empty"),
    ("--policy", "nonsense", "--policy: 'nonsense': no such policy"),
    ("--policy", "/dev/null", "/dev/null: is no plain file, expected a file"),
    ("--policy-dir", "/nonexistent", "--policy-dir: /nonexistent: No such file"),
    ("--run-policy", "*=nonsense", "--run-policy: '*=nonsense': expected GLOB=NAME"),
    ("--poll-interval", "0", "--poll-interval: '0' is no duration: expected one above zero"),
    ("--poll-interval", "nan", "--poll-interval: 'nan' is no duration: expected one above zero, such as"),
    ("--alertmanager-url", "localhost:9093", "--alertmanager-url: 'localhost:9093': expected http://HOST:PORT"),
    ("--prometheus-url", "http://", "--prometheus-url: 'http://': expected http://HOST:PORT"),
    ("--prometheus-url", "http://h:99999", "--prometheus-url: 'http://h:99999': expected http://HOST:PORT"),
    ("--prometheus-url", "http://:s3cret@h", "--prometheus-url: expected http://HOST:PORT"),
    ("--alertmanager-url", "http://u:s3cret@h", "--alertmanager-url: expected http://HOST:PORT"),
    ("--webhook-user", "am", "--webhook-user: needs --web.config.file"),
    ("--web.listen-address", "9746", "--web.listen-address: '9746' is no address: expected host:port"),
    (
        "--web.listen-address",
        "127.0.0.1:70000",
        "--web.listen-address: '127.0.0.1:70000' is no address",
    ),
    ("--runs-dir", "/nonexistent", "--runs-dir: /nonexistent: expected a folder"),
    ("--state-dir", "/dev/null/x", "Not a directory"),
    ("--local-launcher-url", "ftp://x", "--local-launcher-url: 'ftp://x': expected http://HOST:PORT"),
    ("--local-launcher-url", None, "--driver local: needs --local-launcher-url"),
    ("--webhook-token-file", None, "--webhook-token-file: missing"),
]


def test_wrong_flags_end_with_status_2_and_one_line(flags: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    def run(flag: str, value: str | None) -> tuple[int, str]:
        given = {name: text for name, text in {**flags, flag: value}.items() if text is not None}
        status = main([f"{name}={text}" for name, text in given.items()])
        return status, capsys.readouterr().err

    found = [(flag, value, said, *run(flag, value)) for flag, value, said in WRONG_FLAGS]
    assert_none(
        f"{flag}={value}: status {status}, {error!r}"
        for flag, value, said, status, error in found
        if status != 2 or said not in error or len(error.strip().splitlines()) != 1
    )


def test_all_wrong_flags_are_named_at_once(flags: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    flags |= {"--prometheus-url": "x", "--poll-interval": "-1", "--max-actions": "few"}
    assert main([f"{name}={text}" for name, text in flags.items()]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["--prometheus-url:", "--poll-interval:", "--max-actions:"]
    assert lines[2].endswith("'few': expected a whole number")


def test_slurm_tools_that_are_absent_are_named(
    flags: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags |= {"--driver": "slurm", "--slurm-bin-dir": str(tmp_path)}
    assert main([f"{name}={text}" for name, text in flags.items()]) == 2
    assert f"squeue and scontrol not found in {tmp_path}" in capsys.readouterr().err


def test_a_slurm_user_that_does_not_exist_is_named(flags: dict[str, str], capsys: pytest.CaptureFixture[str]) -> None:
    flags |= {"--driver": "slurm", "--slurm-allow-user": "no-such-user"}
    assert main([f"{name}={text}" for name, text in flags.items()]) == 2
    assert "--slurm-allow-user: 'no-such-user': no such user" in capsys.readouterr().err


def test_a_good_policy_is_summed_up_with_status_0(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check-policy", "megatron_transient"]) == 0
    assert "crash: SelectiveRestartPolicy, at most 3" in capsys.readouterr().out


def test_a_bad_policy_file_gets_status_2_and_a_line_per_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(
        "policies:\n"
        "  - mode: crsh\n"
        "    implementation: {class_name: AlwaysRestartPolicy, max_retries: -1}\n"
        "  - mode: stall\n"
        "    implementation: {class_name: AlwaysRestartPolicy, max_retrys: 1}\n"
    )
    assert main(["check-policy", str(path)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 3
    assert f"{path}: line 2: policies[0].mode: 'crsh': expected 'crash', 'stall', 'timeout' or 'success'" in lines[0]
    assert f"{path}: line 3: policies[0].implementation.max_retries: -1: expected" in lines[1]
    assert f"{path}: line 5: policies[1].implementation.max_retrys: unknown key, expected max_retries?" in lines[2]


@pytest.mark.parametrize(("options", "about"), [([], ""), (["--run-id=r1"], " about r1")])
def test_an_empty_decision_log_is_no_empty_answer(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], about: str
) -> None:
    open_database(tmp_path).dispose()
    assert main(["decisions", f"--state-dir={tmp_path}", *options]) == 0
    assert capsys.readouterr().err == f"trainwarden-remediator: {tmp_path}: no decision{about} yet\n"


def test_a_decision_log_that_is_not_there_gets_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["decisions", f"--state-dir={tmp_path}"]) == 2
    assert "there is no decision log here; expected the --state-dir of a remediator" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("argv", [["explain", "run-1"], ["freeze", "--all"], ["audit", "verify"]])
def test_a_state_folder_that_cannot_be_looked_into_gets_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, argv: list[str]
) -> None:
    """As for everybody but the remediator's user and root."""

    def denied(path: Path) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", denied)
    assert main([*argv, f"--state-dir={tmp_path}"]) == 2
    assert capsys.readouterr().err == (
        f"trainwarden-remediator: {tmp_path}/{FILE}: Permission denied; expected the remediator's user, or root\n"
    )


def test_a_database_of_nobody_gets_status_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / FILE).touch()  # as a full disk leaves it
    assert main(["explain", f"--state-dir={tmp_path}", "run-1"]) == 2
    assert f"{tmp_path}/{FILE}: no database of a remediator, or an empty one" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["explain", "run-1"], ["ack", "--run-id=run-1"]])
def test_damage_that_a_command_comes_upon_gets_status_2(
    simulation: Simulation, tmp_path: Path, capsys: pytest.CaptureFixture[str], argv: list[str]
) -> None:
    simulation.tick(5)
    simulation.close()
    file = tmp_path / "state" / FILE
    with sqlite3.connect(file) as connection:
        [(page, size)] = connection.execute(
            "SELECT rootpage, page_size FROM sqlite_master, pragma_page_size() WHERE name = 'incidents'"
        )
    connection.close()
    content = bytearray(file.read_bytes())
    content[(page - 1) * size : page * size] = b"\xff" * size
    file.write_bytes(content)
    assert main([*argv, f"--state-dir={tmp_path / 'state'}"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"trainwarden-remediator: {file}: ")
    assert "SELECT" not in line


def test_a_policy_that_cannot_be_looked_at_gets_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    """A name that no file can have stands for a folder that this user may not search, which root may."""
    name = f"{'x' * 300}.yaml"
    assert main(["check-policy", name]) == 2
    assert "File name too long" in capsys.readouterr().err


def test_a_folder_of_templates_that_cannot_be_made_gets_status_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    assert main([f"--ray-template-dir={tmp_path / 'file'}", "ray", "register", "job"]) == 2
    assert f"--ray-template-dir: {tmp_path / 'file'}: expected a folder" in capsys.readouterr().err


def test_a_database_that_lacks_a_column_is_of_an_older_remediator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    open_database(tmp_path).dispose()
    with sqlite3.connect(tmp_path / FILE) as connection:
        connection.execute("ALTER TABLE incidents DROP COLUMN signal")
    connection.close()
    assert main(["explain", f"--state-dir={tmp_path}", "run-1"]) == 2
    assert "no such column: incidents.signal: of an older remediator. Starting the" in capsys.readouterr().err
    assert main(["freeze", f"--state-dir={tmp_path}", "--all"]) == 0, "nothing is in the way of that"


@pytest.mark.process
def test_a_check_of_a_policy_loads_neither_the_service_nor_a_database() -> None:
    """`trainwarden up` makes one for each start: it took four times as long."""
    code = (
        "import sys; from trainwarden_remediator.cli import main; main(['check-policy', 'none']); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(done.stdout.split()) & {"sqlalchemy", "prometheus_client", "trainwarden_remediator.app"} == set()


@pytest.mark.process
def test_a_command_ends_in_silence_where_the_reader_of_its_output_has_enough() -> None:
    read, write = os.pipe()
    os.close(read)
    command = [sys.executable, "-m", "trainwarden_remediator", "check-policy", str(_POLICY)]
    ended = subprocess.run(command, check=False, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")
