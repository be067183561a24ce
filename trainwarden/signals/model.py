"""A signal, one match of it, and the verdict over all that matched."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

# From the strongest to the weakest evidence; see `trainwarden.signals.diagnosis`.
#   root          the cause wherever it is seen
#   symptom       the cause unless something broke before it: a time-out, a lost peer
#   fallback      an exception that matches no other signal
#   cascade       follows from a failure elsewhere: the cause only if nothing else is known
#   confirmation  evidence beside another signal; alone it counts only if it names a failure
#   event         no failure: a checkpoint, the end, a restart by the launcher itself
ROLES = ("root", "symptom", "fallback", "cascade", "confirmation", "event")
PATTERN_TYPES = ("regex", "substring")
STATES = ("CrashState", "SuccessState", "StalledState", "TimeoutState")


@dataclass(frozen=True)
class Signal:
    """A pattern of log records and its meaning.

    Attributes:
        name: unique in its pack.
        pattern: a Python regular expression, or the text itself for `substring`; searched within one record.
        literals: texts of which every match holds at least one; empty means that they are derived from the pattern.
        role: one of `ROLES`.
        failure: slug of the taxonomy, or None for a failure outside of it.
        error_type, subsystem, severity, fault, action: of the pack; None where those of the taxonomy apply.
        state: one of `STATES`, or None.
        actions: as in the pack; not used here.
        extract_groups: name of a field → capture group, by name or number.
        framework: the tool that prints it, or None.
        source: `file:line` of the definition.
        shipped: comes with Trainwarden; others are searched under a time limit.
        ignore_warnings: a record that its writer marks as a warning, a note or a retry is no match.
        messages: of shipped packs alone: whole messages, in lower case, that name the failure as the reason of an end
            (`oom`), while the same words in a line of a log would not.
        examples: records that must match; counterexamples: records that must not.
    """

    name: str
    pattern: str
    pattern_type: str = "regex"
    literals: tuple[str, ...] = ()
    role: str = "root"
    failure: str | None = None
    error_type: str | None = None
    subsystem: str | None = None
    severity: str | None = None
    fault: str | None = None
    action: str | None = None
    state: str | None = None
    actions: tuple[Mapping[str, Any], ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    extract_groups: Mapping[str, str | int] = field(default_factory=dict)
    framework: str | None = None
    source: str = ""
    shipped: bool = False
    ignore_warnings: bool = False
    messages: tuple[str, ...] = ()
    examples: tuple[str, ...] = ()
    counterexamples: tuple[str, ...] = ()

    @property
    def effect(self) -> str | None:
        """What a match does to the other evidence."""
        effect = self.metadata.get("effect")
        return effect if isinstance(effect, str) else None


@dataclass(frozen=True)
class Match:
    """One record of a stream in which a signal was found.

    Attributes:
        offset: where the record begins in the stream, in bytes.
        line: of the record's beginning, counted from 1 by line feeds alone.
        text: the record, decoded and cut to `scanner.TEXT_LIMIT` characters around what was found.
        fields: the groups in `extract_groups`; without it, every named group. Groups without a match are absent.
        count: of records with the signal that it stands for: itself, and those before it that were left out.
    """

    signal: Signal
    offset: int
    line: int
    text: str
    fields: Mapping[str, str] = field(default_factory=dict)
    count: int = 1


@dataclass(frozen=True)
class Verdict:
    """The first failure, and its evidence.

    Attributes:
        failure: slug of the taxonomy; None where only a user's own error type is known.
        fields: of the match that decided, completed by those of matches with the same failure.
        evidence: the records of this failure, the deciding one first.
        also: the other matches, one for each signal, in the order of the log.
    """

    failure: str | None
    error_type: str
    subsystem: str | None
    severity: str
    fault: str
    action: str
    hint: str
    signal: str
    fields: Mapping[str, str]
    evidence: tuple[Match, ...]
    also: tuple[Match, ...] = ()
