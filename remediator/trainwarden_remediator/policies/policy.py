"""Restart policies: the rules that `decide` reads, from the shipped files or users' own."""

from __future__ import annotations

import os
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from pathlib import Path

from pydantic import BaseModel, ValidationError

from trainwarden.checkpoint.verdict import Trust
from trainwarden.errors import UsageError
from trainwarden.signals.pack import shipped_packs
from trainwarden.yaml_file import YamlValue, read_yaml
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.policies.limits import Limits
from trainwarden_remediator.policies.modes import CanaryRuns, Mode
from trainwarden_remediator.policies.policy_file import (
    FAILURE_MODES,
    Checkpoints,
    ComposedFile,
    Implementation,
    PolicyFile,
    Unverified,
)
from trainwarden_remediator.policies.vocabulary import VOCABULARIES
from trainwarden_remediator.validation import problems_of

DEFAULT_POLICY = "megatron_transient"
# A word this similar to a key counts as a misspelt one.
_MISSPELT = 0.8
_SHIPPED = Path(__file__).parent
# Keys under which other tools' files keep the list of policies, by the key within that.
_LISTS = {"restart_policies": "", "restart": "policies"}


@dataclass(frozen=True)
class Policy:
    """A validated policy: its name, its rules by failure mode, and its file.

    `checkpoint_trust`: what a restarted run takes for a complete checkpoint; None where the policy leaves that to it.
    `unverified`: whether its attempt is ended where its checkpoints could not be verified; None is to go on.
    `limits`: bounds of all modes together. `mode_of_action`: whether it is carried out, None where that is left to the
    run; `canary_runs`: on which runs it is in the mode canary.
    """

    name: str
    rules: dict[str, Implementation]
    file: str | None = None
    checkpoint_trust: Trust | None = None
    unverified: Unverified | None = None
    limits: Limits = field(default_factory=Limits)
    mode_of_action: Mode | None = None
    canary_runs: CanaryRuns | None = None

    def under(self, over: Policy) -> Policy:
        """Return this policy with what another one states put over it."""
        rules, trust = {**self.rules, **over.rules}, over.checkpoint_trust or self.checkpoint_trust
        unverified = over.unverified or self.unverified
        limits = self.limits.model_copy(
            update={name: getattr(over.limits, name) for name in over.limits.model_fields_set}
        )
        mode, canary_runs = over.mode_of_action or self.mode_of_action, over.canary_runs or self.canary_runs
        return replace(
            self,
            rules=rules,
            checkpoint_trust=trust,
            unverified=unverified,
            limits=limits,
            mode_of_action=mode,
            canary_runs=canary_runs,
        )

    @property
    def restarts(self) -> bool:
        """Whether any mode is ever restarted."""
        return any(map(self.restarts_after, self.rules))

    def restarts_after(self, mode: str) -> bool:
        """Return whether failures of this mode are ever restarted."""
        rule = self.rules.get(mode)
        return rule is not None and rule.class_name != "NoRestartPolicy"

    def warnings(self) -> list[str]:
        """Return a line for each value that is valid but seldom meant."""
        if not self.rules:
            return [f"{self.file or self.name}: it names no policy (restart: {DEFAULT_POLICY}), and restarts nothing"]
        return [
            f"{self.file or self.name}: mode {mode}: {warning}"
            for mode, rule in self.rules.items()
            for warning in _warnings(rule, excludes=self.limits.exclude_nodes is not None)
        ]


def _warnings(rule: Implementation, *, excludes: bool) -> list[str]:
    found = []
    if rule.restart_elsewhere_on_error_types and not excludes:
        found.append("restart_elsewhere_on_error_types restarts nothing without limits: exclude_nodes; it pages")
    if "cancelled" in (*rule.restart_on_error_types, *rule.restart_on_signals):
        found.append("`cancelled` never covers a job that its user cancelled; such a job stays ended")
    for key, vocabulary in VOCABULARIES.items():
        found += [
            f"{key}: {name!r} matches only what you name so yourself; expected {vocabulary.expected()}"
            for name in vocabulary.unknown(getattr(rule, key))
        ]
    return found


def _is_file(path: Path) -> bool:
    return os.path.isfile(path)  # noqa: PTH113  # Path.is_file() raises where this user may not look


def shipped() -> list[str]:
    """Return the names of the policies that come with the remediator."""
    return sorted(path.stem for path in _SHIPPED.glob("*.yaml"))


def load_policy(name_or_file: str) -> Policy:
    """Load a shipped policy by name, else a file; raises ConfigError with every problem found."""
    if name_or_file in shipped():
        return read_policy(_SHIPPED / f"{name_or_file}.yaml", name_or_file)
    path = Path(name_or_file)
    if not _is_file(path) and "/" not in name_or_file and not name_or_file.endswith((".yaml", ".yml")):
        expected = ", ".join(shipped())
        raise ConfigError(
            [f"--policy: {name_or_file!r}: no such policy or file; expected one of {expected}, or a file"]
        )
    return read_policy(path, path.stem)


def read_policy(path: Path, name: str) -> Policy:
    """Read one file, and the policies that it is composed of. Raises ConfigError with every problem found."""
    return _read_policy(path, name, (), chosen=True)


def _read_policy(path: Path, name: str, within: tuple[Path, ...], *, chosen: bool) -> Policy:
    """Read a file. Where `chosen` is false, what it chooses of the group `restart` is overridden by another file."""
    real = Path(os.path.realpath(path))  # Path.resolve() raises where links make a circle
    if real in within:
        raise ConfigError([f"{path}: defaults: extends itself"])
    document = _read(path)
    found = Policy(name, {}, str(path))
    parts = _parts(document, chosen=chosen)
    composed = len(parts) > 1 or not chosen or _names_no_policy(document)
    for part in parts:
        if part == _SELF:
            found = found.under(_own_policy(path, document, optional=composed))
            continue
        beside = part.beside(path)
        if beside is not None:
            inner = chosen and not any(each.overrides for each in parts)
            found = found.under(_read_policy(beside, part.name, (*within, real), chosen=inner or part.group))
        elif part.name in shipped():
            found = found.under(load_policy(part.name))
        elif part.group or part.name not in shipped_packs():
            key = "defaults: restart" if part.group else "defaults"
            raise ConfigError([f"{path}: {key}: {part.name!r}: there is no such file beside it, and no such policy"])
    return found


def _read(path: Path) -> YamlValue:
    try:
        return read_yaml(path)
    except UsageError as error:
        raise ConfigError([str(error)]) from None


def _own_policy(path: Path, document: YamlValue, *, optional: bool) -> Policy:
    """Return what the file itself states. A file that is composed of others (`optional`) may state nothing."""
    document = _listed(document)
    model: type[BaseModel] = ComposedFile if optional else PolicyFile
    if "class_name" in document.entries:
        model = Implementation
    if optional:
        keys = {key: entry for key, entry in document.entries.items() if key in model.model_fields}
        document = replace(document, entries=keys)
    try:
        if optional and not document.entries:
            return Policy("", {})
        checked = model.model_validate(document.data())
    except UsageError as error:
        raise ConfigError([str(error)]) from None
    except ValidationError as error:
        raise ConfigError([f"{path}: {problem}" for problem in problems_of(error, model, document)]) from None
    if isinstance(checked, Implementation):
        return Policy("", dict.fromkeys(FAILURE_MODES, checked))
    assert isinstance(checked, PolicyFile)  # noqa: S101  # for mypy
    rules: dict[str, Implementation] = {entry.mode: entry.implementation for entry in checked.policies}
    checkpoints = checked.checkpoints or Checkpoints()
    limits = checked.limits or Limits()
    trust, unverified = checkpoints.trust, checkpoints.unverified
    return Policy("", rules, None, trust, unverified, limits, checked.mode_of_action, checked.canary)


def _listed(document: YamlValue) -> YamlValue:
    """Return the document with its policies under our own key, where another tool's file has them under its own."""
    for key, inner in _LISTS.items():
        value = document.entries.get(key)
        value = value.entries.get(inner) if value is not None and inner else value
        if value is not None and "policies" not in document.entries:
            known = {name: each for name, each in document.entries.items() if name in PolicyFile.model_fields}
            return replace(document, entries={**known, "policies": value})
    return document


def _names_no_policy(document: YamlValue) -> bool:
    """Return whether Hydra's list chooses others than policies alone, as of a project that is only watched.

    Not where a word of it may be a misspelt key.
    """
    listed = document.entries.get("defaults")
    groups = [_plain(key).split("/")[-1] for entry in listed.items for key in entry.entries] if listed else []
    known = {"restart", *_LISTS, *PolicyFile.model_fields}
    words = {*document.entries, *groups}.difference(known)
    return bool(groups) and not any(get_close_matches(word, known, 1, _MISSPELT) for word in words)


@dataclass(frozen=True)
class _Part:
    """One file that another is composed of. `group`: it was chosen as the one of the group `restart`."""

    name: str
    group: bool
    overrides: bool = False

    def beside(self, path: Path) -> Path | None:
        """Return the file of that name in the same folder, or in the folder of the group; None where there is none."""
        folders = [path.parent]
        if self.group:
            folders += [path.parent / "restart", path.parent.parent / "restart"]
        files = (folder / f"{self.name}{suffix}" for folder in folders for suffix in ("", ".yaml", ".yml"))
        return next((file for file in files if _is_file(file)), None)


_SELF = _Part("_self_", group=False)


def _parts(document: YamlValue, *, chosen: bool) -> list[_Part]:
    """Return what a file is composed of, in order: a later part replaces the modes that an earlier one has, too.

    `defaults` is Hydra's list: names of files in the same folder, and choices of a group, of which only `restart`
    counts here: `restart: NAME`, `/restart: NAME`, `override /restart: NAME`, each also with a package (`@…`), which
    has no effect. The file itself comes last, unless `_self_` stands elsewhere.
    """
    listed = document.entries.get("defaults")
    parts: list[_Part] = []
    for entry in listed.items if listed is not None else ():
        if entry.kind == "text":
            group, _, name = _plain(entry.text).rpartition("/")
            if group in ("", "restart"):
                parts.append(_Part(name, group == "restart"))
        for key, value in entry.entries.items():
            group = _plain(key)
            if group.split("/")[-1] != "restart" or value.kind == "nothing":
                continue
            overrides = key.startswith("override ")
            if overrides:
                parts = [part for part in parts if not part.group]
            names = value.items or (value,)
            parts += [_Part(_plain(each.scalar("the name of a policy")), True, overrides) for each in names]
    if not chosen:
        parts = [part for part in parts if not part.group]
    return parts if _SELF in parts else [*parts, _SELF]


def _plain(text: str) -> str:
    """Return a name or group without its prefix, its package and its slashes."""
    for prefix in ("override ", "optional "):
        text = text.removeprefix(prefix)
    return text.split("@")[0].strip().strip("/")
