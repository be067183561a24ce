"""Many broken copies of the same rules in one evaluation: each copy has names of its own, and so have its expectations.

What the rules stand on is evaluated once for all of them, which takes most of the time.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from tests.rules import promql
from tests.rules.cases import labels

# In what promtool prints of a test that fails.
_NUMBERED = re.compile(r"\b(?:M(\d+)_|m(\d+):)")


def numbers_in(printed: str) -> set[int]:
    """Return the numbers of the copies that are named."""
    return {int(alert or record) for alert, record in _NUMBERED.findall(printed)}


def failures(printed: str) -> list[str]:
    """Return the line of each question whose answer is not the expected one, and of each rule that fails."""
    return re.findall(r"^ *(?:expr|rule|alertname): ?.*$", printed, re.MULTILINE)


def unreadable(printed: str) -> str | None:
    """Return the line in which promtool refuses a file of rules or an expression, if there is one."""
    found = re.search(r"^.*(?:rules-\d+\.yml: |parse error).*$", printed, re.MULTILINE)
    return None if found is None else found[0].strip()


def copied_rule(
    rule: dict[str, Any], names: Collection[str], number: int, *, has_texts: bool = False
) -> dict[str, Any]:
    """Return a rule under the name of its copy, reading the copies of what is copied."""
    copy = {key: value for key, value in rule.items() if has_texts or key != "annotations"}
    copy["expr"] = _expression(str(rule["expr"]), names, number)
    key = "alert" if "alert" in rule else "record"
    copy[key] = _name(rule[key], number)
    return copy


def with_copies(test: dict[str, Any], whole: dict[str, Any], copies: Mapping[int, Collection[str]]) -> dict[str, Any]:
    """Return a test that expects of each copy what it expects of the rules in its names, and `whole` of the rest."""
    asked = [{**each, "expr": _without_copies(str(each["expr"]))} for each in whole.get("promql_expr_test", [])]
    fired = list(whole.get("alert_rule_test", []))
    series = list(test["input_series"])
    for number, names in copies.items():
        asked += [each for one in _asked(test, names) for each in _copied_question(one, names, number)]
        fired += [
            {**each, "alertname": _name(each["alertname"], number)}
            for each in test.get("alert_rule_test", [])
            if each["alertname"] in names
        ]
        series += [copy for each in test["input_series"] for copy in _copied_series(each, names, number)]
    return {**test, "input_series": series, "promql_expr_test": asked, "alert_rule_test": fired}


def _name(name: str, number: int) -> str:
    return f"m{number}:{name}" if ":" in name else f"M{number}_{name}"


def _expression(text: str, names: Collection[str], number: int) -> str:
    """Return the expression with each selector of a copied name, and of alerts, that of the copy."""
    for node in sorted(promql.parse(text).walk(), key=lambda each: each.start, reverse=True):
        if node.kind != "selector":
            continue
        if node.name == "ALERTS":
            text = f"{text[: node.start]}{_alerts(node, number)}{text[node.end :]}"
        elif node.name in names:
            text = f"{text[: node.start]}{_name(node.name, number)}{text[node.start + len(node.name) :]}"
        elif not node.name:
            pattern = next(value for label, _, value in node.matchers if label == "__name__")
            if any(re.fullmatch(pattern, name) for name in names):
                raise ValueError(f"{pattern} finds recordings by a pattern, expected a name")
    return text


def _alerts(node: promql.Node, number: int) -> str:
    matchers = [f'alertname=~"M{number}_.+"']
    for label, operator, value in node.matchers:
        wanted = value
        if label == "alertname":
            wanted = f"M{number}_(?:{value})" if "~" in operator else _name(value, number)
        matchers.append(f'{label}{operator}"{wanted}"')
    return f"ALERTS{{{','.join(matchers)}}}"


def _asked(test: dict[str, Any], names: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield the questions of a test about the rules in `names`, with what is expected of them alone."""
    for each in test.get("promql_expr_test", []):
        read = {node.name for node in promql.parse(str(each["expr"])).walk() if node.kind == "selector"}
        samples = each.get("exp_samples") or []
        if "ALERTS" not in read:
            if read & set(names):
                yield each
        elif all("alertname" in labels(sample) for sample in samples):
            kept = [sample for sample in samples if labels(sample)["alertname"] in names]
            yield {**each, "exp_samples": kept}


def _copied_question(question: dict[str, Any], names: Collection[str], number: int) -> Iterator[dict[str, Any]]:
    samples = []
    for sample in question.get("exp_samples") or []:
        text = str(sample.get("labels", ""))
        name, brace, rest = text.partition("{")
        if name in names:
            text = f"{_name(name, number)}{brace}{rest}"
        text = re.sub(r'\balertname="(\w+)"', lambda match: f'alertname="{_name(match[1], number)}"', text)
        samples.append({**sample, "labels": text})
    yield {**question, "expr": _expression(str(question["expr"]), names, number), "exp_samples": samples}


def _copied_series(series: dict[str, Any], names: Collection[str], number: int) -> Iterator[dict[str, Any]]:
    """Yield a series that stands for a copied recording, for its copy."""
    name, brace, rest = series["series"].partition("{")
    if name in names:
        yield {**series, "series": f"{_name(name, number)}{brace}{rest}"}


def _without_copies(text: str) -> str:
    """Return the expression with each selector of alerts but for those of copies."""
    for node in sorted(promql.parse(text).walk(), key=lambda each: each.start, reverse=True):
        if node.kind == "selector" and node.name == "ALERTS":
            matchers = [f'{label}{operator}"{value}"' for label, operator, value in node.matchers]
            selector = ",".join([*matchers, 'alertname!~"M[0-9]+_.+"'])
            text = f"{text[: node.start]}ALERTS{{{selector}}}{text[node.end :]}"
    return text
