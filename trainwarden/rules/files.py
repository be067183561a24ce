"""The rule files of the bundle, as text and as data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# As Prometheus loads them: what is recorded first.
FOLDERS = ("recording", "alerts")
SEVERITIES = ("critical", "warning", "info", "none")
# Ten times as fast as the other, which a PyYAML without libyaml has alone.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True)
class RuleFile:
    """One rule file.

    Attributes:
        name: its path within the bundle, such as `alerts/runs.yml`.
        groups: its groups, as YAML gives them.
    """

    name: str
    text: str
    groups: list[dict[str, Any]]

    @property
    def rules(self) -> list[dict[str, Any]]:
        """All rules, in the order of the file."""
        return [rule for group in self.groups for rule in group["rules"]]

    @property
    def alerts(self) -> list[dict[str, Any]]:
        """The alerting rules; one alert may have several."""
        return [rule for rule in self.rules if "alert" in rule]


def read_rule_files(rules: Path) -> list[RuleFile]:
    """Return the files of the folder `rules`, sorted by name within recording/ and alerts/."""
    return list(_read(rules))


def groups_of(text: str) -> list[dict[str, Any]]:
    """Return the groups of a rule file."""
    groups: list[dict[str, Any]] = yaml.load(text, _LOADER)["groups"]  # noqa: S506  # both loaders are safe ones
    return groups


def _read(rules: Path) -> Iterator[RuleFile]:
    for folder in FOLDERS:
        for path in sorted((rules / folder).glob("*.yml")):
            text = path.read_text(encoding="utf-8")
            yield RuleFile(f"{folder}/{path.name}", text, groups_of(text))
