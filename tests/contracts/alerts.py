"""The alerts with their labels and annotations, the recordings that others read, and the routes of Alertmanager."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import yaml

from tests.contracts.compare import ROOT

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RECORDING = re.compile(r"\b[a-z_]+:\w+:\w+")
# The readers of recordings outside the rules, and their files.
_READERS = {
    "dashboards": ("grafana/dashboards", "*.json"),
    "messages": ("alertmanager/templates", "*.tmpl"),
    "the exporter": ("exporter", "*.py"),
    "the remediator": ("remediator", "*.py"),
    "trainwarden": ("trainwarden", "*.py"),
    "runbooks": ("rules/runbooks", "*.md"),
}


def lines() -> Iterator[str]:
    """Yield a line for each rule of an alert, each recording that is read, each route and each inhibition."""
    rules = [rule for path in sorted((ROOT / "rules").glob("[ar]*/*.yml")) for rule in _rules(path.read_text("utf-8"))]
    yield "# alerts: name | for | labels, {{}} where a template makes the value | annotations"
    yield from (_alert(rule) for rule in sorted(filter(_is_alert, rules), key=lambda each: str(each["alert"])))
    yield "# recordings read outside the rules: name | labels that the rule adds | readers"
    yield from _recordings(rules)
    with (ROOT / "alertmanager/alertmanager.yml").open(encoding="utf-8") as file:
        text = file.read()
    switches = sorted(set(re.findall(r"^#(\w+)# ", text, re.MULTILINE)))
    yield "# alertmanager.yml: switches, receivers, routes, inhibitions"
    yield f"switches: {', '.join(switches)}"
    # As it is shipped, and with every switch on.
    for title, document in (("as shipped", text), ("all switched on", re.sub(r"(?m)^#\w+# ", "", text))):
        found = yaml.load(document, _LOADER)
        yield f"receivers, {title}: {', '.join(each['name'] for each in found['receivers'])}"
        yield from (f"route, {title}: {line}" for line in _route(found["route"], 0))
        yield from (f"inhibition, {title}: {_plain(each)}" for each in found["inhibit_rules"])


def _rules(text: str) -> list[dict[str, Any]]:
    return [rule for group in yaml.load(text, _LOADER)["groups"] for rule in group["rules"]]


def _is_alert(rule: Mapping[str, Any]) -> bool:
    return "alert" in rule


def _labels(rule: Mapping[str, Any]) -> str:
    labels = {name: "{{}}" if "{{" in str(text) else text for name, text in rule.get("labels", {}).items()}
    return ", ".join(f"{name}={text}" for name, text in sorted(labels.items()))


def _alert(rule: Mapping[str, Any]) -> str:
    annotations = ", ".join(sorted(rule["annotations"]))
    return f"{rule['alert']} | {rule.get('for', '0s')} | {_labels(rule)} | {annotations}"


def _recordings(rules: list[dict[str, Any]]) -> Iterator[str]:
    read = {reader: set(_names(folder, files)) for reader, (folder, files) in _READERS.items()}
    recordings: dict[str, list[str]] = {}
    for rule in rules:
        if "record" in rule:
            recordings.setdefault(rule["record"], []).append(_labels(rule))
    for name, labels in sorted(recordings.items()):
        if readers := [reader for reader, names in read.items() if name in names]:
            yield f"{name} | {'; '.join(dict.fromkeys(filter(None, labels)))} | {', '.join(readers)}"


def _names(folder: str, files: str) -> Iterator[str]:
    """Yield what has the form of a recording's name in the files."""
    for path in (ROOT / folder).rglob(files):
        yield from _RECORDING.findall(path.read_text(encoding="utf-8"))


def _plain(entry: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in sorted(entry.items()) if key != "routes")


def _route(route: Mapping[str, Any], depth: int) -> Iterator[str]:
    yield f"{'  ' * depth}{_plain(route)}"
    for below in route.get("routes", ()):
        yield from _route(below, depth + 1)
