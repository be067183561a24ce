"""Finds the cause among all matches: what failed first, not what failed last.

The first root wins. Where there is none, a symptom or an unknown exception counts, whichever came first; a cascade only
where nothing else is known, and a confirmation that names a failure where not even that is. What the training survived,
or the launcher recovers from by itself, is no failure.
"""

import re
from collections.abc import Iterable, Sequence

from trainwarden.signals.model import Match, Signal, Verdict
from trainwarden.taxonomy import FAILURES, Failure

# So many records of later steps show that the loop went on; fewer may be buffered lines of other ranks.
STEPS_THAT_PROVE_LIFE = 3
EVIDENCE = 8
# Bytes between the line about a finalizer and the exception that it raised.
DISMISSED_WITHIN = 4096
RECOVERED = "in_job_recovered"
# Exceptions that only pass on what another process raised.
WRAPPER = "launcher_child"

_TIME = re.compile(r"\b(\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:[.,]\d+)?)")


def diagnose(matches: Iterable[Match], *, progress: Iterable[int] = ()) -> Verdict | None:
    """Return the verdict over one log; None if nothing failed.

    Args:
        matches: of one attempt's log.
        progress: offsets of the records in which a step higher than all before was reported.
    """
    ordered = sorted(matches, key=lambda match: match.offset)
    cause = _cause(_standing(ordered, sorted(progress)))
    return _verdict(cause, ordered) if cause else None


def diagnose_ranks(logs: Sequence[Iterable[Match]], *, progress: Sequence[Iterable[int]] = ()) -> Verdict | None:
    """Return the verdict over the logs of one attempt's ranks; of equal ones the earliest, where times are known."""
    steps = [sorted(each) for each in progress] or [[] for _ in logs]
    ordered = [sorted(each, key=lambda match: match.offset) for each in logs]
    causes = [cause for each, moved in zip(ordered, steps, strict=True) if (cause := _cause(_standing(each, moved)))]
    if not causes:
        return None
    cause = min(causes, key=lambda match: (_strength(match), _time(match)))
    return _verdict(cause, [match for each in ordered for match in each])


def _standing(matches: list[Match], progress: list[int]) -> list[Match]:
    """Return the matches without those that the training survived."""
    matches = _without_known(_without_dismissed(matches))
    if len(progress) >= STEPS_THAT_PROVE_LIFE:
        alive = progress[-STEPS_THAT_PROVE_LIFE]
        matches = [match for match in matches if match.offset >= alive]
    recovered = max((match.offset for match in matches if match.signal.failure == RECOVERED), default=-1)
    later = [match for match in matches if match.offset > recovered]
    if any(match.signal.role in ("root", "symptom", "fallback") for match in later):
        return later
    # If the launcher gave up afterwards, the last failure is the one it tried to recover from.
    return matches if recovered < 0 or any(match.signal.role == "cascade" for match in later) else []


def _without_known(matches: list[Match]) -> list[Match]:
    """Return the matches without the unknown exceptions that belong to a cascade."""
    known = {match.offset for match in matches if match.signal.role == "cascade"}
    return [match for match in matches if match.signal.role != "fallback" or match.offset not in known]


def _without_dismissed(matches: list[Match]) -> list[Match]:
    """Return the matches without exceptions of finalizers, after which a process goes on."""
    standing: list[Match] = []
    until, exception = -1, -1
    for match in matches:
        if match.signal.metadata.get("dismisses") == "exception":
            until, exception = match.offset + DISMISSED_WITHIN, -1
            while standing and standing[-1].signal.role == "confirmation":  # the head of its traceback
                standing.pop()
        elif match.offset > until or exception not in (-1, match.offset) or match.signal.role in ("root", "symptom"):
            standing.append(match)
        elif match.signal.role != "confirmation":
            exception = match.offset
    return standing


def _cause(matches: list[Match]) -> Match | None:
    for strength in (0, 1, 2, 3):
        of_strength = [match for match in matches if _strength(match) == strength]
        if not of_strength:
            continue
        first = min(of_strength, key=_order)
        return _before(first, matches) if first.signal.role == "fallback" else first
    return None


def _order(match: Match) -> tuple[bool, int, int]:
    return match.signal.failure == WRAPPER, match.offset, _PRECEDENCE.index(match.signal.role)


def _before(unknown: Match, matches: list[Match]) -> Match:
    """Return the cascade of an unknown exception: of the record itself, or of one before it."""
    cascades = [match for match in matches if match.signal.role == "cascade" and match.offset <= unknown.offset]
    return min(cascades, key=_order, default=unknown)


_PRECEDENCE = ("root", "symptom", "cascade", "fallback", "confirmation", "event")


def _strength(match: Match) -> int:
    if match.signal.role == "confirmation":
        return 3 if match.signal.failure else 4
    return {"root": 0, "symptom": 1, "fallback": 1, "cascade": 2}.get(match.signal.role, 4)


def _time(match: Match) -> str:
    found = _TIME.search(match.text)
    return found[1].replace("T", " ").replace(",", ".") if found else "~"  # sorts behind all digits


def error_type_of(signal: Signal) -> str | None:
    """Return the error type of a signal."""
    if signal.error_type:
        return signal.error_type
    return FAILURES[signal.failure].error_type if signal.failure else None


def _verdict(cause: Match, matches: list[Match]) -> Verdict:
    signal = cause.signal
    known: Failure | None = FAILURES[signal.failure] if signal.failure else None
    kind = error_type_of(cause.signal) or "exception"
    same = [match for match in matches if match is not cause and error_type_of(match.signal) == kind]
    fields = dict(cause.fields)
    for match in same:
        for name, value in match.fields.items():
            fields.setdefault(name, value)
    return Verdict(
        failure=signal.failure,
        error_type=kind,
        subsystem=signal.subsystem or (known.subsystem if known else None),
        severity=signal.severity or (known.severity if known else "error"),
        fault=signal.fault or (known.fault if known else "unknown"),
        action=signal.action or (known.action if known else "stop"),
        hint=known.hint if known else "",
        signal=signal.name,
        fields=fields,
        evidence=(cause, *same[: EVIDENCE - 1]),
        also=_others(cause, matches),
    )


def _others(cause: Match, matches: list[Match]) -> tuple[Match, ...]:
    first: dict[str, Match] = {}
    for match in matches:
        if match.signal.name != cause.signal.name and match.signal.role != "event":
            first.setdefault(match.signal.name, match)
    return tuple(first.values())
