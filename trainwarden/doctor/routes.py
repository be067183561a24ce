"""Whether Alertmanager's routes lead an alert to the remediator, by its configuration."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from trainwarden.doctor import Finding

# The path of the remediator's webhook.
WEBHOOK = "/alertmanager/webhook"
# What Alertmanager shows in place of an address, from 0.26 on.
_HIDDEN = "<secret>"
_FIX = "take the routes of alertmanager/alertmanager.yml: docs/alertmanager.md"
# An alert that the remediator acts on, as the shipped rules make it.
_ALERT: Mapping[str, str] = {
    "alertname": "TrainRunStalled",
    "remediate": "true",
    "severity": "critical",
    "failure_mode": "stall",
    "run_id": "a-run",
    "attempt": "0",
}
_MATCHER = re.compile(r"""\s*([a-zA-Z_]\w*)\s*(=~|!~|!=|=)\s*"?((?:[^"\\]|\\.)*?)"?\s*""")


def check_routes(url: str, configuration: str) -> Finding:
    """Return whether an alert with `remediate="true"` reaches a webhook of the remediator.

    Args:
        url: of the Alertmanager, for the message.
        configuration: as Alertmanager shows it, YAML.
    """
    try:
        import yaml  # noqa: PLC0415  # an extra; the other checks go on without it
    except ImportError:
        return Finding("routes", None, "PyYAML is not installed", "pip install 'trainwarden[exporter]'")
    try:
        document = yaml.safe_load(configuration)
        receivers = {str(each["name"]): each for each in document["receivers"]}
        reached = list(_reached(document["route"], _ALERT))
    except (yaml.YAMLError, KeyError, TypeError, AttributeError, ValueError, re.error, RecursionError) as error:
        return Finding("routes", None, f"{url}: its configuration is not understood: {type(error).__name__}", _FIX)
    certain = {name for name, each in receivers.items() if WEBHOOK in map(_path, _addresses(each))}
    possible = {
        name for name, each in receivers.items() if _HIDDEN in _addresses(each) and "remediator" in name.lower()
    }
    if certain.intersection(reached):
        return Finding("routes", True, f"{url} has a route to the remediator")
    if possible.intersection(reached):
        return Finding("routes", True, f"{url} has a route to the receiver {min(possible)}, whose address it hides")
    if certain | possible:
        message = f'no route leads an alert with remediate="true" to the receiver {min(certain | possible)}'
        return Finding("routes", False, message, _FIX)
    return Finding("routes", False, f"no receiver has a webhook with the path {WEBHOOK}", _FIX)


def _addresses(receiver: Mapping[str, Any]) -> list[str]:
    return [str(each.get("url") or each.get("url_file") or "") for each in receiver.get("webhook_configs") or ()]


def _path(url: str) -> str:
    return urlsplit(url).path.rstrip("/")


def _reached(route: Mapping[str, Any], labels: Mapping[str, str], above: str = "") -> Iterator[str]:
    """Yield the receivers of an alert: those of the first route below that takes it, and after one with `continue`."""
    receiver = str(route.get("receiver") or above)
    is_taken = False
    for below in route.get("routes") or ():
        if not _takes(below, labels):
            continue
        is_taken = True
        yield from _reached(below, labels, receiver)
        if not below.get("continue"):
            break
    if not is_taken:
        yield receiver


def _takes(route: Mapping[str, Any], labels: Mapping[str, str]) -> bool:
    equal = all(labels.get(name, "") == str(value) for name, value in (route.get("match") or {}).items())
    alike = all(re.fullmatch(str(value), labels.get(name, "")) for name, value in (route.get("match_re") or {}).items())
    return equal and alike and all(_matches(str(each), labels) for each in route.get("matchers") or ())


def _matches(matcher: str, labels: Mapping[str, str]) -> bool:
    """Return whether an alert has what a matcher such as `severity=~"critical|warning"` demands; raises ValueError."""
    found = _MATCHER.fullmatch(matcher.strip().removeprefix("{").removesuffix("}"))
    if found is None:
        raise ValueError(matcher)
    name, sign, wanted = found[1], found[2], found[3].replace('\\"', '"').replace("\\\\", "\\")
    value = labels.get(name, "")
    is_so = re.fullmatch(wanted, value) is not None if sign.endswith("~") else value == wanted
    return is_so is not sign.startswith("!")
