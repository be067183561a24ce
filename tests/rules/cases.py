"""The tests in rules/tests, as data."""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import yaml

from tests.rules import promql
from trainwarden.duration import parse_duration

# How tests.rules.promtool writes the clusters of a scenario: in a question, and in a series.
_NUMBERED = re.compile(r'\bcluster=~"(\d+)\[a-z\]\?"')
_OF_NUMBER = re.compile(r'\bcluster="(\d+)[a-z]?"')
Test = tuple[str, dict[str, Any]]  # name of the file, one of its tests


class _Loader(yaml.CSafeLoader):
    """Reads `0x400` as promtool does: 401 zeros, not 1024."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:int"]
    for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"[-+]?\d+$"), list("-+0123456789"))


@functools.cache
def read_tests(folder: Path) -> list[Test]:
    """Return the tests of all files, of those that are played side by side each by itself."""
    return [
        (stem, each)
        for stem, document in read_documents(folder).items()
        for test in document["tests"]
        for each in apart(test)
    ]


def apart(test: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what a test plays side by side, each by itself: what asks for alerts of the clusters of one number."""
    asked: dict[str, list[dict[str, Any]]] = {}
    for each in test.get("promql_expr_test", []):
        if found := _NUMBERED.search(str(each["expr"])):
            asked.setdefault(found[1], []).append(each)
    if not asked:
        return [test]
    shown: dict[str, list[dict[str, Any]]] = {number: [] for number in asked}
    for each in test["input_series"]:
        if found := _OF_NUMBER.search(each["series"]):
            shown[found[1]].append(each)
    return [{**test, "input_series": shown[number], "promql_expr_test": each} for number, each in asked.items()]


@functools.cache
def read_documents(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the content of each file, by its name without the ending. It is read once and not to be changed."""
    return {
        path.stem: yaml.load(path.read_text(encoding="utf-8"), _Loader)  # a safe one
        for path in sorted(folder.glob("*.yml"))
    }


def labels(sample: dict[str, Any]) -> dict[str, str]:
    """Return the labels of an expected sample."""
    return _labels(sample["labels"]) if sample.get("labels") else {}


@functools.cache
def _labels(text: str) -> dict[str, str]:
    return {label: value for label, _, value in promql.parse(text).matchers}


def firing(test: dict[str, Any]) -> list[list[dict[str, str]]]:
    """Return the labels of the alerts that are to fire, at each moment that is asked about, in order."""
    return [[labels(one) for one in each.get("exp_samples") or []] for each in _moments(test)]


def times(test: dict[str, Any]) -> list[float]:
    """Return these moments, in seconds."""
    return [time_of(each) for each in _moments(test)]


def _moments(test: dict[str, Any]) -> list[dict[str, Any]]:
    asked = [each for each in test.get("promql_expr_test", []) if each["expr"].startswith("ALERTS{")]
    return sorted(asked, key=time_of)


def fires(name: str, moment: list[dict[str, str]]) -> bool:
    """Return whether an alert is among those of a moment."""
    return any(each["alertname"] == name for each in moment)


def metrics_of(test: dict[str, Any]) -> set[str]:
    """Return the metrics that a test has."""
    return {each["series"].partition("{")[0] for each in test["input_series"]}


def time_of(asked: dict[str, Any]) -> float:
    """Return the second that a test asks about."""
    text = str(asked["eval_time"])
    return 0.0 if text.rstrip("smh") == "0" else parse_duration(text)
