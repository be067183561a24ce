"""A sidecar for a training pod, and the monitor by which the Prometheus operator scrapes it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.compat.finetuning_metrics.jobs import LABELS, MODEL, TITLE, TRAINWARDEN, Page, Start, read_if_there
from tests.waiting import wait_until
from trainwarden.stack.ports import free_port
from trainwarden_exporter.finetuning.metrics_server import build_parser

pytestmark = pytest.mark.seed(TITLE, "Integration with Kubernetes")

# As a pod has them: $(NAME) is the value of the container's variable.
ARGS = [
    *("--port", "8000"),
    *("--job-name", "$(JOB_NAME)"),
    *("--model-id", "$(MODEL_ID)"),
    *("--method", "$(METHOD)"),
    *("--training-info", "/workspace/output/training_info.json"),
]
VARIABLES = {"JOB_NAME": "my-job", "MODEL_ID": MODEL, "METHOD": "lora"}
PAGE = Path(__file__).resolve().parents[3] / "docs" / "finetuning.md"


@pytest.fixture(scope="module")
def manifests() -> dict[str, Any]:
    """The manifests that the page shows, by kind."""
    blocks = re.findall(r"```yaml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    return {each["kind"]: each for block in blocks for each in yaml.safe_load_all(block)}


@pytest.mark.process
def test_sidecar_takes_the_args_and_is_reached_from_outside_of_the_pod(start: Start, tmp_path: Path) -> None:
    (tmp_path / "training_info.json").write_text(json.dumps({"status": "Running", "step": 3}))
    port = free_port()
    places = {"8000": str(port), "/workspace/output": str(tmp_path)}
    args = [re.sub(r"\$\((\w+)\)", lambda found: VARIABLES[found[1]], each) for each in ARGS]
    for there, here in places.items():
        args = [each.replace(there, here) for each in args]
    server = start([*TRAINWARDEN, "metrics-server", *args], KUBERNETES_SERVICE_HOST="10.0.0.1")
    # In place of the pod's address: a server on 127.0.0.1 alone does not answer there.
    url = f"http://127.0.0.2:{port}/metrics"
    wait_until(lambda: Page(read_if_there(url)).value("finetuning_training_step", **LABELS) == 3)
    assert server.stdout is not None
    lines = iter(server.stdout.readline, "")
    assert any("serving /metrics on " in line for line in lines), "the logs say that it has started"


def test_sidecar_of_the_page_has_the_options_and_the_port_by_name(manifests: dict[str, Any]) -> None:
    pod = manifests["Pod"]
    training, sidecar = pod["spec"]["containers"]
    assert (training["name"], sidecar["name"]) == ("finetuning", "metrics")
    assert sidecar["command"] == ["trainwarden", "metrics-server"]
    given = build_parser().parse_args(sidecar["args"])
    assert (given.port, given.job_name, given.model_id, given.method) == (8000, *LABELS.values())
    assert str(given.training_info) == "/workspace/output/training_info.json"
    assert sidecar["ports"] == [{"name": "metrics", "containerPort": 8000}]
    mounts = {mount["name"]: mount["mountPath"] for mount in sidecar["volumeMounts"]}
    assert mounts == {"output": "/workspace/output"}
    assert mounts.keys() == {volume["name"] for volume in pod["spec"]["volumes"]}


def test_service_monitor_scrapes_the_port_metrics_every_30_s(manifests: dict[str, Any]) -> None:
    monitor, service = manifests["ServiceMonitor"], manifests["Service"]
    assert monitor["apiVersion"] == "monitoring.coreos.com/v1"
    assert monitor["metadata"]["name"] == "finetuning-metrics"
    assert monitor["spec"]["selector"]["matchLabels"] == {"app": "finetuning-metrics"}
    assert monitor["spec"]["endpoints"] == [{"port": "metrics", "interval": "30s"}]
    assert {"app": "finetuning-metrics"}.items() <= service["metadata"]["labels"].items()
    assert [port["name"] for port in service["spec"]["ports"]] == ["metrics"]


def test_service_and_pod_monitor_find_the_pod(manifests: dict[str, Any]) -> None:
    labels = manifests["Pod"]["metadata"]["labels"]
    assert manifests["Service"]["spec"]["selector"].items() <= labels.items()
    assert manifests["PodMonitor"]["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert manifests["PodMonitor"]["spec"]["podMetricsEndpoints"] == [{"port": "metrics", "interval": "30s"}]
