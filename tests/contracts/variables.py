"""The environment variables that the product reads, each with the commands that read it.

Found in the sources: what a program asks an environment for, texts that have the names of variables of schedulers and
launchers, and what scripts and configurations expand.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.contracts.compare import ROOT

# The sources of each reader.
_READERS = {
    "trainwarden": ("trainwarden", "*.py"),
    "trainwarden-exporter": ("exporter", "*.py"),
    "trainwarden-remediator": ("remediator", "*.py"),
}
_SCRIPTS = ("trainwarden/shell/*.sh", "deploy/**/*", "docker-compose.yml", ".env.example")
_NAME = re.compile(r"(?!.*(?:ERROR|ERR_|EXCEPTION))[A-Z][A-Z0-9_]*[A-Z0-9]")  # the others are codes in logs
_BEGINNING = re.compile(
    "RANK$|RUN_ID$|INSTANCE_ID$|NODE_NAME$|STALE_MINUTES$|(?:TRAINWARDEN|TRAINING_MONITOR|MONITORING|SLURMD?|RAY|TORCH(?:ELASTIC)?|KUBERNETES|POD|MODAL|OMPI|PMIX?|PALS|FLUX|JSM"
    "|MPI|MV2|LSB|PBS|MASTER|WORLD|LOCAL|AWS|EC2|NCCL|FI|XDG|LISTEN|CUDA|HIP|ROCR|JAX|JOB_COMPLETION|SLACK|SNS)_"
)
_ENVIRONMENT = re.compile(r"environ|environment|env|variables")
_EXPANDED = re.compile(r"(?<!\\)\$\{?([A-Z][A-Z0-9_]+)|getenv\(\"([A-Z][A-Z0-9_]+)\"\)")
_ASSIGNED = re.compile(r"^\s*(?:export |local |readonly )?([A-Z][A-Z0-9_]+)=", re.MULTILINE)


def lines() -> Iterator[str]:
    """Yield a line for each variable."""
    found: dict[str, dict[str, None]] = {}
    for reader, (folder, files) in _READERS.items():
        for path in sorted((ROOT / folder).rglob(files)):
            for name in _asked(path.read_text(encoding="utf-8")):
                found.setdefault(name, {})[reader] = None
    for pattern in _SCRIPTS:
        for path in sorted(filter(Path.is_file, ROOT.glob(pattern))):
            for name in _expanded(path):
                found.setdefault(name, {})[path.name] = None
    yield "# name | who reads it"
    yield from (f"{name} | {', '.join(readers)}" for name, readers in sorted(found.items()))


def _asked(source: str) -> Iterator[str]:
    """Yield the names that a program asks an environment for."""
    if not re.search(rf"\"{_BEGINNING.pattern}|{_ENVIRONMENT.pattern}", source):
        return
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            if _NAME.fullmatch(node.value) and _BEGINNING.match(node.value):
                yield node.value
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            if node.func.attr == "getenv" or (node.func.attr == "get" and _is_environment(node.func.value)):
                yield from _literal(node.args[0])
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load) and _is_environment(node.value):
            yield from _literal(node.slice)
        elif isinstance(node, ast.Compare) and _is_environment(node.comparators[0]):
            yield from _literal(node.left)


def _is_environment(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return bool(_ENVIRONMENT.fullmatch(name.strip("_")))


def _literal(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and _NAME.fullmatch(node.value):
        yield node.value


def _expanded(path: Path) -> Iterator[str]:
    """Yield what a script expands without having set it; of an example of variables, what it sets."""
    text = path.read_text(encoding="utf-8")
    if path.name.startswith(".env"):
        yield from re.findall(r"^#?([A-Z][A-Z0-9_]+)=", text, re.MULTILINE)
        return
    text = re.sub(r"(?m)^\s*(?:#|--).*$", "", text)
    own = set(_ASSIGNED.findall(text))
    yield from (name for pair in _EXPANDED.findall(text) for name in pair if name and name not in own)
