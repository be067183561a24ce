"""`trainwarden doctor`: what is wrong, and the command that mends it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.answering import AnsweringService, Asked
from trainwarden import cli
from trainwarden.doctor import check_network, read_gpus


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith(("TRAINWARDEN_", "MONITORING_", "NCCL_", "FI_")):
            monkeypatch.delenv(name)
    # No nvidia-smi and no SLURM of the machine that runs the tests.
    monkeypatch.setenv("PATH", str(tmp_path))


def device(sysfs: Path, name: str, driver: str) -> None:
    folder = sysfs / "class/infiniband" / name / "device"
    folder.mkdir(parents=True)
    (sysfs / "drivers" / driver).mkdir(parents=True, exist_ok=True)
    (folder / "driver").symlink_to(sysfs / "drivers" / driver)


def network(sysfs: Path, **environ: str) -> tuple[bool | None, str]:
    found = next(check_network(environ, str(sysfs)))
    return found.ok, found.fix


def test_a_node_with_efa_needs_the_plugin_where_nccl_finds_it(tmp_path: Path) -> None:
    device(tmp_path, "efa_0", "efa")
    plugin = tmp_path / "ofi"
    plugin.mkdir()
    ok, fix = network(tmp_path, LD_LIBRARY_PATH=str(plugin))
    assert (ok, "aws-ofi-nccl" in fix) == (False, True)
    (plugin / "libnccl-net-ofi.so").touch()
    assert network(tmp_path, LD_LIBRARY_PATH=str(plugin)) == (True, "")
    assert network(tmp_path, LD_LIBRARY_PATH=str(plugin), NCCL_NET="Socket") == (False, "unset NCCL_NET")
    assert network(tmp_path, LD_LIBRARY_PATH=str(plugin), FI_PROVIDER="tcp") == (False, "export FI_PROVIDER=efa")


def test_infiniband_that_is_switched_off_is_wrong_and_no_device_is_not(tmp_path: Path) -> None:
    assert network(tmp_path) == (True, "")
    device(tmp_path, "mlx5_0", "mlx5_core")
    assert network(tmp_path) == (True, "")
    assert network(tmp_path, NCCL_IB_DISABLE="1") == (False, "unset NCCL_IB_DISABLE")


def test_logs_that_will_not_name_the_network_are_said_so(tmp_path: Path) -> None:
    device(tmp_path, "mlx5_0", "mlx5_core")
    assert [each.check for each in check_network({}, str(tmp_path))] == ["network", "nccl log"]
    assert [each.check for each in check_network({"NCCL_DEBUG": "INFO"}, str(tmp_path))] == ["network"]


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        ("0, GPU-a, 40, 0, 1\n1, GPU-b, 41, 3, 1\n", "GPU 1: 3 uncorrected memory errors since the driver was loaded"),
        ("0, GPU-a, 95, 0, 1\n", "GPU 0: 95 °C"),
        ("Unable to determine the device handle\n", "nvidia-smi: Unable to determine the device handle"),
    ],
)
def test_a_sick_gpu_is_named(lines: str, message: str) -> None:
    [found] = read_gpus(lines)
    assert (found.ok, found.message) == (False, message)
    assert found.fix


def test_gpus_without_ecc_that_answer_are_well() -> None:
    assert [each.ok for each in read_gpus("0, GPU-a, 40, [N/A], 1\n1, GPU-b, 41, 0, 1\n")] == [True]


@pytest.mark.process
def test_a_driver_that_fails_is_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    program = tmp_path / "nvidia-smi"
    program.write_text("#!/bin/sh\necho 'NVIDIA-SMI has failed'\nexit 9\n")
    program.chmod(0o755)
    assert cli.main(["doctor", "--runs-dir", str(tmp_path), "--json"]) == 1
    found = {each["check"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    assert found["gpus"]["message"] == "nvidia-smi: NVIDIA-SMI has failed"
    assert found["records"]["ok"] is True


def test_what_is_wrong_is_printed_with_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").touch()
    assert cli.main(["doctor", "--runs-dir", str(tmp_path / "file/runs")]) == 1
    lines = capsys.readouterr().out.splitlines()
    at = next(number for number, line in enumerate(lines) if line.startswith("WRONG records"))
    assert "is no folder" in lines[at]
    assert lines[at + 1].split()[0] == "do:"


def test_an_exporter_whose_collectors_fail_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = (
        b'trainwarden_build_info{version="1"} 1\ntrainwarden_collector_success{collector="runs"} 1\n'
        b'trainwarden_collector_success{collector="nvidia"} 0\n'
    )

    def answer(asked: Asked) -> tuple[int, object]:
        return (200, page) if asked.path == "/metrics" else (503, b"the database is locked\x1b[0m")

    service = AnsweringService(answer)
    try:
        argv = ["doctor", "--runs-dir", str(tmp_path), "--exporter", service.url, "--remediator", service.url]
        assert cli.main([*argv, "--json"]) == 1
    finally:
        service.close()
    found = {each["check"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    assert found["exporter"]["message"] == "collectors fail: nvidia"
    assert found["remediator"]["message"].endswith("is not ready: the database is locked")


def test_a_route_to_the_remediator_is_looked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configuration = {"original": "route: {receiver: people}"}

    def answer(asked: Asked) -> tuple[int, object]:
        return 200, [] if asked.path.endswith("/alerts") else {"config": configuration}

    service = AnsweringService(answer)
    argv = ["doctor", "--runs-dir", str(tmp_path), "--alertmanager", service.url, "--json"]
    try:
        answers = []
        for text in ("route: {receiver: people}", 'matchers: [remediate="true"]'):
            configuration["original"] = text
            cli.main(argv)
            found = json.loads(capsys.readouterr().out)["findings"]
            answers += [each["ok"] for each in found if each["check"] == "routes"]
    finally:
        service.close()
    assert answers == [False, True]


@pytest.mark.parametrize(
    "argv", [["--prometheus", "localhost:9090"], ["--s3", "bucket"], ["--exporter", "http://u:p@h"], ["--s3"]]
)
def test_misuse_is_status_2_and_one_line(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["doctor", *argv])
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
