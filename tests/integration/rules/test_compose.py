"""docker-compose.yml runs the same configuration files, on loopback, from exact images."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alertmanager.running import SWITCHES, switched_on
from tests.rules.promtool import ROOT, RULES
from trainwarden.stack.binaries import Tools
from trainwarden_exporter.flags import build_parser
from trainwarden_remediator.cli import parser

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "docker-compose.yml").read_text(encoding="utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def mounts(service: str) -> dict[str, Path]:
    """Where in the container → which file or folder of the repository."""
    volumes = [volume.split(":") for volume in SERVICES[service].get("volumes", []) if volume.startswith("./")]
    return {inside: ROOT / outside for outside, inside, *_ in volumes}


def as_mounted(service: str, below: str, folder: Path) -> None:
    """Lay out what the container of a service sees below a path."""
    for inside, outside in mounts(service).items():
        target = folder / Path(inside).relative_to(below)
        target.parent.mkdir(parents=True, exist_ok=True)
        (shutil.copytree if outside.is_dir() else shutil.copy)(outside, target)


@pytest.mark.parametrize("service", SERVICES)
def test_what_is_mounted_is_there_and_read_only(service: str) -> None:
    for volume in SERVICES[service]["volumes"]:
        outside, _, rest = volume.partition(":")
        if outside.startswith("./"):
            assert (ROOT / outside).exists(), volume
            assert rest.endswith(":ro"), volume
        elif not outside.startswith("${"):
            assert outside in COMPOSE["volumes"], volume


@pytest.mark.parametrize("service", SERVICES)
def test_images_are_exact_and_ports_on_loopback(service: str) -> None:
    if "build" in SERVICES[service]:
        dockerfile = (ROOT / SERVICES[service]["build"]["dockerfile"]).read_text(encoding="utf-8")
        assert re.search(r"^FROM python:3\.12\.\d+-slim-\w+$", dockerfile, re.MULTILINE)
        for copied in re.findall(r"^COPY (.+) \S+$", dockerfile, re.MULTILINE):
            assert all((ROOT / name).exists() for name in copied.split())
    else:
        assert re.fullmatch(r"[\w./-]+:v?\d+\.\d+\.\d+", SERVICES[service]["image"])
    assert all(port.startswith("127.0.0.1:") for port in SERVICES[service]["ports"])


@pytest.mark.tools
def test_prometheus_loads_what_is_mounted_for_it(tools: Tools, tmp_path: Path) -> None:
    as_mounted("prometheus", "/etc/prometheus", tmp_path)
    done = subprocess.run(
        [tools.promtool, "check", "config", tmp_path / "prometheus.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(RULES)} rule files found" in done.stdout


@pytest.mark.tools
def test_alertmanager_loads_what_is_mounted_for_it(tools: Tools, tmp_path: Path) -> None:
    as_mounted("alertmanager", "/etc/alertmanager", tmp_path)
    done = subprocess.run(
        [tools.amtool, "check-config", tmp_path / "alertmanager.yml"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert SERVICES["alertmanager"]["working_dir"] == "/etc/alertmanager"


def test_the_services_find_each_other() -> None:
    targets = mounts("prometheus")["/etc/prometheus/targets"]
    found = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in targets.glob("*.json")}
    assert found == {
        "exporter": [{"targets": ["exporter:9745"]}],
        "remediator": [{"targets": ["remediator:9746"]}],
        "alertmanager": [{"targets": ["alertmanager:9093"]}],
    }
    routes = mounts("alertmanager")["/etc/alertmanager/alertmanager.yml"].read_text(encoding="utf-8")
    assert "http://remediator:9746/" in routes
    for service in ("exporter", "remediator", "alertmanager", "prometheus"):
        assert service in SERVICES


@pytest.mark.parametrize("switches", [(), *((each,) for each in SWITCHES), SWITCHES], ids="+".join)
def test_the_secrets_of_alertmanager_are_where_it_looks(switches: tuple[str, ...]) -> None:
    routes = mounts("alertmanager")["/etc/alertmanager/alertmanager.yml"].read_text(encoding="utf-8")
    text = re.sub(r"^ *#.*", "", switched_on(routes, *switches), flags=re.MULTILINE)
    wanted = {f"/etc/alertmanager/{name}" for name in re.findall(r"_file: (secrets/\w+)", text)}
    compose = yaml.safe_load(switched_on((ROOT / "docker-compose.yml").read_text(encoding="utf-8"), *switches))
    mounted = compose["services"]["alertmanager"]["secrets"]
    assert {secret["target"] for secret in mounted} == wanted
    assert {secret["source"] for secret in mounted} <= set(compose["secrets"])
    assert {Path(secret["file"]).parent for secret in compose["secrets"].values()} == {Path("deploy/secrets")}
    ignored = (ROOT / "deploy/secrets/.gitignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored


def test_the_example_of_the_environment_names_what_is_read() -> None:
    names = set(re.findall(r"^#?([A-Z0-9_]+)=", (ROOT / ".env.example").read_text(encoding="utf-8"), re.MULTILINE))
    assert set(re.findall(r"\$\{(\w+)", (ROOT / "docker-compose.yml").read_text(encoding="utf-8"))) <= names
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "trainwarden").rglob("*.py"))
    assert {name for name in names if f'"{name}"' in sources} == names
    assert ".env" in (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


def test_our_own_commands_take_the_options_they_are_given() -> None:
    exporter, remediator = SERVICES["exporter"]["command"], SERVICES["remediator"]["command"]
    assert [exporter[0], remediator[0]] == ["trainwarden-exporter", "trainwarden-remediator"]
    build_parser().parse_args(exporter[1:])
    assert parser().parse_args(remediator[1:]).driver == []


def test_grafana_is_given_the_dashboards_and_the_data_source() -> None:
    inside = mounts("grafana")
    provisioning = inside["/etc/grafana/provisioning"]
    (provider,) = yaml.safe_load((provisioning / "dashboards/trainwarden.yml").read_text(encoding="utf-8"))["providers"]
    assert any(inside[provider["options"]["path"]].glob("*.json"))
    (source,) = yaml.safe_load((provisioning / "datasources/prometheus.yml").read_text(encoding="utf-8"))["datasources"]
    assert source["url"] == "http://prometheus:9090"


def test_docker_compose_accepts_the_file() -> None:
    docker = shutil.which("docker")
    if docker is None or subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode:
        pytest.skip("docker compose is not here")
    done = subprocess.run(
        [docker, "compose", "config", "--quiet"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
