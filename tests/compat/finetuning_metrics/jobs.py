"""Fine-tuning jobs as they are, were or will be, and pages of their metrics."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Protocol

from prometheus_client.parser import text_string_to_metric_families

from trainwarden_exporter import FineTuningMetricsExporter, TrainingMetrics

TITLE = "Monitoring & Validation Framework"
MODEL = "Qwen/Qwen2.5-7B-Instruct"
LABELS = {"job_name": "my-job", "model_id": MODEL, "method": "lora"}
HERE = Path(__file__).resolve().parent
# The command as its users type it.
TRAINWARDEN = [str(Path(sys.executable).with_name("trainwarden"))]

# A loss that falls, as the fine-tuning module logs it.
INFO: dict[str, Any] = {"loss": 0.5234, "log_history": [{"loss": 2.0}, {"loss": 1.0}, {"loss": 0.5234}]}
PROFILE: dict[str, Any] = {
    "model_id": MODEL,
    "precision": "fp16",
    "memory_requirement_gb": 20.0,
    "gpu_sharing": {"memory_limit_gb": 25.0, "partition_id": None},
    "resource_requirements": {"gpu_memory_gb": 20.0, "gpu_count": 1},
}


class FinishedJob:
    """What a job has left behind below a folder: `output` with its model and its files, and `checkpoints`."""

    def __init__(self, folder: Path) -> None:
        self.output, self.checkpoints = folder / "output", folder / "checkpoints"
        self.training_info, self.profile = self.output / "training_info.json", self.output / "aim_profile.json"
        self.checkpoint = model_folder(self.checkpoints / "checkpoint-10")
        model_folder(self.output)
        self.training_info.write_text(json.dumps(INFO))
        self.profile.write_text(json.dumps(PROFILE))


def model_folder(path: Path) -> Path:
    """A model of Transformers with one tensor, as `save_pretrained` lays it out."""
    path.mkdir(parents=True)
    (path / "config.json").write_text(json.dumps({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}))
    (path / "generation_config.json").write_text("{}")
    header = json.dumps({"w": {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}}).encode()
    (path / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + struct.pack("<2f", 1.0, 2.0))
    return path


def values(**more: Any) -> TrainingMetrics:
    """The values of a job in its first epoch; `more` of them, or others."""
    known: dict[str, Any] = {
        **LABELS, "current_epoch": 1, "total_epochs": 3, "current_step": 50, "total_steps": 200, "train_loss": 0.5234,
        "learning_rate": 2e-4, "gpu_utilization": 80.0, "gpu_memory_used": 10.0, "gpu_memory_total": 40.0,
        "samples_per_second": 4.0, "tokens_per_second": 2048.0,
    }  # fmt: skip
    return TrainingMetrics(**{**known, **more})


def read(url: str) -> str:
    """A page; loopback alone, whatever proxy there is."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(url, timeout=30) as response:
        return str(response.read().decode())


def read_if_there(url: str) -> str:
    """A page; the empty text while nobody answers."""
    try:
        return read(url)
    except (urllib.error.URLError, ConnectionError):
        return ""


class Page:
    """The families of a page of metrics by name, as a parser of Prometheus' text format reads them."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.families = {each.name: each for each in text_string_to_metric_families(text)}

    def value(self, name: str, **labels: str) -> float | None:
        """The value of the only series with this name and these labels among its own; None if there is none."""
        found = [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert len(found) <= 1, found
        return found[0] if found else None


def page_of(exporter: FineTuningMetricsExporter) -> Page:
    """The page that an exporter serves, at whatever port it got."""
    port = (exporter.exporter.bound or "").rpartition(":")[2]
    return Page(read(f"http://localhost:{port}/metrics"))


class Start(Protocol):
    """Starts a process; its output is kept."""

    def __call__(self, command: list[str], **environment: str) -> subprocess.Popen[str]: ...


def started(
    command: list[str], processes: list[subprocess.Popen[str]], environment: dict[str, str]
) -> subprocess.Popen[str]:
    """Start a process, and remember it."""
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env={**os.environ, **environment}
    )
    processes.append(process)
    return process
