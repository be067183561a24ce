"""The configuration that Trainwarden ships: the same files in a checkout and in an installed wheel."""

from __future__ import annotations

from pathlib import Path

_PARTS = {
    "rules": "rules",
    "alertmanager": "alertmanager",
    "grafana": "grafana",
    "prometheus": "deploy/prometheus",
}


class BundleMissing(Exception):
    """A part of the shipped configuration is missing; the message names the folder."""


def bundle(part: str) -> Path:
    """Return the folder of one part: rules, alertmanager, grafana or prometheus. Raises BundleMissing."""
    package = Path(__file__).resolve().parents[1]
    for folder in (package.parent / _PARTS[part], package / "bundle" / part):
        if folder.is_dir():
            return folder
    message = f"the shipped configuration {part!r} is missing beside {package}: install trainwarden again"
    raise BundleMissing(message)
