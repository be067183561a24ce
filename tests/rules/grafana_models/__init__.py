"""Grafana's own models of a dashboard, of several versions, and what of a dashboard contradicts them.

Each file here holds the models of one version as JSON Schema, for what our dashboards are made of. They are made of the
releases of grafana-foundation-sdk (Apache-2.0, Grafana Labs), which Grafana generates from its schemas, one release for
each minor version:

    pip install --no-deps --target FOLDER 'grafana-foundation-sdk==1769699379!11.6.0'
    PYTHONPATH=FOLDER python -m tests.rules.grafana_models.extract 11.6 > tests/rules/grafana_models/11.6.json

`next` is of the development version of January 2026, after 12.3; there is no release for a single version 12 or 13.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
VERSIONS = sorted(path.stem for path in FOLDER.glob("*.json"))
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,),
    "integer": (int,),
    "number": (int, float),
    "boolean": (bool,),
    "array": (list,),
    "object": (dict,),
    "null": (type(None),),
}
_UNKNOWN = "is unknown"
# A row among the panels is known by its type.
_PANELS = [{"$ref": "dashboard.Panel"}, {"$ref": "dashboard.RowPanel"}]


@dataclass(frozen=True)
class Models:
    """The models of one version."""

    version: str
    definitions: dict[str, dict[str, Any]]
    panels: dict[str, dict[str, str | None]]
    """By type of panel the names of the models of its options and of its custom field options."""
    units: frozenset[str]
    """Ids of units; `suffix:TEXT` and `prefix:TEXT` are units, too."""

    def violations(self, document: dict[str, Any]) -> Iterator[str]:
        """Yield where a dashboard contradicts the models: keys that are unknown or missing, wrong types and values."""
        yield from self._object(document, "dashboard.Dashboard", "")

    def _check(self, value: Any, schema: dict[str, Any], where: str) -> Iterator[str]:
        if "$ref" in schema:
            yield from self._object(value, schema["$ref"], where)
        elif schema.get("anyOf") == _PANELS:
            is_row = isinstance(value, dict) and value.get("type") == "row"
            yield from self._check(value, _PANELS[1 if is_row else 0], where)
        elif "anyOf" in schema:
            attempts = [list(self._check(value, each, where)) for each in schema["anyOf"]]
            yield from min(attempts, key=len)
        elif "enum" in schema:
            if not any(value == each and type(value) is type(each) for each in schema["enum"]):
                yield f"{where}: {value!r}, expected one of {schema['enum']}"
        elif where.endswith((".unit", " unit")) and isinstance(value, str):
            if value not in self.units and not value.startswith(("suffix:", "prefix:")):
                yield f"{where}: {value!r}, expected a unit of Grafana"
        elif "type" in schema:
            is_one = isinstance(value, _TYPES[schema["type"]])
            if not is_one or (isinstance(value, bool) and schema["type"] != "boolean"):
                yield f"{where}: {value!r}, expected {schema['type']}"
            elif schema["type"] == "array":
                for number, item in enumerate(value):
                    yield from self._check(item, schema.get("items", {}), f"{where}[{number}]")

    def _object(self, value: Any, name: str, where: str) -> Iterator[str]:
        if not isinstance(value, dict):
            yield f"{where}: {value!r}, expected an object"
            return
        model = self.definitions[name]
        properties = self._of_panel(value, model["properties"]) if name == "dashboard.Panel" else model["properties"]
        for key, item in value.items():
            place = f"{where}.{key}".lstrip(".")
            if key not in properties:
                yield f"{place} {_UNKNOWN}"
            else:
                yield from self._check(item, properties[key], place)
        for key in model["required"]:
            if key not in value:
                yield f"{where}.{key} is missing".lstrip(".")
        if name == "dashboard.Panel" and value.get("type") in self.panels:
            yield from self._field_options(value, where)

    def _of_panel(self, panel: dict[str, Any], properties: dict[str, Any]) -> dict[str, Any]:
        """Put the models of this type of panel where the common one has any object."""
        options = self.panels.get(str(panel.get("type")), {}).get("options")
        return {
            **properties,
            "type": {"enum": sorted(self.panels)},
            "options": {"$ref": options} if options else {},
            "targets": {"type": "array", "items": {"$ref": "prometheus.Dataquery"}},
        }

    def _field_options(self, panel: dict[str, Any], where: str) -> Iterator[str]:
        """Check what is set for fields: the panel's own options, and in overrides both these and the common ones."""
        model = self.panels[panel["type"]]["custom"]
        custom = self.definitions[model]["properties"] if model else {}
        common = self.definitions["dashboard.FieldConfig"]["properties"]
        found = panel.get("fieldConfig")
        if not isinstance(found, dict):
            return
        defaults = found.get("defaults")
        for key, value in (defaults.get("custom") or {}).items() if isinstance(defaults, dict) else ():
            place = f"{where}.fieldConfig.defaults.custom.{key}"
            yield from self._check(value, custom[key], place) if key in custom else iter([f"{place} {_UNKNOWN}"])
        for override in found.get("overrides") or ():
            for each in override.get("properties") or ():
                name = str(each.get("id"))
                known = custom if name.startswith("custom.") else common
                key = name.removeprefix("custom.")
                place = f"{where}.fieldConfig.overrides {name}"
                yield from (
                    self._check(each.get("value"), known[key], place) if key in known else iter([f"{place} {_UNKNOWN}"])
                )


@functools.cache
def models(version: str) -> Models:
    """Return the models of a version of `VERSIONS`."""
    found = json.loads((FOLDER / f"{version}.json").read_text(encoding="utf-8"))
    return Models(version, found["definitions"], found["panels"], frozenset(found["units"]))
