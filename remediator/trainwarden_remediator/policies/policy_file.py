"""The format of a policy file: users' YAML, validated strictly; a wrong value is named with what was expected."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

from trainwarden.checkpoint.verdict import Trust
from trainwarden_remediator.incidents.incident import clean
from trainwarden_remediator.policies.limits import Limits
from trainwarden_remediator.policies.modes import CanaryRuns, Mode
from trainwarden_remediator.policies.vocabulary import VOCABULARIES

Name = Annotated[str, Field(min_length=1, max_length=128)]
# A user's own words for the reason of a decision.
Words = Annotated[str, Field(min_length=1, max_length=200), AfterValidator(clean)]

FAILURE_MODES = ("crash", "stall", "timeout")
# Keys that each class reads beside `class_name`; a key that a class would not read is an error.
_LIMITED = frozenset(("max_retries", "restart_delay_seconds"))
_READ: Mapping[str, frozenset[str]] = {
    "AlwaysRestartPolicy": _LIMITED | {"reason"},
    "SelectiveRestartPolicy": _LIMITED | {"restart_reason", "stop_reason", "default_action", *VOCABULARIES},
    "NoRestartPolicy": frozenset(("message",)),
}


class Backoff(BaseModel):
    """Seconds to wait before a restart: `initial`, times `factor` for each earlier restart, at most `max`.

    `jitter` is the part of that which chance may take off, so that runs that one cause has ended do not start at once.
    """

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, allow_inf_nan=False)

    initial: float = Field(ge=0, le=86400)
    factor: float = Field(default=2.0, ge=1, le=100)
    max: float = Field(default=3600.0, ge=0, le=86400)
    jitter: float = Field(default=0.0, ge=0, le=1)

    def delay(self, used: int, seed: str = "") -> float:
        """Return the seconds to wait after `used` earlier restarts; the same for the same seed."""
        try:
            longest = float(min(self.max, self.initial * self.factor**used))
        except OverflowError:
            longest = self.max
        digest = hashlib.sha256(f"{seed}:{used}".encode()).digest()
        return longest * (1 - self.jitter * int.from_bytes(digest[:8], "big") / 2**64)


class Implementation(BaseModel):
    """How one failure mode is handled."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    class_name: Literal["AlwaysRestartPolicy", "SelectiveRestartPolicy", "NoRestartPolicy"]
    max_retries: int = Field(default=3, ge=0, le=100_000)
    default_action: Literal["restart", "stop"] = "stop"
    restart_on_error_types: list[Name] = []
    restart_on_subsystems: list[Name] = []
    restart_on_signals: list[Name] = []
    exclude_error_types: list[Name] = []
    exclude_signals: list[Name] = []
    restart_elsewhere_on_error_types: list[Name] = []
    restart_delay_seconds: Backoff | None = None
    reason: Words | None = None
    restart_reason: Words | None = None
    stop_reason: Words | None = None
    message: Words | None = None

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
        read = _READ[self.class_name] | {"class_name"}
        if wrong := sorted(self.model_fields_set - read):
            raise ValueError(f"{self.class_name} does not read {', '.join(wrong)}")
        return self

    def words(self, *, restarts: bool) -> str | None:
        """Return the user's own words for a decision to restart, or not to; None where the file has none."""
        return (self.reason or self.restart_reason) if restarts else (self.stop_reason or self.message)


class ModePolicy(BaseModel):
    """One entry of `policies`."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    mode: Literal["crash", "stall", "timeout", "success"]
    implementation: Implementation


Unverified = Literal["go_on", "stop"]


class Checkpoints(BaseModel):
    """`checkpoints`: from what a restarted run may resume, and what follows where that could not be verified before."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    trust: Trust | None = None
    unverified: Unverified | None = None


class PolicyFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)

    policies: list[ModePolicy] = Field(min_length=1)
    checkpoints: Checkpoints | None = None
    limits: Limits | None = None
    mode_of_action: Mode | None = None
    canary: CanaryRuns | None = None

    @model_validator(mode="after")
    def _one_entry_per_mode(self) -> PolicyFile:
        modes = [entry.mode for entry in self.policies]
        if twice := sorted({mode for mode in modes if modes.count(mode) > 1}):
            raise ValueError(f"more than one entry for mode {', '.join(twice)}")
        if any(e.mode == "success" and e.implementation.class_name != "NoRestartPolicy" for e in self.policies):
            raise ValueError("mode success: a finished run is never restarted; NoRestartPolicy is the only choice")
        return self


class ComposedFile(PolicyFile):
    """A file that `defaults` composes of others: it may state only what it changes."""

    policies: list[ModePolicy] = []
