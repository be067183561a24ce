"""The catalogue is the only place where a metric is defined."""

from __future__ import annotations

from typing import Any

import pytest

from trainwarden_exporter.catalog import METRICS, Families
from trainwarden_exporter.metric import KINDS


@pytest.mark.parametrize("name", METRICS)
def test_a_name_follows_the_conventions(name: str) -> None:
    entry = METRICS[name]
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
    assert (entry.kind == "counter") == name.endswith("_total")
    assert entry.kind in KINDS
    assert entry.help.endswith(".")
    assert "|" not in entry.help
    if name.endswith("_timestamp_seconds"):
        assert entry.unit == "Unix seconds"


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(KeyError, match="training_magic"):
        Families().add("training_magic", 1)


@pytest.mark.parametrize("labels", [{}, {"run_id": "r", "rank": "0"}, {"job": "r"}])
def test_other_labels_than_those_of_the_catalogue_are_an_error(labels: dict[str, str]) -> None:
    with pytest.raises(KeyError, match="training_step"):
        Families().add("training_step", 1, **labels)


@pytest.mark.parametrize("value", [None, float("nan"), float("inf")])
def test_missing_is_not_zero(value: Any) -> None:
    families = Families()
    families.add("training_step", value, run_id="r")
    assert families.collected() == []


def test_samples_of_one_name_are_one_family() -> None:
    families = Families()
    for run_id in "ab":
        families.add("training_step", 1, run_id=run_id)
    (family,) = families.collected()
    assert [sample.labels["run_id"] for sample in family.samples] == ["a", "b"]
