"""Every alert's texts, as Prometheus makes them, can be read: no gap, no failed template, no number of many digits."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.rules.cases import firing, times
from tests.rules.mutations import Bundle
from tests.rules.rendered import ALWAYS, Moment, moments, rendered
from tests.rules.rule_files import NAMES, ROOT
from trainwarden.stack.binaries import Tools

pytestmark = pytest.mark.tools

BUNDLE = Bundle(ROOT / "rules")
MOMENTS = list(moments(BUNDLE))
# In sentences; links and lists of what is known may be empty.
SENTENCES = ("summary", "description", "reason", "action")
WRONG = re.compile(
    r"<error|<no value>|%!|\{\{|\}\}|\bNaN\b(?! or infinite)|[+-]Inf"
    r"|\d\.\d{4,}|\de[+-]?\d|  | \(\)| [,.;:)]|\( |^\s|\s$"
)
# What texts say of one case among several, by the name of the test.
CASES = {
    ("TrainDiskFilling", "space that goes within four hours, at the pace of the last hour"): (
        "is left, and at the pace of the last hour it is full within hours."
    ),
    ("TrainDiskFilling", "no inodes left"): "hardly any file can be added: its inodes are used up.",
    ("TrainExporterDown", "an exporter whose node has no other name is known by its address"): (
        "curl gpu-7:9745/-/healthy."  # as Kubernetes calls it, by the name of its node
    ),
    # A message shows the reason alone.
    ("TrainGpuRecoveryWanted", "a recovery that the driver requests is named until it is done"): (
        "The driver requests a reset for GPU"
    ),
    (
        "TrainGpuMemoryWearingOut",
        "memory that waits for its repair, cannot be repaired, or has too many errors is worn until that is over",
    ): (": bad memory could not be replaced."),
    ("TrainGpuThrottled", "every reason that is not the cap counts"): "for 10m 0s of the last ten minutes.",
}


def test_every_alert_has_a_moment() -> None:
    assert {each.name for each in MOMENTS} == set(NAMES) - {ALWAYS}


@pytest.mark.parametrize("moment", MOMENTS, ids=[each.title for each in MOMENTS])
def test_its_texts_can_be_read(tools: Tools, tmp_path: Path, moment: Moment) -> None:
    found = rendered(BUNDLE, tools.promtool, moment, tmp_path)
    assert found
    for texts in found:
        assert all(texts[key] for key in SENTENCES)
        assert [f"{key}: {text}" for key, text in texts.items() if WRONG.search(text)] == []


@pytest.mark.parametrize(("name", "test"), CASES)
def test_of_several_cases_the_one_is_stated(tools: Tools, tmp_path: Path, name: str, test: str) -> None:
    ((stem, case),) = ((stem, each) for stem, each in BUNDLE.cases if each["name"] == test)
    second = next(at for at, alerts in zip(times(case), firing(case), strict=True) if alerts)
    found = rendered(BUNDLE, tools.promtool, Moment(name, (), stem, case, second), tmp_path)
    assert any(CASES[name, test] in text for texts in found for text in texts.values()), found
