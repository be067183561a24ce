"""The queries of docs/metrics.md that join or compare: each finds what it is for, on two nodes that look alike."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import yaml

from trainwarden.stack.binaries import Tools
from trainwarden_exporter.docs import METRICS

Page = dict[str, float]


def node(name: str, **said: float) -> Page:
    """Two GPUs, a run and a job of one exporter; the labels are the same on every node but for `instance`."""
    page: Page = {}
    running = said.get("running", 1)
    for gpu in ("0", "1"):
        labels = f'gpu="{gpu}",uuid="GPU-{name}-{gpu}"'
        sick = gpu == "1"
        page |= {
            f'gpu_info{{{labels},model="H100"}}': 1,
            f"gpu_utilization_ratio{{{labels}}}": 1,
            f"gpu_power_watts{{{labels}}}": said.get("power", 600) if sick else 600,
            f"gpu_power_limit_watts{{{labels}}}": 700,
            f"gpu_pcie_link_width{{{labels}}}": said.get("lanes", 16) if sick else 16,
            f'gpu_temperature_celsius{{{labels},sensor="memory"}}': said.get("memory_temperature", 60) if sick else 60,
            f'gpu_nvlink_up{{{labels},link="0"}}': said.get("link", 1) if sick else 1,
        }
    if "power" in said:
        page[f'gpu_error_info{{gpu="1",uuid="GPU-{name}-1",error="timeout"}}'] = 1
    page |= {f'slurm_gpu_job_info{{gpu="1",uuid="GPU-{name}-1",job_id="{job}"}}': 1 for job in ("41", "42")}
    page |= {'slurm_gpu_job_info{gpu="1",uuid="GPU-of-another-label",job_id="43"}': 1}
    for pod, gpu in (("a", "0"), ("b", "1"), ("c", "1")):
        page[f'gpu_pod_info{{gpu="{gpu}",uuid="GPU-{name}-{gpu}",mig_uuid="",namespace="train",pod="{pod}"}}'] = 1
    page |= {'gpu_pod_info{gpu="",uuid="",mig_uuid="MIG-1",namespace="train",pod="d"}': 1}
    page |= {f'gpu_mig_info{{gpu="0",uuid="GPU-{name}-0",mig_uuid="MIG-{part}",profile="1g"}}': 1 for part in (1, 2)}
    page |= {f'gpu_mig_memory_used_bytes{{gpu="0",uuid="GPU-{name}-0",mig_uuid="MIG-{part}"}}': part for part in (1, 2)}
    page |= {'gpu_node_power_watts{vendor="nvidia",stat="max"}': 600}
    page |= {'gpu_node_power_watts{vendor="nvidia",stat="min"}': said.get("power", 600)}
    for state in ("running", "succeeded"):
        page[f'training_run_state{{run_id="r1",state="{state}"}}'] = float((state == "running") == bool(running))
    page |= {'training_heartbeat_age_seconds{run_id="r1",source="metadata"}': 900}
    page |= {'training_heartbeat_age_seconds{run_id="r1",source="progress"}': 1200}
    page |= {'training_stale_threshold_seconds{run_id="r1"}': 600, 'training_nccl_transport_ok{run_id="r1"}': 0}
    for host, state in (("a", "idle"), ("b", "drained"), ("c", "mixed")):
        page[f'slurm_node_gpus{{node="{host}"}}'] = 8
        page[f'slurm_node_gpus_allocated{{node="{host}"}}'] = 4 if host == "c" else 0
        page[f'slurm_node_state{{node="{host}",state="{state}"}}'] = 1
    return {f'{series.rstrip("}")},instance="{name}",job="j"}}': value for series, value in page.items()}


# Stands in docs/gpus.md.
MEMORY_OF_PODS = 'gpu_pod_info{mig_uuid!=""} * on (instance, mig_uuid) group_left (gpu, uuid) gpu_mig_memory_used_bytes'
ON_2 = 'instance="n2"'
EXPECTED: dict[str, dict[str, float]] = {
    "gpu_error_info": {f'{{error="timeout",gpu="1",{ON_2},job="j",model="H100",uuid="GPU-n2-1"}}': 1},
    "gpu_power_watts": {f'{{gpu="1",{ON_2},job="j",uuid="GPU-n2-1"}}': 0.2},
    "gpu_power_limit_watts": {'{watts="700"}': 4},
    "gpu_pcie_link_width": {f'gpu_pcie_link_width{{gpu="1",{ON_2},job="j",uuid="GPU-n2-1"}}': 8},
    "gpu_temperature_celsius": {f'{{gpu="1",{ON_2},job="j",sensor="memory",uuid="GPU-n2-1"}}': 20},
    "gpu_nvlink_up": {f'gpu_nvlink_up{{gpu="1",{ON_2},job="j",link="0",uuid="GPU-n2-1"}}': 0},
    "gpu_node_power_watts": {f'{{{ON_2},job="j",vendor="nvidia"}}': 600 / 140},
    "slurm_gpu_job_info": {
        f'{{gpu="1",instance="{name}",job="j",job_id="{job}",uuid="GPU-{name}-1"}}': power
        for name, power in (("n1", 600), ("n2", 140))
        for job in ("41", "42")
    },
    "gpu_pod_info": {
        f'{{gpu="{gpu}",instance="{name}",job="j",namespace="train",pod="{pod}",uuid="GPU-{name}-{gpu}"}}': power
        for pod, gpu, name, power in (
            *(("a", "0", name, 600) for name in ("n1", "n2")),
            *((pod, "1", name, power) for pod in ("b", "c") for name, power in (("n1", 600), ("n2", 140))),
        )
    },
    "slurm_node_gpus": {f'{{instance="{name}"}}': 12 for name in ("n1", "n2")},
    "training_heartbeat_age_seconds": {f'{{{ON_2},run_id="r1"}}': 900},
    "training_stale_threshold_seconds": {f'{{{ON_2},run_id="r1"}}': 1.5},
    "training_nccl_transport_ok": {f'training_nccl_transport_ok{{{ON_2},job="j",run_id="r1"}}': 0},
}


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    """A file for promtool: the run of n1 has ended, all of the second GPU of n2 is amiss."""
    page = node("n1", running=0) | node("n2", power=140, lanes=8, memory_temperature=100, link=0)
    series = [{"series": name, "values": f"{value}x2"} for name, value in page.items()]
    tests = [
        {
            "expr": METRICS[name].example,
            "eval_time": "1m",
            "exp_samples": [{"labels": labels, "value": value} for labels, value in samples.items()],
        }
        for name, samples in EXPECTED.items()
    ]
    tests.append(
        {
            "expr": MEMORY_OF_PODS,
            "eval_time": "1m",
            "exp_samples": [
                {"labels": f'{{gpu="0",uuid="GPU-{name}-0",{rest}}}', "value": 1}
                for name in ("n1", "n2")
                for rest in (f'instance="{name}",job="j",mig_uuid="MIG-1",namespace="train",pod="d"',)
            ],
        }
    )
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump({"tests": [{"interval": "1m", "input_series": series, "promql_expr_test": tests}]}))
    return file


def test_each_finds_what_it_is_for_and_nothing_else(scenario: Path, tools: Tools) -> None:
    ended = subprocess.run(
        [str(tools.promtool), "test", "rules", str(scenario)], check=False, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_the_query_for_instances_is_that_of_the_page() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs/gpus.md").read_text(encoding="utf-8")
    assert f"    {MEMORY_OF_PODS}\n" in page
    assert f"    {METRICS['gpu_pod_info'].example}\n" in page
