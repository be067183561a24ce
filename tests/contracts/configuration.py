"""The configuration files that users write: their keys, what each value must be, and what holds without the key.

A file with every key is given to the command that reads it. Then one value after the other is a wrong one, and what the
command says that it expected is the contract; and a key that nobody has, for which it lists those that there are.
"""

from __future__ import annotations

import copy
import dataclasses
import functools
import os
import re
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tests.contracts.calling import call
from tests.contracts.compare import ROOT, anywhere
from tests.contracts.formats import FORMATS, RULES, Format

_WRONG = "?!"
# Quoted or not, by the version of argparse.
_CHOICES = re.compile(r"\(choose from .*?\)")
_THRESHOLDS = ({"stale_seconds": 60}, {"stale_seconds": 0}, {"stall_seconds": {"train": 60}}, {"stall_factor": 5})


def lines() -> Iterator[str]:
    """Yield a line for each key and each default."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            for name in ("empty", "runs"):
                Path(name).mkdir()
            Path("token").write_text("secret")
            for each in FORMATS:
                yield from _probed(each)
            yield from _defaults()
        finally:
            os.chdir(before)
    yield "# rules/values.yml: name | default | what it may be | meaning"
    with (ROOT / "rules/values.yml").open(encoding="utf-8") as file:
        for name, value in yaml.safe_load(file)["values"].items():
            bounds = ", ".join(f"{key} {value[key]}" for key in ("unit", "least", "most", "fires") if key in value)
            yield f"{name} | {value['default']} | {bounds} | {value['meaning']}"


def _probed(tried: Format) -> Iterator[str]:
    yield f"# {tried.name}"
    whole = _answer(tried, tried.document)
    yield f"all of it: {whole}"
    for path, value in _values(tried.document, ()):
        shown = re.sub(r"\.\[", "[", ".".join(f"[{each}]" if isinstance(each, int) else each for each in path))
        if isinstance(value, dict):
            yield f"{shown or 'file'}: another key: {_answer(tried, _with(tried.document, path, {**value, 'zzzz': 1}))}"
        if path:
            said = _answer(tried, _with(tried.document, path, _WRONG))
            yield f"{shown}: {'any text' if said == whole else said}"


def _values(value: Any, path: tuple[Any, ...]) -> Iterator[tuple[tuple[Any, ...], Any]]:
    yield path, value
    if isinstance(value, dict):
        for name, below in value.items():
            yield from _values(below, (*path, name))
    elif isinstance(value, list) and isinstance(value[0], dict):
        yield from _values(value[0], (*path, 0))


def _with(document: Any, path: Sequence[Any], value: Any) -> Any:
    if not path:
        return value
    changed = copy.copy(document)
    changed[path[0]] = _with(document[path[0]], path[1:], value)
    return changed


def _answer(tried: Format, document: Any) -> str:
    """Return what a command says that it expected; the last line that it printed where there is no such word."""
    Path("file.yml").write_text(yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    if tried.command == RULES:
        status, said = _read_values(Path("file.yml"))
    else:
        status, _, said = call(*(word.replace("FILE", "file.yml") for word in tried.command.split()))
    if status == 0:
        return "right"
    said = _CHOICES.sub(lambda found: found[0].replace("'", ""), " ".join(said.split()))
    place = re.search(r"file\.yml: (?:line \d+: )?(?:key \S+: )?(.*)", said)
    return f"{status}, {anywhere(place[1]) if place else anywhere(said)}".replace(str(Path.cwd()), "")


def _read_values(file: Path) -> tuple[int, str]:
    """Read a team's values as `trainwarden rules build` does, which reads all rules anew each time."""
    from trainwarden.errors import UsageError
    from trainwarden.rules.settings import read_settings

    rules = _rules()
    try:
        read_settings(file, rules.values, rules.defaults)
    except UsageError as error:
        return 2, str(error)
    return 0, ""


@functools.cache
def _rules() -> Any:
    from trainwarden.rules.build import Rules

    return Rules()


def _defaults() -> Iterator[str]:
    """Yield what holds where a file has only what it must have."""
    from trainwarden.actions.configuration import read_configuration as read_actions
    from trainwarden.jobs.configuration import read_configuration as read_jobs
    from trainwarden_remediator.drivers.ray_templates import RayTemplate
    from trainwarden_remediator.policies.policy_file import PolicyFile

    file = Path("defaults.yml")
    for scheduler, field in (("slurm", "name"), ("ray", "submission_id")):
        file.write_text(f"runs_dir: /runs\njobs: [{{match: {{{field}: x}}}}]")
        yield f"# defaults of jobs of `trainwarden {scheduler}`"
        yield from _fields("", read_jobs(file.absolute(), scheduler))
    file.write_text("runs_dir: /runs\nactions: {a: {event: x, command: [/bin/x]}}")
    yield "# defaults of actions of `trainwarden actions`"
    yield from _fields("", read_actions(file.absolute()).actions["a"])
    yield from _of_records()
    for title, model in (("policy", PolicyFile), ("template of a Ray job", RayTemplate)):
        schema = model.model_json_schema()
        yield f"# {title}: key | type and bounds | default"
        yield from _schema("", schema, schema.get("$defs", {}))


def _of_records() -> Iterator[str]:
    """Yield what variables and files state about records: thresholds, the place in S3, `.env` of a monitor."""
    from trainwarden.clients.s3_location import records_location
    from trainwarden.monitor.settings import read_settings
    from trainwarden.record.thresholds import InvalidThreshold, choose

    yield "# thresholds of `run()` and of `trainwarden up --thresholds`"
    yield f"default: {choose(None, {}).to_json()}"
    wrong: tuple[dict[str, Any], ...] = ({"zzzz": 1}, {"stall_seconds": {"zzzz": 1}}, *_THRESHOLDS)
    for given in wrong:
        try:
            yield f"{given}: {choose(given, {}).to_json()}"
        except InvalidThreshold as error:  # noqa: PERF203  # six
            yield f"{given}: {error}"
    yield "# records in S3"
    for name, value in (("TRAINWARDEN_S3_URL", "s3://bucket/prefix"), ("MONITORING_BUCKET", "bucket")):
        yield f"{name}={value}: {records_location(None, {name: value})}"
    yield "# .env of `trainwarden monitor`"
    pages = "".join(
        (ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8") for page in ("monitor", "contracts", "s3")
    )
    names = dict.fromkeys(re.findall(r"\b[A-Z][A-Z0-9_]+\b", pages))
    Path("env").write_text("".join(f"{name}=1\n" for name in names))
    yield f"taken: {', '.join(sorted(read_settings(Path('env'), {})))}"


def _fields(name: str, value: Any) -> Iterator[str]:
    for field in dataclasses.fields(value):
        found = getattr(value, field.name)
        below = found[0] if isinstance(found, tuple) and found else found
        if dataclasses.is_dataclass(below):
            yield from _fields(f"{name}{field.name}.", below)
        else:
            yield f"{name}{field.name}: {sorted(found) if isinstance(found, frozenset) else found}"


def _schema(name: str, schema: Mapping[str, Any], known: Mapping[str, Any]) -> Iterator[str]:
    for key, given in schema.get("properties", {}).items():
        shown = f"{name}{key}"
        choices = given.get("anyOf", [given])
        needed = "required" if key in schema.get("required", ()) else f"default {given.get('default')!r}"
        yield f"{shown} | {' or '.join(_type(each) for each in choices)} | {needed}"
        for each in choices:
            item = each.get("items", each)
            for below in item.get("anyOf", [item]):
                if "$ref" in below:
                    yield from _schema(f"{shown}{'[]' if 'items' in each else ''}.", known[_name(below)], known)


def _name(schema: Mapping[str, Any]) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _type(schema: Mapping[str, Any]) -> str:
    if "$ref" in schema:
        return "mapping"
    bounds = {key: value for key, value in schema.items() if key not in ("default", "title", "type", "items", "anyOf")}
    more = f" {bounds}" if bounds else ""
    return f"{schema.get('type', 'any')}{more}"
