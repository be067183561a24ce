"""Validation errors as lines that a person can act on: line of the file, key, value, what was expected."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args

from pydantic import BaseModel

from trainwarden.yaml_file import near_match

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from pydantic import ValidationError

    from trainwarden.yaml_file import YamlValue

_MAX_VALUE = 60


def problems_of(
    error: ValidationError, model: type[BaseModel] | None = None, document: YamlValue | None = None
) -> list[str]:
    """Return one line per problem, in the order of the input.

    Args:
        error: what pydantic found.
        model: what was validated; with it an unknown key is named with a known one that is near.
        document: the file that was validated; with it each problem begins with its line.
    """
    return [_problem(each, model, document) for each in error.errors(include_url=False)]


def _problem(each: Any, model: type[BaseModel] | None, document: YamlValue | None) -> str:
    place = ""
    for part in each["loc"]:
        place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
    place = place or "the file"
    if document is not None:
        place = f"line {document.at(each['loc']).line}: {place}"
    if each["type"] == "extra_forbidden":
        near = near_match(str(each["loc"][-1]), _keys_at(model, each["loc"][:-1])) if model else None
        return f"{place}: unknown key" + (f", expected {near}?" if near else "")
    if each["type"] == "missing":
        return f"{place}: missing"
    message = str(each["msg"]).removeprefix("Value error, ").replace("Input should be", "expected", 1)
    if each["type"] == "value_error":
        return f"{place}: {message}"
    if each["type"] == "int_parsing":
        message = "expected a whole number"
    value = repr(each["input"])
    if len(value) > _MAX_VALUE:
        value = f"{value[:_MAX_VALUE]}…"
    return f"{place}: {value}: {message}"


def _keys_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Return the keys that the model at `path` within `model` has."""
    for part in path:
        if isinstance(part, str):
            inner = list(_models_in(model.model_fields[part].annotation))
            if len(inner) != 1:
                return []
            model = inner[0]
    return list(model.model_fields)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
