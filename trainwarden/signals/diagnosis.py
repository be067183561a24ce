"""The verdict over the matches of a log, or of the logs of one attempt's ranks.

Which match is the cause is decided by `trainwarden.failures.judge`, as for exceptions.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from trainwarden.failures.judge import STEPS_THAT_PROVE_LIFE, UNKNOWN, Evidence, find_cause, strength
from trainwarden.failures.out_of_memory import suggestion
from trainwarden.failures.quotation import is_exception, unlabelled
from trainwarden.failures.records import refined, with_exception
from trainwarden.signals.model import Match, Signal, Verdict
from trainwarden.taxonomy import FAILURES, Failure

__all__ = ["STEPS_THAT_PROVE_LIFE", "diagnose", "diagnose_ranks", "error_type_of"]

EVIDENCE = 8

_TIME = re.compile(r"\b(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)")


def diagnose(matches: Iterable[Match], *, progress: Iterable[int] = ()) -> Verdict | None:
    """Return the verdict over one log; None if nothing failed.

    Args:
        matches: of one attempt's log.
        progress: offsets of the records in which a step higher than all before was reported.
    """
    ordered = sorted(matches, key=lambda match: match.offset)
    cause = find_cause(_evidence(ordered), sorted(progress))
    return _verdict(cause, ordered) if cause else None


def diagnose_ranks(logs: Sequence[Iterable[Match]], *, progress: Sequence[Iterable[int]] = ()) -> Verdict | None:
    """Return the verdict over the logs of one attempt's ranks; of equal ones the earliest, where times are known."""
    steps = [sorted(each) for each in progress] or [[] for _ in logs]
    ordered = [sorted(each, key=lambda match: match.offset) for each in logs]
    causes = [
        cause for each, moved in zip(ordered, steps, strict=True) if (cause := find_cause(_evidence(each), moved))
    ]
    if not causes:
        return None
    cause = min(causes, key=lambda each: (strength(each), _time(each.source)))
    return _verdict(cause, [match for each in ordered for match in each])


def _evidence(matches: list[Match]) -> list[Evidence]:
    """Return the evidence in matches that are sorted by their offsets."""
    evidence: list[Evidence] = []
    for _, record in groupby(matches, key=lambda match: match.offset):
        found: list[Evidence] = []
        unknown: Evidence | None = None
        for match in record:
            each = _of_match(match)
            if unknown is None and match.signal.failure == UNKNOWN and "exception" in match.fields:
                unknown = each
            else:
                found.append(each)
        if unknown is None and found and not is_exception(unlabelled(found[0].source.text)[1]):
            for each in found:
                each.is_printed = True
        if unknown:
            fields = unknown.source.fields
            found = with_exception(found, unknown, fields["exception"], fields.get("message", ""))
        evidence += found
    return evidence


def _of_match(match: Match) -> Evidence:
    signal = match.signal
    label, text = unlabelled(match.text)
    return Evidence(
        match.offset,
        signal.role,
        refined(signal.failure, text),
        match,
        error_type=signal.error_type,
        effect=signal.effect,
        label=label,
    )


def _time(match: Match) -> str:
    found = _TIME.search(match.text)
    return found[1].replace("T", " ").replace(",", ".") if found else "~"  # sorts behind all digits


def error_type_of(signal: Signal) -> str | None:
    """Return the error type of a signal."""
    if signal.error_type:
        return signal.error_type
    return FAILURES[signal.failure].error_type if signal.failure else None


def _verdict(cause: Evidence, matches: list[Match]) -> Verdict:
    match: Match = cause.source
    signal = match.signal
    known: Failure | None = FAILURES[cause.failure] if cause.failure else None
    kind = cause.error_type or "exception"
    same = [each for each in matches if each is not match and error_type_of(each.signal) == kind]
    advice = known or _advice(signal, kind)
    fields = dict(match.fields)
    for each in same:
        for name, value in each.fields.items():
            fields.setdefault(name, value)
    return Verdict(
        failure=cause.failure,
        error_type=kind,
        subsystem=signal.subsystem or (known.subsystem if known else None),
        severity=signal.severity or (known.severity if known else "error"),
        fault=signal.fault or advice.fault,
        action=signal.action or advice.action,
        hint=suggestion(known, match.text) if known else advice.hint,
        signal=signal.name,
        fields=fields,
        evidence=(match, *same[: EVIDENCE - 1]),
        also=_others(match, matches),
    )


class _Advice(NamedTuple):
    fault: str
    action: str
    hint: str


def _advice(signal: Signal, error_type: str) -> _Advice:
    """Return what applies to failures of an error type, for a signal that names none of the taxonomy."""
    alike = [failure for failure in FAILURES.values() if failure.error_type == error_type]
    if not alike:
        restarts = any(action.get("class_name") == "RestartAction" for action in signal.actions)
        return _Advice("unknown", "restart" if restarts else "stop", "")
    faults, hints = {failure.fault for failure in alike}, {failure.hint for failure in alike}
    action = Counter(failure.action for failure in alike).most_common(1)[0][0]
    return _Advice(faults.pop() if len(faults) == 1 else "unknown", action, hints.pop() if len(hints) == 1 else "")


def _others(cause: Match, matches: list[Match]) -> tuple[Match, ...]:
    first: dict[str, Match] = {}
    for match in matches:
        if match.signal.name != cause.signal.name and match.signal.role != "event":
            first.setdefault(match.signal.name, match)
    return tuple(first.values())
