"""Encoding: once when sampled, and ages true when read."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.openmetrics.parser import text_string_to_metric_families as openmetrics_families
from prometheus_client.parser import text_string_to_metric_families

from trainwarden_exporter.core.exposition import AnyFamily, Encoder, render
from trainwarden_exporter.core.metric import Family, histogram


def parsed(page: bytes) -> dict[tuple[str, str], float]:
    return {
        (sample.name, sample.labels.get("run_id", "")): sample.value
        for family in text_string_to_metric_families(page.decode())
        for sample in family.samples
    }


def page(families: Iterable[AnyFamily], elapsed: float) -> bytes:
    return render([(Encoder().encode(families), elapsed)])


def gauge(name: str, **values: float) -> GaugeMetricFamily:
    family = GaugeMetricFamily(name, "Help.", labels=["run_id"])
    for run_id, value in values.items():
        family.add_metric([run_id], value)
    return family


def test_an_age_grows_between_sample_and_scrape_and_nothing_else_does() -> None:
    families = [gauge("training_heartbeat_age_seconds", a=1.5, b=-2), gauge("training_step", a=7)]
    assert parsed(page(families, 0)) == parsed(page(families, 30)) | {
        ("training_heartbeat_age_seconds", "a"): 1.5,
        ("training_heartbeat_age_seconds", "b"): -2,
    }
    assert parsed(page(families, 30)) == {
        ("training_heartbeat_age_seconds", "a"): 31.5,
        ("training_heartbeat_age_seconds", "b"): 28,
        ("training_step", "a"): 7,
    }


def test_help_and_type_of_an_age_appear_once_and_first() -> None:
    lines = page([gauge("training_heartbeat_age_seconds", a=1, b=2)], 1).decode().splitlines()
    assert [line.split()[1] for line in lines[:2]] == ["HELP", "TYPE"]
    assert not any(line.startswith("#") for line in lines[2:])


def test_a_family_collected_twice_is_refused() -> None:
    with pytest.raises(ValueError, match="training_step"):
        page([gauge("training_step", a=1), gauge("training_step", b=1)], 0)


def test_a_counter_has_its_suffix_once() -> None:
    family = CounterMetricFamily("training_nonfinite_total", "Help.", labels=["run_id"])
    family.add_metric(["r"], 3)
    assert parsed(page([family], 0)) == {("training_nonfinite_total", "r"): 3}


def test_any_label_value_survives_the_parser() -> None:
    value = 'quote " backslash \\ newline \n brace } comma ,'
    assert parsed(page([gauge("training_step", **{value: 1})], 0)) == {("training_step", value): 1}
    assert parsed(page([gauge("x_age_seconds", **{value: 1})], 1)) == {("x_age_seconds", value): 2}


def test_the_lines_of_a_family_stand_together_whoever_sampled_them() -> None:
    parts = [
        (Encoder().encode([gauge("training_step", a=1), gauge("training_loss", a=2)]), 0.0),
        (Encoder().encode([gauge("training_loss", b=3), gauge("training_step", b=4)]), 0.0),
    ]
    lines = render(parts).decode().splitlines()
    assert [line.partition("{")[0] for line in lines if not line.startswith("#")] == [
        "training_step", "training_step", "training_loss", "training_loss"]  # fmt: skip
    assert sum(line.startswith("# TYPE") for line in lines) == 2


def test_a_series_twice_in_one_sample_is_refused() -> None:
    twice = gauge("training_step", a=1)
    twice.add_metric(["a"], 2)
    with pytest.raises(ValueError, match="training_step has a series twice"):
        page([twice], 0)


def test_an_encoder_follows_series_that_come_and_go() -> None:
    encoder = Encoder()
    first = encoder.encode([gauge("training_step", a=1, b=2)])
    assert encoder.encode([gauge("training_step", a=5, b=6)]).series is first.series
    assert encoder.encode([gauge("training_step", b=7, a=8)]).series is not first.series
    assert parsed(render([(encoder.encode([gauge("training_step", c=3)]), 0.0)])) == {("training_step", "c"): 3}


def test_a_histogram_is_one_in_both_formats() -> None:
    family = Family(histogram("finished_seconds", "run_id", "seconds", "Help."))
    family.add_histogram(("r",), [(1, 2), (2.5, 3), (float("inf"), 4)], 9.5)
    encoded = Encoder().encode([family])
    expected = {
        ("finished_seconds_bucket", "1.0"): 2,
        ("finished_seconds_bucket", "2.5"): 3,
        ("finished_seconds_bucket", "+Inf"): 4,
        ("finished_seconds_count", ""): 4,
        ("finished_seconds_sum", ""): 9.5,
    }
    for page_text, parse in (
        (render([(encoded, 0)]), text_string_to_metric_families),
        (render([(encoded, 0)], openmetrics=True), openmetrics_families),
    ):
        samples = [sample for found in parse(page_text.decode()) for sample in found.samples]
        assert {(sample.name, sample.labels.get("le", "")): sample.value for sample in samples} == expected
