"""Files of a fine-tuning job that its user has written: documents in JSON or YAML, and data sets in JSON lines."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from trainwarden.regular_file import read_regular_file

_MAX_BYTES = 32 * 2**20
_MAX_FILES = 1000
_MAX_PROMPTS = 5
_PROMPTS = ("prompt", "instruction", "question", "input", "text")


class UnreadableDocument(Exception):
    """A file holds no JSON or YAML object; the message names the file and the reason."""


def read_document(path: Path) -> Mapping[str, Any]:
    """Return the object in a JSON or YAML file; a list in a JSON file becomes a history. Raises UnreadableDocument."""
    try:
        data = read_regular_file(path, _MAX_BYTES + 1)
    except OSError as error:
        raise UnreadableDocument(f"{path}: {error.strerror}") from None
    if len(data) > _MAX_BYTES:
        raise UnreadableDocument(f"{path}: is larger than {_MAX_BYTES} bytes")
    is_yaml = path.suffix in {".yaml", ".yml"}
    try:
        values = yaml.safe_load(data) if is_yaml else json.loads(data)
    except (ValueError, RecursionError, yaml.YAMLError) as error:
        problem = " ".join(str(error).split())
        raise UnreadableDocument(f"{path}: is not {'YAML' if is_yaml else 'JSON'}: {problem}") from None
    if isinstance(values, list):
        return {"history": values}
    if not isinstance(values, dict):
        raise UnreadableDocument(f"{path}: holds a {type(values).__name__}, expected an object")
    return values


def read_prompts(path: Path) -> list[str]:
    """Return the first prompts of a data set of JSON lines: of `prompt`, `instruction`, `messages` and the like.

    Raises:
        UnreadableDocument: the file cannot be read, or has no prompt.
    """
    try:
        lines = read_regular_file(path, _MAX_BYTES).decode("utf-8", "replace").splitlines()
    except OSError as error:
        raise UnreadableDocument(f"{path}: {error.strerror}") from None
    found: list[str] = []
    for line in lines:
        try:
            entry = json.loads(line) if line.strip() else None
        except (ValueError, RecursionError):
            continue
        if not isinstance(entry, Mapping):
            continue
        first = next(iter(entry.get("messages") or ()), None) if isinstance(entry.get("messages"), list) else None
        stated = [entry.get(key) for key in _PROMPTS] + [first.get("content") if isinstance(first, Mapping) else None]
        found += [text for text in stated if isinstance(text, str) and text.strip()][:1]
        if len(found) == _MAX_PROMPTS:
            break
    if not found:
        raise UnreadableDocument(f"{path}: no line has a prompt; expected JSON lines with {', '.join(_PROMPTS)}")
    return found


def broken_json(path: Path) -> list[str]:
    """Return which JSON files of a folder cannot be read, with the reason; or whether this one file can."""
    files = [path] if path.is_file() else sorted(path.rglob("*.json"))[:_MAX_FILES]
    broken = []
    for file in files:
        if file.suffix != ".json" or not file.is_file():
            continue
        try:
            data = read_regular_file(file, _MAX_BYTES + 1)
            if len(data) <= _MAX_BYTES:  # a larger one is data, and no description of it
                json.loads(data)
        except (OSError, ValueError, RecursionError) as error:
            broken.append(f"{file.name}: {error}")
    return broken
