"""`trainwarden doctor`: what is wrong, and the command that mends it."""

from __future__ import annotations

import json
import os
import pwd
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.answering import AnsweringService, Asked
from tests.cases import cases
from trainwarden import cli
from trainwarden.clients.prometheus import PrometheusClient
from trainwarden.doctor.node import check_network, read_amd_gpus, read_gpus
from trainwarden.doctor.routes import check_routes
from trainwarden.doctor.services import check_prometheus, read_notifications

ROOT = Path(__file__).parents[3]
RULE_FILES = [path for folder in ("recording", "alerts") for path in (ROOT / "rules" / folder).glob("*.yml")]
RULES = {
    name for path in RULE_FILES for name in re.findall(r"^ *- (?:alert|record): *(\S+)", path.read_text(), re.MULTILINE)
}


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


@cases(
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


def test_a_service_that_does_not_answer_is_named_with_the_reason(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    nobody = "http://127.0.0.1:1"
    argv = ["doctor", "--runs-dir", str(tmp_path), "--exporter", nobody, "--remediator", nobody]
    assert cli.main([*argv, "--json"]) == 1
    found = {each["check"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    for check, path in (("exporter", "metrics"), ("remediator", "-/ready")):
        assert found[check]["message"] == f"{nobody}/{path}: connection: Connection refused"


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


RECEIVERS = """
receivers:
  - name: people
  - name: machine
    webhook_configs: [{url: "http://remediator:9746/alertmanager/webhook"}]
"""


@cases(
    ("routes", "ok", "message"),
    [
        ("route: {receiver: people}  # here the remediate route goes", False, "no route leads an alert"),
        (
            "route: {receiver: people, routes: [{receiver: machine, matchers: ['remediate=\"yes\"']}]}",
            False,
            "to the receiver machine",
        ),
        (
            (
                'route: {receiver: people, routes: [{receiver: people, matchers: [run_id!=""]},'
                " {receiver: machine, matchers: ['remediate=\"true\"']}]}"
            ),
            False,
            "to the receiver machine",
        ),
        (
            (
                'route: {receiver: people, routes: [{receiver: people, matchers: [run_id!=""], continue: true},'
                " {receiver: machine, matchers: ['remediate=\"true\"']}]}"
            ),
            True,
            "has a route",
        ),
        ("route: {receiver: people, routes: [{receiver: machine, match: {remediate: 'true'}}]}", True, "has a route"),
        ("route: {receiver: people, routes: [{match_re: {severity: crit.*}, receiver: machine}]}", True, "has a route"),
        (
            (
                "route: {receiver: people, routes: [{matchers: ['severity=~\"critical|warning\"'], routes: "
                "[{receiver: machine, matchers: ['remediate=\"true\"', 'alertname!~\"TrainNode.*\"']}]}]}"
            ),
            True,
            "has a route",
        ),
        ("route: {receiver: people, routes: [{receiver: machine, matchers: ['=']}]}", None, "is not understood"),
        ("route: [", None, "is not understood"),
    ],
)
def test_an_alert_is_led_to_the_remediator_or_not(routes: str, ok: bool | None, message: str) -> None:
    found = check_routes("http://alertmanager", f"{routes}\n{RECEIVERS}")
    assert (found.ok, message in found.message) == (ok, True), found
    assert found.fix or found.ok


def test_the_shipped_routes_lead_to_the_remediator_also_where_its_address_is_hidden() -> None:
    shipped = (ROOT / "alertmanager/alertmanager.yml").read_text(encoding="utf-8")
    assert check_routes("http://alertmanager", shipped).ok is True
    hidden = shipped.replace("http://remediator:9746/alertmanager/webhook", "<secret>")
    assert "whose address it hides" in check_routes("http://alertmanager", hidden).message
    other = shipped.replace("/alertmanager/webhook", "/hook")
    assert check_routes("http://alertmanager", other).message.startswith("no receiver has a webhook")


def notified(failed: int, reason: str = "") -> str:
    labels = f'integration="webhook"{reason}'
    return (
        '# HELP alertmanager_notifications_total x\nalertmanager_notifications_total{integration="webhook"} 40\n'
        'alertmanager_notifications_total{integration="slack"} 0\n'
        f"alertmanager_notifications_failed_total{{{labels}}} {failed}\n"
    )


def test_a_receiver_that_fails_is_named() -> None:
    [found] = read_notifications(notified(39, ',reason="clientError"'))
    assert (found.ok, found.message) == (False, "39 of 40 notifications by webhook have failed")
    assert [each.ok for each in read_notifications(notified(1))] == [True], "one that failed was sent again"
    assert list(read_notifications("")) == []


def test_an_alertmanager_is_asked_for_its_routes_and_what_it_could_not_send(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shipped = (ROOT / "alertmanager/alertmanager.yml").read_text(encoding="utf-8")

    def answer(asked: Asked) -> tuple[int, object]:
        if asked.path == "/metrics":
            return 200, notified(39).encode()
        return 200, [] if asked.path.endswith("/alerts") else {"config": {"original": shipped}}

    service = AnsweringService(answer)
    try:
        argv = ["doctor", "--runs-dir", str(tmp_path), "--alertmanager", service.url, "--json"]
        assert cli.main(argv) == 1
    finally:
        service.close()
    found = {each["check"]: each for each in json.loads(capsys.readouterr().out)["findings"]}
    assert (found["routes"]["ok"], found["messages"]["ok"]) == (True, False)


@cases("down", [0, 2])
@cases("health", ["ok", "err"])
def test_exporters_that_cannot_be_scraped_and_rules_that_fail_are_named(down: int, health: str) -> None:
    names = sorted(RULES)
    rules = [{"type": "alerting", "name": name, "health": "ok", "alerts": []} for name in names]
    rules[0]["health"] = health

    def answer(asked: Asked) -> tuple[int, object]:
        if asked.path.endswith("/rules"):
            return 200, {"status": "success", "data": {"groups": [{"name": "all", "rules": rules}]}}
        is_down = "up" in str(asked.query)
        if "job!~" in str(asked.query):
            return 200, {"status": "success", "data": {"resultType": "vector", "result": []}}
        result = [{"metric": {"instance": f"n{each}:9745"}, "value": [0, "0"]} for each in range(down)]
        count = [{"metric": {}, "value": [0, "7"]}]
        return 200, {"status": "success", "data": {"resultType": "vector", "result": result if is_down else count}}

    service = AnsweringService(answer)
    try:
        targets, loaded = check_prometheus(PrometheusClient(service.url))
    finally:
        service.close()
    told = "exporters that cannot be scraped: n0:9745, n1:9745" if down else "7 exporters are scraped"
    assert (targets.ok, targets.message) == (not down, told)
    assert loaded.ok == (health == "ok")
    assert health == "ok" or loaded.message == f"rules that fail: {names[0]}"


@cases(
    ("lacking", "values", "expected"),
    [
        ({"TrainRunDegraded"}, "", "without TrainRunDegraded"),
        ({"TrainRunDegraded"}, "alerts: {TrainRunDegraded: {enabled: false}}", ""),
        ({"TrainRunDegraded", "TrainRunSlow"}, "alerts: {TrainRunDegraded: {enabled: false}}", "without TrainRunSlow"),
        # Alerts that stand on it are loaded, and never fire.
        ({"run:training_record:newest"}, "", "without run:training_record:newest"),
    ],
)
def test_rules_are_complete_but_for_the_alerts_that_values_leave_out(
    tmp_path: Path, lacking: set[str], values: str, expected: str
) -> None:
    rules = [{"name": name, "health": "ok"} for name in sorted(RULES - lacking)]

    def answer(asked: Asked) -> tuple[int, object]:
        if asked.path.endswith("/rules"):
            return 200, {"status": "success", "data": {"groups": [{"name": "all", "rules": rules}]}}
        return 200, {"status": "success", "data": {"resultType": "vector", "result": []}}

    file = tmp_path / "mine.yml"
    file.write_text(values)
    service = AnsweringService(answer)
    try:
        _, loaded = check_prometheus(PrometheusClient(service.url), file if values else None)
    finally:
        service.close()
    assert loaded.ok == (not expected)
    assert loaded.message.endswith(expected or "are loaded")


def test_a_job_that_the_rules_do_not_find_is_named() -> None:
    """Prometheus Operator calls it so without a jobLabel: an exporter that is down would be no alert."""
    asked_for: list[str] = []

    def answer(asked: Asked) -> tuple[int, object]:
        if asked.path.endswith("/rules"):
            return 200, {"status": "success", "data": {"groups": []}}
        (query,) = asked.query["query"]
        asked_for.append(query)
        labels = {"job": "trainwarden/trainwarden-exporter"} if "job!~" in query else {}
        result = [] if query.startswith("up") else [{"metric": labels, "value": [0, "7"]}]
        return 200, {"status": "success", "data": {"resultType": "vector", "result": result}}

    service = AnsweringService(answer)
    try:
        targets, loaded = check_prometheus(PrometheusClient(service.url))
    finally:
        service.close()
    assert targets.message == "jobs that the rules do not find by their names: trainwarden/trainwarden-exporter"
    patterns = set(re.findall(r'job=~"(trainwarden-[^"]+)"', "".join(each.read_text() for each in RULE_FILES)))
    assert patterns
    assert {pattern for query in asked_for for pattern in re.findall(r'job!~"([^"]+)"', query)} == patterns
    for folder in {path.parent.name for path in RULE_FILES}:
        assert f"DIR/{folder}/*.yml" in loaded.fix


@cases(
    ("gpu", "message"),
    [
        ({"temperature": {"edge": {"value": 40, "unit": "C"}, "hotspot": "N/A"}, "ecc": {}}, None),
        ({"temperature": {"hotspot": {"value": 108, "unit": "C"}}}, "GPU 0: 108 °C (hotspot)"),
        (
            {"ecc": {"total_uncorrectable_count": 3}},
            "GPU 0: 3 uncorrected memory errors since the driver was loaded",
        ),
    ],
)
def test_a_sick_gpu_of_amd_is_named(gpu: dict[str, object], message: str | None) -> None:
    for document in ([{"gpu": 0, **gpu}], {"gpu_data": [{"gpu": 0, **gpu}]}):
        [found] = read_amd_gpus(json.dumps(document).encode())
        assert (found.ok, found.message) == (message is None, message or "1 GPUs answer")


def script(folder: Path, name: str, text: str) -> None:
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def look(tmp_path: Path, capsys: pytest.CaptureFixture[str], *more: str) -> dict[str, dict[str, object]]:
    cli.main(["doctor", "--runs-dir", str(tmp_path), "--remediator-env", str(tmp_path / "env"), "--json", *more])
    return {each["check"]: each for each in json.loads(capsys.readouterr().out)["findings"]}


@pytest.mark.process
@pytest.mark.parametrize(
    ("level", "message"), [("Operator", "may restart every job"), ("None", "may restart its own jobs, and those of ml")]
)
def test_whose_jobs_this_user_may_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], level: str, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    monkeypatch.setattr(pwd, "getpwuid", lambda _uid: SimpleNamespace(pw_name="me"))
    script(
        tmp_path,
        "scontrol",
        "echo 'SlurmUser = slurm(64030)'; echo 'AccountingStorageType = accounting_storage/slurmdbd'",
    )
    script(tmp_path, "sacctmgr", f"echo 'me|{level}|ml'")
    found = look(tmp_path, capsys)["slurm"]
    assert (found["ok"], message in str(found["message"])) == (True, True)


@pytest.mark.process
def test_the_remediators_own_doctor_is_asked_where_it_is_configured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = {"job_id": "41", "obstacles": ["it was submitted with --no-requeue"]}
    report = {"rights": {"slurm": {"user": "me"}}, "jobs": [job, {"job_id": "42", "obstacles": []}], "unknown": {}}
    (tmp_path / "report").write_text(json.dumps(report))
    # PATH has no cat: sh alone.
    read = f'echo "$@" > {tmp_path}/argv; while read -r line; do echo "$line"; done < {tmp_path}/report'
    script(tmp_path, "trainwarden-remediator", read)
    (tmp_path / "report").write_text(json.dumps(report) + "\n")
    (tmp_path / "env").write_text('# flags\nFLAGS="--driver=slurm --cluster=c1"\n')
    found = look(tmp_path, capsys)["permissions"]
    assert (tmp_path / "argv").read_text().split() == ["--driver=slurm", "--cluster=c1", "doctor", "--format", "json"]
    assert found["ok"] is False
    assert found["message"] == "1 of 2 jobs could not be brought back; job 41: it was submitted with --no-requeue"
    assert str(found["fix"]).endswith("trainwarden-remediator --driver=slurm --cluster=c1 doctor")
    script(tmp_path, "trainwarden-remediator", "echo 'trainwarden-remediator: --policy: no such' >&2; exit 2")
    found = look(tmp_path, capsys)["permissions"]
    assert (found["ok"], str(found["fix"]).endswith("check-config")) == (False, True)
    script(tmp_path, "trainwarden-remediator", "echo gone; exit 1")
    assert look(tmp_path, capsys)["permissions"]["ok"] is None


@cases("argv", [["--prometheus", "localhost:9090"], ["--s3", "bucket"], ["--exporter", "http://u:p@h"], ["--s3"]])
def test_misuse_is_status_2_and_one_line(capsys: pytest.CaptureFixture[str], argv: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        cli.main(["doctor", *argv])
    assert end.value.code == 2
    assert capsys.readouterr().err.count("\n") == 1
