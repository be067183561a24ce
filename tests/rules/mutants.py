"""What can be wrong with a rule: each rule broken in each plausible way, one at a time."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from tests.rules import promql
from trainwarden.duration import parse_duration

_OPPOSITE = {">": "<=", "<=": ">", "<": ">=", ">=": "<", "==": "!=", "!=": "=="}
_FACTORS = (("times 2", 2.0), ("divided by 2", 0.5))
_WINDOWS = (("times 4", 4.0), ("divided by 4", 0.25))
# Their first argument is how many, which nothing else depends on.
_COUNTING = {"topk", "bottomk", "count_values", "quantile"}


@dataclass(frozen=True)
class Mutant:
    """One broken rule; `what` says what was done, and is unique within the rules of one name."""

    what: str
    rule: dict[str, Any]


def mutants(rule: dict[str, Any]) -> list[Mutant]:
    """Return every mutant of one rule."""
    text = str(rule["expr"])
    found = [*_expressions(text), *_waits(rule)]
    seen: Counter[str] = Counter()
    numbered = []
    for what, change in found:
        seen[what] += 1
        broken = copy.deepcopy(rule)
        if isinstance(change, str):
            promql.parse(change)  # a mutant that is no PromQL would be caught by that alone
            broken["expr"] = change
        else:
            del broken[change[0]]
        numbered.append(Mutant(what if seen[what] == 1 else f"{what} ({seen[what]})", broken))
    return numbered


def _waits(rule: dict[str, Any]) -> Iterator[tuple[str, tuple[str]]]:
    for key in ("for", "keep_firing_for"):
        if key in rule:
            yield f"no {key}", (key,)


def _expressions(text: str) -> Iterator[tuple[str, str]]:
    root = promql.parse(text)
    uncounted = _uncounted(root)
    for node in root.walk():
        if node.kind == "binary":
            yield from _operation(text, node)
        elif node.kind == "range" and node.window is not None:
            seconds = parse_duration(node.window.text)
            for what, factor in _WINDOWS:
                window = f"{max(1, round(seconds * factor * 1000))}ms"
                yield f"window {node.window.text} {what}", _replaced(text, node.window.start, node.window.end, window)
        for each in node.lists:
            yield from _labels(text, node, each)
    for node in _constants(root):
        if (node.start, node.end) not in uncounted and text[node.start : node.end].strip() not in {"0", "1e0"}:
            number = text[node.start : node.end]
            for what, factor in _FACTORS:
                yield f"{_flat(number)} {what}", _replaced(text, node.start, node.end, f"({factor:g} * ({number}))")


def _operation(text: str, node: promql.Node) -> Iterator[tuple[str, str]]:
    left, right = node.children
    assert node.operator is not None
    if node.name in promql.COMPARISONS:
        opposite = _OPPOSITE[node.name]
        around = f"{_flat(text[left.start : left.end])[-40:]} {node.name} {_flat(text[right.start : right.end])[:40]}"
        yield f"{opposite} in {around}", _replaced(text, node.operator.start, node.operator.end, opposite)
    if node.name in promql.SETS:
        removed = f"without {node.name} {_flat(text[right.start : right.end])[:70]}"
        yield removed, _replaced(text, left.end, node.end, "")


def _labels(text: str, node: promql.Node, listed: promql.LabelList) -> Iterator[tuple[str, str]]:
    for label in listed.labels:
        others = ", ".join(each.text for each in listed.labels if each is not label)
        what = f"{node.name} {listed.keyword} ({', '.join(listed.names)}) without {label.text}"
        yield what, _replaced(text, listed.start, listed.end, f"{listed.keyword} ({others})")


def _constants(node: promql.Node) -> Iterator[promql.Node]:
    """Yield the largest parts that are numbers alone."""
    if all(each.kind in {"number", "parentheses", "unary", "binary"} for each in node.walk()):
        yield node
        return
    for child in node.children:
        yield from _constants(child)


def _uncounted(root: promql.Node) -> set[tuple[int, int]]:
    return {
        (node.children[0].start, node.children[0].end)
        for node in root.walk()
        if node.kind == "aggregation" and node.name in _COUNTING
    }


def _replaced(text: str, start: int, end: int, new: str) -> str:
    return text[:start] + new + text[end:]


def _flat(text: str) -> str:
    return " ".join(text.split())
