"""Messages to people and machines: the names of templates, and what the remediator reads of an alert."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.contracts.compare import ROOT


def lines() -> Iterator[str]:
    """Yield a line for each name."""
    yield "# templates of messages: name, and from where it is called"
    files = sorted((ROOT / "alertmanager/templates").glob("*.tmpl"))
    texts = {file.name: file.read_text(encoding="utf-8") for file in files}
    texts["alertmanager.yml"] = (ROOT / "alertmanager/alertmanager.yml").read_text(encoding="utf-8")
    for file, text in texts.items():
        for name in re.findall(r'{{-? *define "([^"]+)"', text):
            users = [each for each, other in texts.items() if re.search(rf'template "{re.escape(name)}"', other)]
            yield f"{file}: {name} | {', '.join(users)}"
    for file, text in texts.items():
        for kind in ("Labels", "Annotations"):
            used = sorted(set(re.findall(rf"\.(?:Common)?{kind}\.(\w+)", text)))
            if used:
                yield f"{file}: {kind.lower()} | {', '.join(used)}"
    yield "# what the remediator reads of an alert and of the answers of Prometheus"
    for what, names in (("labels", _read("label", "labels")), ("annotations", _read("annotation", "annotations"))):
        yield f"{what} | {', '.join(sorted(set(names)))}"


def _read(method: str, mapping: str) -> Iterator[str]:
    """Yield the names that are asked of `x.label("…")`, `x.labels["…"]` and `x.labels.get("…")`."""
    for path in sorted((ROOT / "remediator").rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if method not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            asked: ast.expr | None = None
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                is_get = node.func.attr == "get" and _is(node.func.value, mapping)
                asked = node.args[0] if node.func.attr == method or is_get else None
            elif isinstance(node, ast.Subscript) and _is(node.value, mapping):
                asked = node.slice
            if isinstance(asked, ast.Constant) and isinstance(asked.value, str):
                yield asked.value


def _is(node: ast.expr, name: str) -> bool:
    return (isinstance(node, ast.Attribute) and node.attr == name) or (isinstance(node, ast.Name) and node.id == name)
