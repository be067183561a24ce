"""Every metric is read by a rule, a panel or the remediator, or stands on a list with what a person looks at it for."""

from __future__ import annotations

import fnmatch
import re
from pathlib import Path

from trainwarden_exporter.docs import METRICS

ROOT = Path(__file__).resolve().parents[2]
LIST = ROOT / "docs" / "metrics-without-a-rule.md"
READERS = (
    "rules/alerts/*.yml",
    "rules/recording/*.yml",
    "grafana/**/*.json",
    "alertmanager/**/*.*",
    "remediator/**/*.py",
)


def metrics_read() -> set[str]:
    """Return the metrics that the readers name, or match by a regular expression on `__name__`."""
    text = "\n".join(
        path.read_text(encoding="utf-8") for pattern in READERS for path in ROOT.glob(pattern) if path.is_file()
    )
    # A module may have the name of a metric.
    text = re.sub(r"^(?:from|import) \S+", "", text, flags=re.MULTILINE)
    words = set(re.findall(r"[a-z_][a-z0-9_]*", text))
    patterns = re.findall(r'__name__=~\\?"(\w[^"\\]*)', text)
    return {name for name in METRICS if name in words or any(re.fullmatch(each, name) for each in patterns)}


def listed() -> dict[str, str]:
    """Return the patterns of the list, each with its reason."""
    entries = re.findall(r"^- ((?:`[^`]+`(?:, )?)+): (.+)$", LIST.read_text(encoding="utf-8"), re.MULTILINE)
    return {pattern: reason for patterns, reason in entries for pattern in re.findall(r"`([^`]+)`", patterns)}


def test_every_metric_is_read_or_stands_on_the_list() -> None:
    read, patterns = metrics_read(), listed()
    assert len(read) > 20
    unread = METRICS.keys() - read
    assert sorted(name for name in unread if not any(fnmatch.fnmatch(name, each) for each in patterns)) == []


def test_the_list_holds_nothing_that_a_reader_needs_no_more() -> None:
    unread = METRICS.keys() - metrics_read()
    assert sorted(pattern for pattern in listed() if not fnmatch.filter(unread, pattern)) == []
    stale = {
        f"{pattern}: {name} is read"
        for pattern in listed()
        for name in fnmatch.filter(METRICS.keys() - unread, pattern)
        if pattern == name
    }
    assert stale == set()


def test_every_line_of_the_list_has_metrics_and_a_reason() -> None:
    lines = [line for line in LIST.read_text(encoding="utf-8").splitlines() if line.startswith("- ")]
    assert len(lines) > 20
    assert [line for line in lines if not re.fullmatch(r"- (?:`[A-Za-z0-9_*?]+`(?:, )?)+: .{20,}", line)] == []
