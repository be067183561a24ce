"""What a team changes in the rules: one file for numbers, labels, links, and each alert by name."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import inf
from typing import TYPE_CHECKING, Any

from trainwarden.duration import parse_duration
from trainwarden.rules.files import SEVERITIES
from trainwarden.rules.values import DURATION, LONGEST_SECONDS
from trainwarden.yaml_file import YamlValue, read_yaml

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from trainwarden.rules.files import RuleFile
    from trainwarden.rules.values import Value

_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*", re.ASCII)
_WAIT = re.compile(f"0|{DURATION.pattern}", re.ASCII)
# What follows it is a path.
_URL = re.compile(r"https?://[^\s\"'<>{}?#]+", re.ASCII)
_NAMESPACE = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_KUBERNETES_LABEL = re.compile(r"[a-zA-Z0-9](?:[-\w.]{0,61}[a-zA-Z0-9])?", re.ASCII)
_KUBERNETES_NAME = re.compile(rf"(?:[a-z0-9](?:[-a-z0-9.]{{0,251}}[a-z0-9])?/)?{_KUBERNETES_LABEL.pattern}", re.ASCII)
# How long after what happened it stays an alert.
_SHOWN = re.compile(r"<\s*[\d.]+\)*\s+# values: (\S+_shown_seconds|scheduler\.time_limit_seconds)")
# What a recording selects from: it is there for as long as that at most, unless an `or` adds something.
_SELECTED_FROM = re.compile(r"\s*([\w:]+)\s+(?:and|unless)\s(?!.*\bor\b)", re.DOTALL)
_FAULT_SHOWN = re.compile(r"(?:gpu|node|fabric)\.\w+_shown_seconds")
# Routes, inhibitions and the remediator read these; others come with the series. A team's label of the same name would
# replace them: two alerts of one rule with equal labels are an error, and the whole rule then raises nothing.
RESERVED = frozenset(
    {
        *("alertname", "alertstate", "severity", "failure_mode", "error_type", "subsystem", "remediate"),
        *("cluster", "instance", "node", "host", "run_id", "job_id", "attempt", "scheduler", "rank", "gpu", "uuid"),
        *(
            "basis",
            "bucket",
            "call",
            "collector",
            "counter",
            "device",
            "error",
            "event",
            "fault",
            "file",
            "partition",
            "pid",
        ),
        *("phase", "port", "prefix", "process", "ray_error_type", "reason", "sensor", "sign", "signal", "source"),
        *("state", "statistic", "submission_id", "superseded", "use", "user", "vendor", "xid"),
        # Two runs that fail at once and have one of these in common are a storm to the remediator.
        *("rack", "switch", "filesystem", "fabric"),
    }
)
# The first always fires, the second where the first does not arrive.
WATCHDOG, DEAD_MANS_SWITCH = "TrainWatchdog", "TrainDeadMansSwitch"


@dataclass(frozen=True)
class AlertChange:
    """What a team wants of one alert; None leaves it as it is."""

    is_enabled: bool = True
    severity: str | None = None
    wait: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)

    def described(self, rules: Iterable[Mapping[str, Any]]) -> Iterator[str]:
        """Yield what is changed of an alert, one thing each; `rules` are those of its name as they were."""
        if not self.is_enabled:
            yield "left out"
            return
        if self.severity is not None:
            yield f"severity {self.severity} instead of {_each(rule['labels'].get('severity') for rule in rules)}"
        if self.wait is not None:
            yield f"for {self.wait} instead of {_each(rule.get('for', '0s') for rule in rules)}"
        for label, text in self.labels.items():
            yield f"label {label}={text}"


def _each(texts: Iterable[str | None]) -> str:
    return ", ".join(dict.fromkeys(str(text) for text in texts))


@dataclass(frozen=True)
class RuleSettings:
    """A team's file.

    Attributes:
        values: number by name, as it stands in a rule.
        labels: added to every alert.
        runbooks: where the runbooks are, in place of the project's own pages; NAME.md follows.
        dashboards: Grafana's address, put before the path of each link.
        alerts: by name.
        namespace, kubernetes_labels: of the PrometheusRule objects.
    """

    values: Mapping[str, str] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    runbooks: str | None = None
    dashboards: str | None = None
    alerts: Mapping[str, AlertChange] = field(default_factory=dict)
    namespace: str | None = None
    kubernetes_labels: Mapping[str, str] = field(default_factory=dict)

    @property
    def changes_only_numbers(self) -> bool:
        """Whether the rule files can keep their comments."""
        return not (self.labels or self.runbooks or self.dashboards or self.alerts)


def read_settings(file: Path, values: Mapping[str, Value], files: Sequence[RuleFile]) -> RuleSettings:
    """Return the settings of a file. Raises `UsageError`, which names file, line, key, value and what was expected."""
    known = ("values", "labels", "runbooks", "dashboards", "alerts", "kubernetes")
    entries = read_yaml(file).mapping(known)
    none: Mapping[str, YamlValue] = {}

    def mapping(key: str, names: Collection[str] | None = None) -> Mapping[str, YamlValue]:
        return entries[key].mapping(names) if key in entries else none

    rules: dict[str, list[Mapping[str, Any]]] = {}
    for rule in (rule for each in files for rule in each.alerts):
        rules.setdefault(rule["alert"], []).append(rule)
    changes = {name: _alert(given, rules[name]) for name, given in mapping("alerts", rules).items()}
    if (
        not changes.get(WATCHDOG, AlertChange()).is_enabled
        and DEAD_MANS_SWITCH in rules
        and changes.get(DEAD_MANS_SWITCH, AlertChange()).is_enabled
    ):
        expected = f"true, or {DEAD_MANS_SWITCH}: {{enabled: false}} beside it, which fires where {WATCHDOG} is missing"
        raise entries["alerts"].at((WATCHDOG, "enabled")).wrong(expected)
    numbers = mapping("values", values)
    chosen = {name: values[name].text(given) for name, given in numbers.items()}
    all_numbers = {name: value.default for name, value in values.items()} | chosen
    _check_burn(numbers, all_numbers)
    _check_faults(numbers, all_numbers)
    _check_idle(numbers, all_numbers)
    recordings = [rule for each in files for rule in each.rules if "record" in rule]
    for name, change in changes.items():
        if change.wait is not None:
            _check_wait(entries["alerts"].at((name, "for")), rules[name], recordings, all_numbers)
    kubernetes = mapping("kubernetes", ("namespace", "labels"))
    return RuleSettings(
        values=chosen,
        labels=_labels(mapping("labels")),
        runbooks=_address(entries.get("runbooks"), "https://wiki.example.com/runbooks"),
        dashboards=_address(entries.get("dashboards"), "https://grafana.example.com"),
        alerts=changes,
        namespace=_matching(kubernetes.get("namespace"), _NAMESPACE, "the name of a namespace"),
        kubernetes_labels={
            name: _kubernetes_label(name, given)
            for name, given in (kubernetes["labels"].mapping() if "labels" in kubernetes else none).items()
        },
    )


def _kubernetes_label(name: str, given: YamlValue) -> str:
    if not _KUBERNETES_NAME.fullmatch(name):
        raise given.wrong(f"a label's name as Kubernetes takes it, not {name!r}")
    return str(_matching(given, _KUBERNETES_LABEL, "a label's value as Kubernetes takes it"))


def _check_burn(given: Mapping[str, YamlValue], numbers: Mapping[str, str]) -> None:
    """Raise `UsageError` where the goodput of no run can be low: what is lost of its time is all of it at most."""
    target = "goodput.target"
    for burn in ("goodput.burn_fast", "goodput.burn_slow"):
        if not given.keys() & {target, burn} or round(float(numbers[burn]) * (1 - float(numbers[target])), 9) < 1:
            continue
        most = f"below {1 / (1 - float(numbers[target])):.4g}, or no run loses so much of the time that {target} leaves"
        if burn in given:
            raise given[burn].wrong(most)
        raise given[target].wrong(f"{burn} beside it, {most}")


def _check_faults(given: Mapping[str, YamlValue], numbers: Mapping[str, str]) -> None:
    """Raise `UsageError` where a fault is shown for longer than its run is known: it would begin anew without it."""
    known = "identity.fault_seconds"
    for name in filter(_FAULT_SHOWN.fullmatch, numbers):
        if not given.keys() & {known, name} or float(numbers[name]) < float(numbers[known]):
            continue
        if name in given:
            raise given[name].wrong(f"below {known} ({numbers[known]}), or the alert loses its run meanwhile")
        raise given[known].wrong(f"above {name} ({numbers[name]}), or the alert loses its run meanwhile")


def _check_idle(given: Mapping[str, YamlValue], numbers: Mapping[str, str]) -> None:
    """Raise `UsageError` where a GPU would be idle and busy at once."""
    idle, busy = "hang.gpu_idle_utilization", "hang.gpu_busy_utilization"
    if given.keys() & {idle, busy} and float(numbers[idle]) > float(numbers[busy]):
        if idle in given:
            raise given[idle].wrong(f"{busy} ({numbers[busy]}) at most, or a GPU is idle and busy at once")
        raise given[busy].wrong(f"{idle} ({numbers[idle]}) at least, or a GPU is idle and busy at once")


def _check_wait(
    given: YamlValue,
    rules: Iterable[Mapping[str, Any]],
    recordings: Sequence[Mapping[str, Any]],
    numbers: Mapping[str, str],
) -> None:
    """Raise `UsageError` where every rule of an alert is over before it has waited for so long."""
    shown = [_shown(rule["expr"], recordings) for rule in rules]
    longest = max((float(numbers[each]) if each else inf for each in shown), default=inf)
    if re.search("[1-9]", given.text) and parse_duration(given.text) >= longest:
        names = ", ".join(dict.fromkeys(each for each in shown if each))
        raise given.wrong(f"less than the {longest:g} s for which it is shown ({names}), or it can never fire")


def _shown(expr: str, recordings: Sequence[Mapping[str, Any]]) -> str:
    """Return the value that states how long a rule is true; empty if none does.

    It stands in the rule, in the recording whose label the rule selects, such as a condition of a run, or in what that
    recording selects from.
    """
    exprs = [expr]
    for rule in recordings:
        stem = re.escape(rule["record"].rpartition(":")[0])
        if any(re.search(f'{stem}:\\w+{{{name}="{text}"', expr) for name, text in rule.get("labels", {}).items()):
            exprs.append(rule["expr"])
    selected = {found[1] for found in map(_SELECTED_FROM.match, exprs) if found}
    exprs += [rule["expr"] for rule in recordings if rule["record"] in selected]
    return next((stated[1] for stated in map(_SHOWN.search, exprs) if stated), "")


def _alert(given: YamlValue, rules: Iterable[Mapping[str, Any]]) -> AlertChange:
    """Return the change of an alert, of which these are the rules."""
    fields = given.mapping(("enabled", "severity", "for", "labels"))
    severity = fields["severity"].scalar() if "severity" in fields else None
    if severity is not None and severity not in SEVERITIES:
        raise fields["severity"].wrong(f"one of {', '.join(SEVERITIES)}")
    for labels in (rule["labels"] for rule in rules if severity is not None):
        if severity != "none" and labels.get("severity") == "none":
            raise fields["severity"].wrong("none: it always fires")
        if severity == "none" and (labels.get("severity") == "critical" or labels.get("remediate") == "true"):
            expected = "critical, warning or info: without severity it reaches nobody (to leave it out: enabled: false)"
            raise fields["severity"].wrong(expected)
    return AlertChange(
        is_enabled=fields["enabled"].boolean() if "enabled" in fields else True,
        severity=severity,
        wait=_wait(fields.get("for")),
        labels=_labels(fields["labels"].mapping()) if "labels" in fields else {},
    )


def _wait(given: YamlValue | None) -> str | None:
    text = _matching(given, _WAIT, "a duration such as 5m")
    if given is not None and re.search("[1-9]", given.text) and parse_duration(given.text) > LONGEST_SECONDS:
        raise given.wrong("a duration such as 5m, of a year at most")
    return text


def _labels(given: Mapping[str, YamlValue]) -> dict[str, str]:
    for name, value in given.items():
        if not _LABEL.fullmatch(name) or name.startswith("__"):
            raise value.wrong(f"letters, digits and _ in a label's name, not {name!r}")
        if name in RESERVED:
            raise value.wrong(f"another name than {name!r}, by which alerts are routed or told apart")
        if "{{" in value.scalar("a text"):
            raise value.wrong("a text that is always the same: a template would make a new alert of each value")
    return {name: value.text for name, value in given.items()}


def _matching(given: YamlValue | None, pattern: re.Pattern[str], expected: str) -> str | None:
    if given is None:
        return None
    text = given.scalar(expected)
    if not pattern.fullmatch(text):
        raise given.wrong(expected)
    return text


def _address(given: YamlValue | None, example: str) -> str | None:
    """Return an address that stands in messages, without a slash at its end."""
    if given is not None and "@" in given.scalar("an address"):
        expected = "one without user and password, as it stands in every message"
        raise given.wrong(expected, "an address with @")
    text = _matching(given, _URL, f"an address such as {example}")
    return text and text.rstrip("/")


def applied(settings: RuleSettings, groups: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the groups with the settings applied, but for numbers; without those that hold no rule any more."""
    changed = ({**group, "rules": [*_rules(settings, group["rules"])]} for group in groups)
    return [group for group in changed if group["rules"]]


def _rules(settings: RuleSettings, rules: Iterable[dict[str, Any]]) -> Iterable[dict[str, Any]]:
    for rule in rules:
        if "alert" not in rule:
            yield rule
            continue
        change = settings.alerts.get(rule["alert"], AlertChange())
        if not change.is_enabled:
            continue
        labels = {**rule["labels"], **settings.labels, **change.labels}
        if change.severity is not None:
            labels["severity"] = change.severity
        annotations = dict(rule["annotations"])
        if settings.runbooks is not None:
            annotations["runbook_url"] = f"{settings.runbooks}/{rule['alert']}.md"
        if settings.dashboards is not None:
            annotations["dashboard"] = settings.dashboards + annotations["dashboard"]
        changed = {**rule, "labels": labels, "annotations": annotations}
        if change.wait is not None:
            changed["for"] = change.wait
        yield changed
