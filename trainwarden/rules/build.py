"""The rule files as a team loads them: as Prometheus reads them, as objects of its operator, or for Mimir."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from trainwarden.duration import parse_duration
from trainwarden.errors import UsageError
from trainwarden.rules.files import RuleFile, groups_of, read_rule_files
from trainwarden.rules.settings import RuleSettings, applied, read_settings
from trainwarden.rules.values import check_markers, home, read_values, substitute
from trainwarden.stack.bundle import bundle

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from trainwarden.rules.values import Value

FORMATS = ("prometheus", "prometheusrule", "mimir")


class Rules:
    """The bundle's rules, with a team's settings.

    Args:
        settings_file: the team's file; None for the defaults.
        folder: of the rules; those that Trainwarden ships if None.
    """

    def __init__(self, settings_file: Path | None = None, folder: Path | None = None) -> None:
        folder = folder or bundle("rules")
        self.defaults = read_rule_files(folder)
        self.values: Mapping[str, Value] = read_values(folder / "values.yml")
        check_markers(self.defaults, self.values)
        self.settings = (
            RuleSettings() if settings_file is None else read_settings(settings_file, self.values, self.defaults)
        )

    @cached_property
    def files(self) -> list[RuleFile]:
        """The files with the settings applied; without those that hold no rule any more."""
        made = []
        for file in self.defaults:
            text = substitute(file.text, self.settings.values)
            groups = applied(self.settings, groups_of(text))
            made.append(replace(file, text=text, groups=groups))
        return [file for file in made if file.groups]

    def written(self, kind: str) -> Iterator[tuple[str, str]]:
        """Yield path and text of each file, in one of `FORMATS`."""
        for file in self.files:
            name = file.name.removesuffix(".yml").replace("/", "-")
            if kind == "prometheusrule":
                yield f"trainwarden-{name}.yaml", _dump(self._object(f"trainwarden-{name}", file))
            elif kind == "mimir":
                yield f"trainwarden-{name}.yaml", _dump({"namespace": f"trainwarden-{name}", "groups": file.groups})
            elif self.settings.changes_only_numbers:
                yield file.name, file.text
            else:
                yield file.name, _dump({"groups": file.groups})

    def settled(self, alert: str) -> list[dict[str, Any]]:
        """Return the rules of an alert as they are without settings."""
        return [rule for file in self.defaults for rule in file.alerts if rule["alert"] == alert]

    def wait_of(self, value: str) -> float:
        """Return how many seconds the alerts wait in which a value stands, or whose recording it stands in."""
        homes = home(self.defaults, value)
        waits = [
            parse_duration(rule["for"])
            for file in self.files
            for rule in file.alerts
            if rule.get("for", "0s") != "0s" and (rule["alert"] in homes or any(each in rule["expr"] for each in homes))
        ]
        return max(waits, default=0.0)

    def _object(self, name: str, file: RuleFile) -> dict[str, Any]:
        metadata: dict[str, Any] = {"name": name.replace("_", "-")}
        if self.settings.namespace is not None:
            metadata["namespace"] = self.settings.namespace
        metadata["labels"] = {"app.kubernetes.io/name": "trainwarden", **self.settings.kubernetes_labels}
        return {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "PrometheusRule",
            "metadata": metadata,
            "spec": {"groups": file.groups},
        }


def write(rules: Rules, kind: str, folder: Path) -> list[Path]:
    """Write the files below `folder` and return them.

    Raises:
        UsageError: the folder holds other YAML than this writes, which would be loaded beside it.
    """
    texts = {folder / name: text for name, text in rules.written(kind)}
    try:
        other = sorted(path for end in ("yml", "yaml") for path in folder.rglob(f"*.{end}") if path not in texts)
        if other:
            raise UsageError(f"{other[0]}: not made by this build and loaded beside it, expected a folder of its own")
        for path, text in texts.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{error.filename}: {error.strerror}, expected a folder to write to") from error
    return list(texts)


class _Dumper(yaml.SafeDumper):
    """Writes a text of several lines as one, and nothing as an alias."""

    def ignore_aliases(self, data: Any) -> bool:  # noqa: ARG002  # the hook's own signature
        return True


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style)


_Dumper.add_representer(str, _text)


def _dump(document: Mapping[str, Any]) -> str:
    head = "# Made by `trainwarden rules build`; change the file of values and make it again.\n"
    return head + yaml.dump(document, Dumper=_Dumper, sort_keys=False, width=120, allow_unicode=True)
