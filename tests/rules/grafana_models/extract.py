"""Print the models of the grafana-foundation-sdk that is imported, as a VERSION.json of this folder has them."""

from __future__ import annotations

import ast
import enum
import importlib
import inspect
import json
import sys
import textwrap
import types
import typing
from importlib.metadata import version
from typing import Any

PANELS = {"stat": "stat", "timeseries": "timeseries", "table": "table", "state-timeline": "statetimeline"}
# The models have no custom field options of tables for Grafana 10.1; these are used there.
_WITHOUT_MODEL = {"table": "common.TableFieldOptions"}


def keys(model: type) -> tuple[dict[str, str], list[str]]:
    """Return the attribute of each key of a model's JSON, and the keys that it always has, by the code of `to_json`."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(model.to_json)))  # type: ignore[attr-defined]
    attributes: dict[str, str] = {}
    required: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign) and isinstance(node.value, ast.Dict):
            for key, value in zip(node.value.keys, node.value.values, strict=True):
                assert isinstance(key, ast.Constant) and isinstance(key.value, str)
                attributes[key.value] = ast.unparse(value).removeprefix("self.")
                required.append(key.value)
        elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Subscript):
            place = node.targets[0].slice
            assert isinstance(place, ast.Constant) and isinstance(place.value, str)
            attributes[place.value] = ast.unparse(node.value).removeprefix("self.")
    return attributes, required


class Extraction:
    """The definitions of models, each with all that it refers to."""

    def __init__(self) -> None:
        self.definitions: dict[str, dict[str, Any]] = {}

    def refer(self, model: type) -> dict[str, Any]:
        """Return a reference to a model, defined once."""
        name = f"{model.__module__.rpartition('.')[2]}.{model.__name__}"
        if name not in self.definitions:
            self.definitions[name] = {}
            attributes, required = keys(model)
            hints = typing.get_type_hints(model)
            properties = {key: self.schema(hints[attribute]) for key, attribute in sorted(attributes.items())}
            for key in required:  # that is always there may be null
                if type(None) in typing.get_args(hints[attributes[key]]):
                    properties[key] = {"anyOf": [properties[key], {"type": "null"}]}
            self.definitions[name] = {"properties": properties, "required": sorted(required)}
        return {"$ref": name}

    def schema(self, hint: Any) -> dict[str, Any]:
        """Return the schema of a type hint."""
        origin, arguments = typing.get_origin(hint), typing.get_args(hint)
        plain = {str: "string", int: "integer", float: "number", bool: "boolean", dict: "object"}
        if origin is typing.Literal:
            return {"enum": list(arguments)}
        if origin in (typing.Union, types.UnionType):
            choices = [self.schema(each) for each in arguments if each is not type(None)]
            return choices[0] if len(choices) == 1 else {"anyOf": choices}
        if origin is list:
            return {"type": "array", "items": self.schema(arguments[0])}
        if origin is dict:
            return {"type": "object"}
        if hint in plain:
            return {"type": plain[hint]}
        if isinstance(hint, type) and issubclass(hint, enum.Enum):
            return {"enum": [each.value for each in hint]}
        if isinstance(hint, type) and hasattr(hint, "to_json"):
            return self.refer(hint)
        return {}


def main(grafana: str) -> None:
    """Print them, as those of this version of Grafana."""
    module = {
        name: importlib.import_module(f"grafana_foundation_sdk.models.{name}")
        for name in ("common", "dashboard", "prometheus", "units", *PANELS.values())
    }
    extraction = Extraction()
    extraction.refer(module["dashboard"].Dashboard)
    extraction.refer(module["prometheus"].Dataquery)
    panels = {}
    for kind, name in PANELS.items():
        custom = getattr(module[name], "FieldConfig", None)
        if custom is None and kind in _WITHOUT_MODEL:
            custom = getattr(module["common"], _WITHOUT_MODEL[kind].rpartition(".")[2])
        panels[kind] = {
            "options": extraction.refer(module[name].Options)["$ref"],
            "custom": extraction.refer(custom)["$ref"] if custom else None,
        }
    found = {
        "grafana": grafana,
        "source": f"grafana-foundation-sdk {version('grafana-foundation-sdk')}, Apache-2.0, Grafana Labs",
        "panels": panels,
        "units": sorted({str(value) for name, value in vars(module["units"]).items() if name[0].isupper()}),
        "definitions": dict(sorted(extraction.definitions.items())),
    }
    print(json.dumps(found, indent=1, sort_keys=True))


if __name__ == "__main__":
    main(sys.argv[1])
