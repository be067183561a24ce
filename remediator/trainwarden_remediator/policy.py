"""Restart policies: users' YAML, validated strictly, and the rules that `decide` reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, field_validator, model_validator

from trainwarden.checkpoint.verdict import Trust
from trainwarden.errors import UsageError
from trainwarden.yaml_file import YamlValue, read_yaml
from trainwarden_remediator.errors import ConfigError
from trainwarden_remediator.validation import problems_of
from trainwarden_remediator.vocabulary import VOCABULARIES

DEFAULT_POLICY = "megatron_transient"
_SHIPPED = Path(__file__).with_name("policies")

Name = Annotated[str, Field(min_length=1, max_length=128)]


class Backoff(BaseModel):
    """Seconds to wait before a restart: `initial`, times `factor` for each earlier restart, at most `max`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    initial: float = Field(ge=0, le=86400)
    factor: float = Field(default=2.0, ge=1, le=100)
    max: float = Field(default=3600.0, ge=0, le=86400)

    def delay(self, used: int) -> float:
        """Return the seconds to wait after `used` earlier restarts."""
        try:
            return float(min(self.max, self.initial * self.factor**used))
        except OverflowError:
            return self.max


class Implementation(BaseModel):
    """How one failure mode is handled."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    class_name: Literal["AlwaysRestartPolicy", "SelectiveRestartPolicy", "NoRestartPolicy"]
    max_retries: int = Field(default=3, ge=0, le=1000)
    default_action: Literal["restart", "stop"] = "stop"
    restart_on_error_types: list[Name] = []
    restart_on_subsystems: list[Name] = []
    restart_on_signals: list[Name] = []
    exclude_error_types: list[Name] = []
    restart_delay_seconds: Backoff | None = None

    @field_validator(*VOCABULARIES, mode="after")
    @classmethod
    def _known_names(cls, names: list[str], info: ValidationInfo) -> list[str]:
        vocabulary = VOCABULARIES[info.field_name or ""]
        wrong = [f"{name!r}: did you mean {known!r}?" for name in names if (known := vocabulary.misspelt(name))]
        if wrong:
            raise ValueError(f"{'; '.join(wrong)} Expected {vocabulary.expected()}")
        return names

    @model_validator(mode="after")
    def _no_unread_keys(self) -> Implementation:
        selective = {name for name in type(self).model_fields if name.startswith(("restart_on", "exclude", "default"))}
        unread = {
            "AlwaysRestartPolicy": selective,
            "SelectiveRestartPolicy": set[str](),
            "NoRestartPolicy": selective | {"max_retries", "restart_delay_seconds"},
        }[self.class_name]
        if wrong := sorted(unread & self.model_fields_set):
            raise ValueError(f"{self.class_name} does not read {', '.join(wrong)}")
        return self


class ModePolicy(BaseModel):
    """One entry of `policies`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    mode: Literal["crash", "stall", "timeout", "success"]
    implementation: Implementation


class Checkpoints(BaseModel):
    """`checkpoints`: from what a restarted run may resume."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    trust: Trust = "layout"


class PolicyFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    policies: list[ModePolicy] = Field(min_length=1)
    checkpoints: Checkpoints | None = None

    @model_validator(mode="after")
    def _one_entry_per_mode(self) -> PolicyFile:
        modes = [entry.mode for entry in self.policies]
        if twice := sorted({mode for mode in modes if modes.count(mode) > 1}):
            raise ValueError(f"more than one entry for mode {', '.join(twice)}")
        if any(e.mode == "success" and e.implementation.class_name != "NoRestartPolicy" for e in self.policies):
            raise ValueError("mode success: a finished run is never restarted; NoRestartPolicy is the only choice")
        return self


@dataclass(frozen=True)
class Policy:
    """A validated policy: its name, its rules by failure mode, and its file.

    `checkpoint_trust`: what a restarted run takes for a complete checkpoint; None where the policy leaves that to it.
    """

    name: str
    rules: dict[str, Implementation]
    file: str | None = None
    checkpoint_trust: Trust | None = None

    @property
    def restarts(self) -> bool:
        """Whether any mode is ever restarted."""
        return any(rule.class_name != "NoRestartPolicy" for rule in self.rules.values())

    def warnings(self) -> list[str]:
        """Return a line for each value that is valid but seldom meant."""
        return [
            f"{self.file or self.name}: mode {mode}: {warning}"
            for mode, rule in self.rules.items()
            for warning in _warnings(rule)
        ]


def _warnings(rule: Implementation) -> list[str]:
    found = []
    if "cancelled" in (*rule.restart_on_error_types, *rule.restart_on_signals):
        found.append("`cancelled` never covers a job that its user cancelled; such a job stays ended")
    for key, vocabulary in VOCABULARIES.items():
        found += [
            f"{key}: {name!r} matches only what you name so yourself; expected {vocabulary.expected()}"
            for name in vocabulary.unknown(getattr(rule, key))
        ]
    return found


def shipped() -> list[str]:
    """Return the names of the policies that come with the remediator."""
    return sorted(path.stem for path in _SHIPPED.glob("*.yaml"))


def load_policy(name_or_file: str) -> Policy:
    """Load a shipped policy by name, else a file; raises ConfigError with every problem found."""
    if name_or_file in shipped():
        return read_policy(_SHIPPED / f"{name_or_file}.yaml", name_or_file)
    path = Path(name_or_file)
    if not path.is_file() and "/" not in name_or_file and not name_or_file.endswith((".yaml", ".yml")):
        expected = ", ".join(shipped())
        raise ConfigError(
            [f"--policy: {name_or_file!r}: no such policy or file; expected one of {expected}, or a file"]
        )
    return read_policy(path, path.stem)


def read_policy(path: Path, name: str) -> Policy:
    """Read one file, and the policies that it extends. Raises ConfigError with every problem found."""
    return _read_policy(path, name, ())


def _read_policy(path: Path, name: str, within: tuple[Path, ...]) -> Policy:
    try:
        document = read_yaml(path)
        own, bases = _without_monitoring(document)
        if bases and "policies" not in own:
            rules: dict[str, Implementation] = {}
            trust: Trust | None = None
        else:
            checked = PolicyFile.model_validate(own)
            rules = {entry.mode: entry.implementation for entry in checked.policies}
            trust = checked.checkpoints.trust if checked.checkpoints else None
    except UsageError as error:
        raise ConfigError([str(error)]) from None
    except ValidationError as error:
        raise ConfigError([f"{path}: {problem}" for problem in problems_of(error, PolicyFile, document)]) from None
    inherited: dict[str, Implementation] = {}
    for base in bases:
        if path.resolve() in within:
            raise ConfigError([f"{path}: defaults: {base}: extends itself"])
        beside = next((each for each in (path.parent / base, path.parent / f"{base}.yaml") if each.is_file()), None)
        known = _read_policy(beside, base, (*within, path.resolve())) if beside else load_policy(base)
        inherited |= known.rules
        trust = trust or known.checkpoint_trust
    return Policy(name, inherited | rules, str(path), trust)


def _without_monitoring(document: YamlValue) -> tuple[Any, list[str]]:
    """Return a file's own policies, and the names of those that its `defaults` list; what is for packs is left out."""
    data = document.data()
    listed = document.entries.get("defaults")
    if listed is None:
        return data, []
    names = []
    for entry in listed.items:
        for group, value in entry.entries.items():
            if group.split("@")[0].removeprefix("override ").strip("/").split("/")[-1] == "restart":
                names.append(value.scalar("the name of a policy").split("@")[0].strip("/"))
    return {key: data[key] for key in PolicyFile.model_fields if key in data}, names
