"""Every metric follows the conventions, and samples become families."""

from __future__ import annotations

import importlib
import pkgutil
from typing import Any

import pytest

import trainwarden_exporter
from tests.cases import cases
from trainwarden_exporter.collectors.runs import metrics as runs
from trainwarden_exporter.core.metric import Families
from trainwarden_exporter.docs import METRICS, defined_in


@cases("name", METRICS)
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
            "DCGM_FI_",
        )
    )
    assert (metric.kind == "counter") == name.endswith("_total")
    assert metric.help.endswith(".")
    assert "|" not in metric.help
    if name.endswith("_timestamp_seconds"):
        assert metric.unit == "Unix seconds"


@cases("labels", [{}, {"run_id": "r", "rank": "0"}, {"job": "r"}])
def test_other_labels_than_those_of_the_metric_are_an_error(labels: dict[str, str]) -> None:
    with pytest.raises(KeyError, match="training_step"):
        Families().add(runs.TRAINING_STEP, 1, **labels)


@cases("value", [None, float("nan"), float("inf")])
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


def test_every_metric_that_a_module_defines_is_documented_once() -> None:
    package = trainwarden_exporter
    names = [found.name for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")]
    modules = [importlib.import_module(name) for name in names if not name.endswith("__main__")]
    defined = {id(metric): metric.name for module in modules for metric in defined_in(module)}
    assert sorted(defined.values()) == sorted(METRICS)
