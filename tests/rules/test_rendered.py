"""Every alert's texts, as Prometheus makes them, can be read: no gap, no failed template, no number of many digits."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.offenders import assert_none
from tests.rules.cases import firing, times
from tests.rules.mutations import Bundle
from tests.rules.rendered import ALWAYS, Moment, moments, rendered
from tests.rules.rule_files import NAMES
from trainwarden.stack.binaries import Tools

pytestmark = pytest.mark.tools

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


@pytest.fixture(scope="module")
def wanted(bundle: Bundle) -> list[Moment]:
    return list(moments(bundle))


def stated(bundle: Bundle) -> list[Moment]:
    """Return when each case of `CASES` is there first."""
    found = []
    for name, test in CASES:
        ((stem, case),) = ((stem, each) for stem, each in bundle.cases if each["name"] == test)
        second = next(at for at, alerts in zip(times(case), firing(case), strict=True) if alerts)
        found.append(Moment(name, (), stem, case, second))
    return found


def test_every_alert_has_a_moment(wanted: list[Moment]) -> None:
    assert {each.name for each in wanted} == set(NAMES) - {ALWAYS}


def test_the_texts_can_be_read(tools: Tools, bundle: Bundle, tmp_path: Path, wanted: list[Moment]) -> None:
    def unreadable() -> Iterator[str]:
        for moment, found in zip(wanted, rendered(bundle, tools.promtool, wanted, tmp_path), strict=True):
            if not found:
                yield f"{moment.title}: it does not fire"
            for texts in found:
                yield from (f"{moment.title}: {key} is empty" for key in SENTENCES if not texts[key])
                yield from (f"{moment.title}: {key}: {text}" for key, text in texts.items() if WRONG.search(text))

    assert_none(unreadable())


def test_of_several_cases_the_one_is_stated(tools: Tools, bundle: Bundle, tmp_path: Path) -> None:
    found = rendered(bundle, tools.promtool, stated(bundle), tmp_path)
    assert_none(
        f"{name}: {test}: no text has {expected!r}: {some}"
        for ((name, test), expected), some in zip(CASES.items(), found, strict=True)
        if not any(expected in text for texts in some for text in texts.values())
    )
