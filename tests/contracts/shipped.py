"""What is shipped by name: restart policies with their values, signal packs with their signals, and failures."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.contracts.compare import ROOT
from trainwarden.taxonomy import FAILURES

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_OF_FAILURE = ("error_type", "category", "subsystem", "fault", "severity", "action")
_FLAGS = ("retryable", "retryable_in_process", "cascade")


def lines() -> Iterator[str]:
    """Yield a line for each value of a policy, each setting and signal of a pack, and each failure."""
    yield "# policies: name: key = value"
    for file in sorted((ROOT / "remediator").rglob("policies/*.yaml")):
        yield from (f"{file.stem}: {key} = {value}" for key, value in _leaves("", _read(file)))
    yield "# packs: name: key = value; signals: name | what a verdict has of it | keys"
    for file in sorted((ROOT / "trainwarden").rglob("packs/**/*.yaml")):
        document = _read(file)
        name = file.stem if file.parent.name == "packs" else f"{file.parent.name}/{file.stem}"
        signals = document.pop("log_signals", [])
        yield from (f"{name}: {key} = {json.dumps(value)}" for key, value in sorted(document.items()))
        yield from (f"{name}: {_signal(each)}" for each in signals)
    yield f"# failures: slug | {' | '.join(_OF_FAILURE)} | {', '.join(_FLAGS)}"
    for slug, failure in sorted(FAILURES.items()):
        flags = ", ".join(name for name in _FLAGS if getattr(failure, name))
        yield f"{slug} | {' | '.join(str(getattr(failure, name)) for name in _OF_FAILURE)} | {flags}"


def _read(file: Path) -> dict[str, Any]:
    found: dict[str, Any] = yaml.load(file.read_text(encoding="utf-8"), _LOADER)
    return found


def _leaves(name: str, value: Any) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, below in value.items():
            yield from _leaves(f"{name}.{key}" if name else key, below)
    elif isinstance(value, list) and value and isinstance(value[0], dict):
        for number, below in enumerate(value):
            yield from _leaves(f"{name}[{below.get('mode', number)}]", below)
    else:
        yield name, json.dumps(value)


def _signal(signal: dict[str, Any]) -> str:
    metadata = signal.get("metadata", {})
    state = signal.get("state")
    known = {key: signal.get(key) for key in ("role", "failure", "framework", "enabled")}
    known["state"] = state["class_name"] if isinstance(state, dict) else state
    known |= {f"metadata.{key}": value for key, value in metadata.items()}
    shown = ", ".join(f"{key}={value}" for key, value in known.items() if value is not None)
    actions = ", ".join(each["class_name"] if isinstance(each, dict) else each for each in signal.get("actions", ()))
    return " | ".join(
        filter(None, (signal["name"], shown, actions, ", ".join(sorted(signal.get("extract_groups", ())))))
    )
