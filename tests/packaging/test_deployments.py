"""What deploy/ starts the exporter with is what the exporter takes."""

from __future__ import annotations

import configparser
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.rules.rule_files import ROOT, RULES
from trainwarden.actions.command import build_parser as build_parser_of_actions
from trainwarden.jobs.ray_command import build_parser as build_parser_of_ray
from trainwarden.jobs.slurm_command import build_parser as build_parser_of_slurm
from trainwarden.record.folder import SHARED_RUNS
from trainwarden.stack.binaries import Tools
from trainwarden_exporter import dcgm
from trainwarden_exporter.cli import EVERYWHERE
from trainwarden_exporter.collectors.gpu_pods.spec import SOCKET
from trainwarden_exporter.core.runs_folder import runs_folder
from trainwarden_exporter.docs import METRICS
from trainwarden_exporter.flags import build_parser
from trainwarden_remediator.cli import parser as build_parser_of_remediator

UNIT = ROOT / "deploy/systemd/trainwarden-exporter.service"
MANIFEST = ROOT / "deploy/kubernetes/exporter.yaml"


def unit_of(text: str) -> configparser.ConfigParser:
    """Return a unit of systemd, whose keys have capitals."""
    unit = configparser.ConfigParser(interpolation=None, strict=True)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string(text)
    return unit


def test_the_systemd_unit_starts_the_exporter_with_flags_that_there_are() -> None:
    unit = unit_of(UNIT.read_text(encoding="utf-8"))
    program, *arguments = unit["Service"]["ExecStart"].split()
    assert program.endswith("/trainwarden-exporter")
    build_parser().parse_args(arguments)
    assert unit["Service"]["SendSIGKILL"] == "no"
    # No right to read any user's files by default, and memory is reclaimed before a process of it is ended.
    assert unit["Service"]["CapabilityBoundingSet"] == unit["Service"]["AmbientCapabilities"] == "CAP_SYSLOG"
    reclaimed, ended = (int(unit["Service"][key].removesuffix("M")) for key in ("MemoryHigh", "MemoryMax"))
    assert reclaimed < ended


def test_the_exporter_under_its_unit_reads_where_all_users_of_a_node_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """`ProtectSystem=strict` keeps it from writing there: without a hint it would look elsewhere."""
    monkeypatch.delenv("TRAINWARDEN_RUNS_DIR", raising=False)
    text = UNIT.read_text(encoding="utf-8")
    for name, value in re.findall(r"^Environment=(\w+)=(\S+)$", text, re.MULTILINE):
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("os.access", lambda *_: False)
    assert str(runs_folder({"collector.runs.path": None})) == SHARED_RUNS
    assert f"install -d -m 1777 {SHARED_RUNS}" in text


def test_the_systemd_unit_of_the_remediator_starts_it_with_flags_that_there_are() -> None:
    text = (UNIT.parent / "trainwarden-remediator.service").read_text(encoding="utf-8")
    unit = unit_of(text)
    (example,) = re.findall(r'^#   FLAGS="(.*)"$', text, re.MULTILINE)
    program, *arguments = unit["Service"]["ExecStart"].split()
    assert program.endswith("/trainwarden-remediator")
    assert arguments.pop() == "$FLAGS"
    parsed = build_parser_of_remediator().parse_args([*arguments, *example.split()])
    assert str(parsed.state_dir) == f"/var/lib/{unit['Service']['StateDirectory']}"
    assert unit["Service"]["StateDirectoryMode"] == "0700"


def test_the_systemd_unit_of_actions_starts_them_with_flags_that_there_are() -> None:
    unit = unit_of((UNIT.parent / "trainwarden-actions@.service").read_text(encoding="utf-8"))
    program, command, *arguments = unit["Service"]["ExecStart"].split()
    assert (Path(program).name, command) == ("trainwarden", "actions")
    build_parser_of_actions().parse_args(arguments)
    assert unit["Service"]["User"] == "%i"


def test_the_systemd_unit_of_plain_jobs_watches_them_as_the_user_of_the_other_services() -> None:
    unit = unit_of((UNIT.parent / "trainwarden-slurm.service").read_text(encoding="utf-8"))
    program, command, *arguments = unit["Service"]["ExecStart"].split()
    assert (Path(program).name, command) == ("trainwarden", "slurm")
    assert build_parser_of_slurm().parse_args(arguments).command == "watch"
    # No right to read any user's files, which what it starts would have as well.
    assert unit["Service"]["CapabilityBoundingSet"] == unit["Service"]["AmbientCapabilities"] == ""
    others = ("trainwarden-exporter.service", "trainwarden-remediator.service")
    texts = [(UNIT.parent / name).read_text(encoding="utf-8") for name in others]
    assert all(f"\nUser={unit['Service']['User']}\n" in text for text in texts)


def test_the_systemd_unit_of_plain_ray_jobs_watches_them_as_the_user_of_the_other_services() -> None:
    text = (UNIT.parent / "trainwarden-ray.service").read_text(encoding="utf-8")
    unit = unit_of(text)
    (example,) = re.findall(r'^#   FLAGS="(.*)"$', text, re.MULTILINE)
    program, command, *arguments = unit["Service"]["ExecStart"].split()
    assert (Path(program).name, command, arguments.pop()) == ("trainwarden", "ray", "$FLAGS")
    parsed = build_parser_of_ray().parse_args([*arguments, *example.split(), "--ray-token-file=/etc/t"])
    assert (parsed.command, str(parsed.config)) == ("watch", "/etc/trainwarden/ray-jobs.yml")
    slurm = unit_of((UNIT.parent / "trainwarden-slurm.service").read_text(encoding="utf-8"))
    differs = {"ExecStart", "EnvironmentFile"}
    assert {name: value for name, value in unit["Service"].items() if name not in differs} == {
        name: value for name, value in slurm["Service"].items() if name not in differs
    }


@pytest.mark.process
def test_systemd_finds_nothing_wrong_with_a_unit(tmp_path: Path) -> None:
    if shutil.which("systemd-analyze") is None:
        pytest.skip("no systemd is here")
    units = sorted(UNIT.parent.glob("*.service"))
    for unit in units:
        text = unit.read_text(encoding="utf-8")
        # What it starts is not installed here.
        text = re.sub(r"(?m)^(ExecStart=)\S+", r"\g<1>/bin/true", text)
        (tmp_path / unit.name).write_text(text, encoding="utf-8")
    copied = [tmp_path / unit.name for unit in units]
    done = subprocess.run(["systemd-analyze", "verify", *copied], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_systemd_socket_is_the_exporter_s_port_and_names_its_flag() -> None:
    text = (UNIT.parent / "trainwarden-exporter.socket").read_text(encoding="utf-8")
    unit = unit_of(text)
    assert unit["Socket"]["ListenStream"] == str(EVERYWHERE[0][1])
    assert vars(build_parser().parse_args(["--web.systemd-socket"]))["web.systemd_socket"]
    assert " --web.systemd-socket " in text


def test_the_kubernetes_manifest_starts_the_exporter_with_flags_that_there_are() -> None:
    documents = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))}
    pod: dict[str, Any] = documents["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    build_parser().parse_args(container["args"])
    mounted = {mount["name"] for mount in container["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}
    labels = documents["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    monitor = documents["PodMonitor"]["spec"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert {each["port"] for each in monitor["podMetricsEndpoints"]} <= {port["name"] for port in container["ports"]}


def test_prometheus_operator_scrapes_runs_often_under_jobs_that_the_rules_find() -> None:
    documents = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))}
    monitor, metadata = documents["PodMonitor"]["spec"], documents["PodMonitor"]["metadata"]
    labels = documents["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    # The operator's own: a label of the pod, else the object's name; then come the relabelings.
    job = labels.get(monitor.get("jobLabel"), f"{metadata['namespace']}/{metadata['name']}")
    runs, rest = monitor["podMetricsEndpoints"]
    jobs = []
    for each in (runs, rest):
        named = {one["targetLabel"]: one for one in each["relabelings"]}
        assert named["instance"]["sourceLabels"] == ["__meta_kubernetes_pod_node_name"]
        jobs.append(named.get("job", {"replacement": job})["replacement"])
    assert len(set(jobs)) == 2, "two targets of the same labels overwrite each other's series"
    asked = {name for _, rule in RULES for name in re.findall(r'job=~"(.+?)"', str(rule["expr"])) if "exporter" in name}
    assert asked
    assert all(re.fullmatch(pattern, each) for pattern in asked for each in jobs)
    assert (runs["interval"], runs["params"]) == ("5s", {"collect[]": ["runs"]})
    assert (rest["interval"], rest["params"]) == ("30s", {"exclude[]": ["runs"]})


def test_the_kubernetes_manifest_brings_the_kubelet_s_socket_to_where_the_exporter_looks_for_it() -> None:
    documents = {each["kind"]: each for each in yaml.safe_load_all(MANIFEST.read_text(encoding="utf-8"))}
    pod = documents["DaemonSet"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    rootfs: Path = vars(build_parser().parse_args(container["args"]))["path.rootfs"]
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "pod-resources")
    (volume,) = (each for each in pod["volumes"] if each["name"] == "pod-resources")
    folder = (rootfs / SOCKET).parent  # the folder: a kubelet that starts again makes another socket
    assert mount == {"name": "pod-resources", "mountPath": str(folder), "readOnly": True}
    assert volume["hostPath"] == {"path": f"/{folder.relative_to(rootfs)}"}
    # Else Prometheus calls the labels of gpu_pod_info exported_pod, and those of the exporter's own pod stand in them.
    assert all(each["honorLabels"] for each in documents["PodMonitor"]["spec"]["podMetricsEndpoints"])
    of_targets = {"instance", "job", "endpoint", "namespace", "pod", "container"}
    named = {metric.name for metric in METRICS.values() if of_targets & set(metric.label_names)}
    assert named == {"gpu_pod_info", *dcgm.METRICS}


def test_the_jobs_for_slurmctld_are_what_prometheus_takes(tools: Tools, tmp_path: Path) -> None:
    text = (ROOT / "deploy/prometheus/slurmctld.yml").read_text(encoding="utf-8")
    (tmp_path / "prometheus.yml").write_text(text, encoding="utf-8")
    done = subprocess.run(
        [tools.promtool, "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (job,) = yaml.safe_load(text)["scrape_configs"]
    assert len({config["labels"]["__metrics_path__"] for config in job["static_configs"]}) == 4
