"""The command as a supervisor runs it: a process, its signals, its status and what it prints."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tests.integration.exporter.running import Started
from tests.waiting import wait_until
from trainwarden import __version__
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json
from trainwarden.stack.ports import free_port


@pytest.fixture
def start(start_exporter: Callable[..., Started], runs: Path) -> Callable[..., tuple[subprocess.Popen[str], str]]:
    """Starts an exporter of those runs; returns the process and its address."""

    def run(*flags: str) -> tuple[subprocess.Popen[str], str]:
        started = start_exporter(f"--collector.runs.path={runs}", "--collector.runs.interval=100ms", *flags)
        return started.process, started.address

    return run


def page(address: str) -> str:
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as response:
        return str(response.read().decode())


def command(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the command to its end."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("TRAINWARDEN", "STALE"))}
    environment = {**inherited, **environment}
    return subprocess.run(
        [*Started.COMMAND, *flags], check=False, capture_output=True, text=True, timeout=60, env=environment
    )


def once(*flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return command("--once", *flags, **environment)


def test_a_step_written_while_it_runs_is_on_a_later_page(
    start: Callable[..., tuple[subprocess.Popen[str], str]], runs: Path
) -> None:
    _, address = start()
    wait_until(lambda: 'training_step{run_id="one"} 3.0' in page(address))
    write_json(runs / "one" / "progress.json", {"step": 4, "last_updated": to_iso(time.time())})
    wait_until(lambda: 'training_step{run_id="one"} 4.0' in page(address))


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_ends_it_cleanly_and_the_port_file_goes(
    start: Callable[..., tuple[subprocess.Popen[str], str]], tmp_path: Path, number: signal.Signals, status: int
) -> None:
    process, _ = start()
    process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == status
    assert "Traceback" not in errors
    assert not (tmp_path / "port0").exists()


def test_it_ends_while_a_client_is_connected(start: Callable[..., tuple[subprocess.Popen[str], str]]) -> None:
    process, address = start()
    host, _, port = address.rpartition(":")
    with socket.create_connection((host, int(port)), timeout=30):
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0


def test_once_prints_one_page_and_ends_with_status_0(runs: Path) -> None:
    ended = once(f"--collector.runs.path={runs}")
    assert (ended.returncode, ended.stderr) == (0, "")
    found = {
        sample.name: sample.value
        for family in text_string_to_metric_families(ended.stdout)
        for sample in family.samples
    }
    assert found["training_step"] == 3
    assert found["trainwarden_collector_success"] == 1
    assert found["trainwarden_build_info"] == 1


def test_once_ends_in_silence_where_the_reader_of_its_page_has_enough(runs: Path) -> None:
    read, write = os.pipe()
    os.close(read)
    flags = ["--once", "--collector.disable-defaults", "--collector.runs", f"--collector.runs.path={runs}"]
    ended = subprocess.run(
        [*Started.COMMAND, *flags], check=False, stdout=write, stderr=subprocess.PIPE, text=True, timeout=60
    )
    os.close(write)
    assert (ended.returncode, ended.stderr) == (128 + signal.SIGPIPE, "")


def test_an_exporter_that_starts_before_the_one_before_has_ended_takes_its_state_over(
    start_exporter: Callable[..., Started], tmp_path: Path, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    first, second = (start_exporter(f"--collector.runs.path={runs}") for _ in range(2))
    folders = {f"{each.parent}: " for each in (tmp_path / "state").rglob(".lock")}
    assert len(folders) == 2, "of the node, and of the logs"
    first.end()
    for _ in folders:
        second.says("the other exporter has ended; this one keeps its state there from now on")
    second.end()


def test_once_beside_the_service_is_silent(start: Callable[..., tuple[subprocess.Popen[str], str]], runs: Path) -> None:
    state = f"--collector.logs.state={runs.parent / 'state'}"
    start(state)
    ended = once(f"--collector.runs.path={runs}", state)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert 'training_step{run_id="one"} 3.0' in ended.stdout


def test_what_is_off_here_is_in_the_log_and_on_the_first_page(
    start_exporter: Callable[..., Started], tmp_path: Path, runs: Path
) -> None:
    (tmp_path / "empty").mkdir()
    paths = [f"--path.{name}={tmp_path / 'empty'}" for name in ("sysfs", "procfs", "rootfs")]
    started = start_exporter(f"--collector.runs.path={runs}", *paths)
    with urllib.request.urlopen(f"http://{started.address}/", timeout=30) as response:
        assert "<p>Off here: nvidia (needs an NVIDIA GPU on the PCI bus" in response.read().decode()
    assert "off here: nvidia (needs an NVIDIA GPU on the PCI bus" in started.end()


def test_once_finds_the_runs_where_the_library_puts_them(runs: Path) -> None:
    assert 'training_step{run_id="one"} 3.0' in once(TRAINWARDEN_RUNS_DIR=str(runs)).stdout


def test_once_ends_with_status_0_though_a_collector_failed_for_the_page_shows_it(tmp_path: Path) -> None:
    # A folder that turns out to be none only when it is read: the check at the start sees a link to nothing.
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    ended = once(f"--collector.runs.path={loop}")
    assert ended.returncode == 0
    assert 'trainwarden_collector_success{collector="runs"} 0.0' in ended.stdout


def test_a_runs_folder_that_is_not_there_yet_is_fine_and_logged_once(
    start: Callable[..., tuple[subprocess.Popen[str], str]], tmp_path: Path
) -> None:
    later = tmp_path / "later"
    process, address = start(f"--collector.runs.path={later}")
    wait_until(lambda: 'trainwarden_collector_success{collector="runs"} 1.0' in page(address))
    (later / "new").mkdir(parents=True)
    wait_until(lambda: 'training_run_state{run_id="new",state="pending"} 1.0' in page(address))
    process.send_signal(signal.SIGTERM)
    assert process.communicate(timeout=60)[1].count(str(later)) == 1


def test_the_environments_thresholds_hold_for_records_that_state_none(runs: Path) -> None:
    ended = once(f"--collector.runs.path={runs}", STALE_MINUTES="3")
    assert 'training_stale_threshold_seconds{run_id="one"} 180.0' in ended.stdout


def test_the_host_name_decides_whose_runs_are_exported(runs: Path) -> None:
    document = {"run_id": "one", "status": "running", "last_update": to_iso(time.time()), "host": "alpha"}
    write_json(runs / "one" / "metadata.json", document)
    flag = f"--collector.runs.path={runs}"
    assert "training_run_state" in once(flag, "--instance-host=alpha").stdout
    assert "training_run_state" not in once(flag, "--instance-host=beta").stdout
    assert "training_run_state" in once(flag, "--instance-host=beta", "--collector.runs.scope=all").stdout


def assert_misuse(ended: subprocess.CompletedProcess[str], *words: str) -> None:
    assert ended.returncode == 2
    (line,) = ended.stderr.splitlines()
    for word in words:
        assert word in line


def test_a_busy_port_is_named(runs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        # Not even what the collectors would have to say: it is the address that is wrong.
        ended = command(f"--collector.runs.path={runs / 'later'}", f"--web.listen-address={address}")
    assert_misuse(ended, "--web.listen-address", address, "in use", "expected")


def test_an_address_of_another_machine_is_named(runs: Path) -> None:
    ended = command(f"--collector.runs.path={runs}", "--web.listen-address=192.0.2.1:0")
    assert_misuse(ended, "--web.listen-address", "192.0.2.1:0", "expected")


def test_a_port_file_that_cannot_be_written_is_named(runs: Path, tmp_path: Path) -> None:
    port_file = tmp_path / "missing" / "port"
    flags = [f"--collector.runs.path={runs}", "--web.listen-address=127.0.0.1:0", f"--web.port-file={port_file}"]
    ended = command(*flags)
    # The collectors have started by then, and may have said something.
    ended.stderr = ended.stderr.splitlines()[-1]
    assert_misuse(ended, "--web.port-file", str(port_file), "expected")


def test_a_runs_folder_that_is_a_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_misuse(
        once(f"--collector.runs.path={tmp_path / 'file'}"), "--collector.runs.path", "file", "expected a folder"
    )


def test_a_wrong_threshold_in_the_environment_is_named(runs: Path) -> None:
    assert_misuse(once(f"--collector.runs.path={runs}", STALE_MINUTES="soon"), "STALE_MINUTES", "soon", "positive")


def test_without_any_collector_there_is_nothing_to_do() -> None:
    assert_misuse(once("--collector.disable-defaults"), "--collector.NAME", "expected")


def test_the_version_is_the_packages() -> None:
    ended = command("--version")
    assert (ended.returncode, ended.stdout) == (0, f"trainwarden-exporter {__version__}\n")


def test_it_listens_on_every_address_that_is_configured(start_exporter: Callable[..., Started], runs: Path) -> None:
    second = f"127.0.0.1:{free_port()}"
    started = start_exporter(f"--collector.runs.path={runs}", f"--web.listen-address={second}")
    assert started.address != second
    for address in (started.address, second):
        assert "trainwarden_build_info" in page(address)


def test_one_busy_address_of_several_is_named(runs: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        busy = f"127.0.0.1:{other.getsockname()[1]}"
        flags = ["--web.listen-address=127.0.0.1:0", f"--web.listen-address={busy}"]
        assert_misuse(command(f"--collector.runs.path={runs}", *flags), "--web.listen-address", busy, "in use")


def test_a_wrong_web_configuration_ends_the_start(runs: Path, tmp_path: Path) -> None:
    file = tmp_path / "web.yml"
    file.write_text("basic_auth_users:\n  alice: hunter2\n")
    ended = command(f"--collector.runs.path={runs}", "--web.listen-address=127.0.0.1:0", f"--web.config.file={file}")
    assert_misuse(ended, str(file), "line 2", "basic_auth_users.alice", "expected a bcrypt hash")
    assert "hunter2" not in ended.stderr
