"""`trainwarden health` and `doctor` with a real Prometheus that scrapes a page of an exporter."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.answering import AnsweringService, Asked
from tests.prometheus import running_prometheus
from tests.unit.runs.records import RUN, foreign_run
from tests.waiting import wait_until
from trainwarden import cli
from trainwarden.clients.prometheus import PrometheusClient
from trainwarden.doctor import Finding
from trainwarden.doctor.services import check_prometheus
from trainwarden.stack.binaries import Tools

pytestmark = pytest.mark.tools
ROOT = Path(__file__).resolve().parents[3]
PAGE = f"""\
trainwarden_build_info{{component="exporter",version="1"}} 1
trainwarden_node_info{{host="n1",slurm_node="",instance_id="",instance_type=""}} 1
training_gpu_info{{run_id="{RUN}",gpu="0",uuid="a"}} 1
training_gpu_info{{run_id="{RUN}",gpu="1",uuid="b"}} 1
gpu_up{{gpu="0",uuid="a"}} 1
gpu_up{{gpu="1",uuid="b"}} 0
gpu_up{{gpu="2",uuid="c"}} 0
gpu_utilization_ratio{{gpu="0",uuid="a"}} 0.02
gpu_utilization_ratio{{gpu="2",uuid="c"}} 0.9
gpu_memory_used_bytes{{gpu="0",uuid="a"}} 1073741824
gpu_memory_size_bytes{{gpu="0",uuid="a"}} 2147483648
training_nccl_transport{{run_id="{RUN}",transport="socket",provider=""}} 2
training_nccl_transport_ok{{run_id="{RUN}"}} 0
ray_cluster_gpus 8
ray_cluster_gpus_allocated 2
"""


@pytest.fixture(scope="module")
def prometheus(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusClient]:
    def answer(_asked: Asked) -> tuple[int, object]:
        return 200, PAGE.encode()

    folder, exporter = tmp_path_factory.mktemp("prometheus"), AnsweringService(answer)
    (folder / "rules.yml").write_text(
        f'groups: [{{name: g, rules: [{{alert: TrainRunStalled, expr: vector(1), labels: {{run_id: "{RUN}"}}}}]}}]\n'
    )
    (folder / "prometheus.yml").write_text(
        "global: {scrape_interval: 1s, evaluation_interval: 1s}\nrule_files: [rules.yml]\nscrape_configs:\n"
        f'  - {{job_name: trainwarden-exporter, static_configs: [{{targets: ["{exporter.url.removeprefix("http://")}"]}}]}}\n'
    )
    try:
        with running_prometheus(tools, folder) as client:
            wait_until(lambda: client.query("ray_cluster_gpus") and client.alerts(), "the first scrape and evaluation")
            yield client
    finally:
        exporter.close()


def test_health_has_the_gpus_the_network_the_cluster_and_the_alerts_of_the_run(
    prometheus: PrometheusClient, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    foreign_run(tmp_path)
    (tmp_path / RUN / "_complete").touch()
    argv = ["health", RUN, "--runs-dir", str(tmp_path), "--prometheus", prometheus.url]
    assert cli.main([*argv, "--json"]) == 1
    report = json.loads(capsys.readouterr().out)
    gpu = report["gpu"]
    assert (gpu["gpu_count"], gpu["avg_utilization"]) == (2, pytest.approx(2)), "those of other runs do not count"
    assert (gpu["memory_used"], gpu["memory_total"]) == ([1024], [2048])
    assert (report["efa"]["transport"], report["efa"]["efa_active"]) == ("socket", False)
    assert (report["ray"]["gpus_available"], report["ray"]["gpus_used"]) == (8, 2)
    assert report["alerts"] == ["TrainRunStalled"]
    text = "\n".join(report["issues"])
    for words in ("GPU 1 of ", "NCCL uses socket", "Alert TrainRunStalled fires"):
        assert words in text


def test_doctor_counts_targets_and_names_the_rules_that_are_not_loaded(prometheus: PrometheusClient) -> None:
    targets, rules = check_prometheus(prometheus)
    assert targets == Finding("targets", True, "1 exporters are scraped")
    assert rules.ok is False
    assert rules.message.startswith("Prometheus has 1 of ")
    assert "trainwarden rules build" in rules.fix


def test_top_has_the_nodes_of_prometheus(
    prometheus: PrometheusClient, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    foreign_run(tmp_path)
    cli.main(["top", "--all", "--once", "--runs-dir", str(tmp_path), "--prometheus", prometheus.url])
    assert "n1    3     2     46 %  50 %    -" in capsys.readouterr().out.splitlines()
