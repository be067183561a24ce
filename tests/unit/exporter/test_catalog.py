"""Every metric follows the conventions, and samples become families."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import pytest

import trainwarden_exporter
from trainwarden_exporter.collectors.runs import metrics as runs
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.docs import METRICS, defined_in


@pytest.mark.parametrize("name", METRICS)
def test_a_name_follows_the_conventions(name: str) -> None:
    metric = METRICS[name]
    assert name.startswith(
        (
            "training_",
            "trainwarden_",
            "gpu_",
            "efa_",
            "infiniband_",
            "slurm_",
            "ray_cluster_",
            "kernel_",
            "clock_",
            "process_",
            "finetuning_",
        )
    )
    assert (metric.kind == "counter") == name.endswith("_total")
    assert metric.help.endswith(".")
    assert "|" not in metric.help
    if name.endswith("_timestamp_seconds"):
        assert metric.unit == "Unix seconds"


@pytest.mark.parametrize("labels", [{}, {"run_id": "r", "rank": "0"}, {"job": "r"}])
def test_other_labels_than_those_of_the_metric_are_an_error(labels: dict[str, str]) -> None:
    with pytest.raises(KeyError, match="training_step"):
        Families().add(runs.TRAINING_STEP, 1, **labels)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_missing_is_not_zero(value: Any) -> None:
    families = Families()
    families.add(runs.TRAINING_STEP, value, run_id="r")
    assert families.collected() == []


def test_samples_of_one_name_are_one_family() -> None:
    families = Families()
    for run_id in "ab":
        families.add(runs.TRAINING_STEP, 1, run_id=run_id)
    (family,) = families.collected()
    assert [sample.labels["run_id"] for sample in family.samples] == ["a", "b"]


def test_no_two_metrics_have_one_name() -> None:
    modules = [importlib.import_module(name) for name in sorted(_modules())]
    defined = [metric.name for module in modules for metric in defined_in(module)]
    assert sorted(defined) == sorted(METRICS)


def _modules() -> list[str]:
    """Return every module named `metrics` of the exporter: none is left out of the documents."""
    root = Path(trainwarden_exporter.__file__).parent
    files = [path.relative_to(root.parent).with_suffix("") for path in root.rglob("metrics.py")]
    return [".".join(path.parts) for path in files]
