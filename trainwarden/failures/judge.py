"""Finds the cause among all evidence: what failed first, not what failed last.

The one judge of exceptions, of messages and of logs. The first root wins. Where there is none, a symptom or an unknown
exception counts, whichever came first; a cascade only where nothing else is known, then a confirmation that names a
failure, then what programs often get over, and last what a launcher reports. An exception that was being handled when
another was raised counts where that one is vague. What the training survived, what the program has recovered from, and
what the launcher mends by itself is no failure.
"""

from __future__ import annotations

from trainwarden.failures.entries import FAILURES

# Imported by shell commands, whose start-up time does not allow `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# So many records of later steps show that the loop went on; fewer may be buffered lines of other ranks.
STEPS_THAT_PROVE_LIFE = 3
# Bytes between the line about a finalizer and the exception that it raised.
DISMISSED_WITHIN = 4096
# Bytes between what a library prints and the crash that follows, or the exception without a meaning of its own.
PRINTED_WITHIN = 16 * 1024
RECOVERED = "in_job_recovered"
# Exceptions that only pass on what another process raised.
WRAPPER = "launcher_child"
UNKNOWN = "user_exception"
CRASH = "crash_signal"
# Exceptions whose type carries no information about what happened.
VAGUE_TYPES = frozenset(("Exception", "RuntimeError", "SystemError", "SystemExit", "InternalError"))
# What a record does to other evidence, as `metadata: {effect: …}` of a signal; see docs/signals.md.
HEAD, HANDLED, CAUSED, DISMISSES, CLEARS = "traceback", "handled", "caused", "dismisses exception", "clears "

# What many programs get over, and only print: outside of an exception it counts less than an exception or a symptom.
_OFTEN_SURVIVED = frozenset((
    "missing_module", "storage_missing", "storage_permission", "ckpt_missing", "data_missing", "hub_auth",
    "hub_network", "resource_limit",
))  # fmt: skip
# What launchers report of processes that have failed, and of the others that they then end.
_OF_LAUNCHERS = frozenset((WRAPPER, "slurm_failure", "nonzero_exit"))
# What else the same exception, or the same process, prints with a general failure and is more exact.
_MORE_EXACT = {"nccl_system": "nccl_remote_closed"}

_PRECEDENCE = ("root", "symptom", "cascade", "fallback", "confirmation", "event")


class Evidence:
    """What one record, or one exception, indicates.

    Attributes:
        offset: of its record; of exceptions any numbers in the order in which a traceback prints them.
        role: one of `trainwarden.signals.model.ROLES`.
        failure: slug of the taxonomy; None for a failure outside of it.
        error_type: of a failure outside of the taxonomy.
        effect: on other evidence; None for most.
        label: the rank or the process, as its launcher labels the record; empty if unknown.
        source: what the caller wants back.
        context: it was being handled when another exception was raised.
        chain: number of the traceback and of those linked with it; None outside of tracebacks.
        is_printed: it is a line that a program printed, and no exception.
        is_vague: it is an exception without a known cause, and its type has no meaning of its own.
    """

    __slots__ = (
        "chain", "context", "effect", "error_type", "failure", "is_printed", "is_vague", "label", "offset", "role",
        "source",
    )  # fmt: skip

    def __init__(
        self,
        offset: int,
        role: str,
        failure: str | None,
        source: Any,
        *,
        error_type: str | None = None,
        effect: str | None = None,
        label: str = "",
        context: bool = False,
    ) -> None:
        self.offset = offset
        self.role = role
        self.failure = failure
        self.source = source
        self.error_type = error_type or (FAILURES[failure].error_type if failure else None)
        self.effect = effect
        self.label = label
        self.context = context
        self.is_printed = False
        self.is_vague = False
        self.chain: tuple[str, int] | None = None


def find_cause(evidence: Sequence[Evidence], progress: Sequence[int] = ()) -> Evidence | None:
    """Return the evidence of the cause; None if nothing failed.

    Args:
        evidence: sorted by offset; of one record, that which counts more first.
        progress: offsets of the records in which a step higher than all before was reported, sorted.
    """
    evidence = _without_known(_without_dismissed(evidence))
    if len(progress) >= STEPS_THAT_PROVE_LIFE:
        alive = progress[-STEPS_THAT_PROVE_LIFE]
        evidence = [each for each in evidence if each.offset >= alive]
    _link(evidence)
    return _first(_without_ended(_without_recovered(_without_cleared(evidence))))


def strength(evidence: Evidence) -> int:
    """Return how much the evidence counts: the less, the more; 9 is none."""
    if evidence.role == "confirmation":
        return 9 if evidence.failure is None else 8 if evidence.failure == UNKNOWN else 4
    if evidence.context and evidence.role != "event":
        return 1 if evidence.role == "root" and _is_grave(evidence) else _CONTEXT
    if evidence.is_printed and evidence.failure in _OFTEN_SURVIVED and evidence.role in ("root", "symptom", "fallback"):
        return _SURVIVED
    if evidence.role == "cascade":
        return 6 if evidence.failure in _OF_LAUNCHERS else _CASCADE
    if is_general(evidence):
        return _CASCADE
    return {"root": 0, "symptom": 2, "fallback": 2}.get(evidence.role, 9)


_CASCADE = 3
_SURVIVED = 5
_CONTEXT = 7


def is_general(evidence: Evidence) -> bool:
    """Return whether it is general words for a failure, in a line that is no exception."""
    return (
        evidence.role == "fallback"
        and evidence.is_printed
        and evidence.failure != UNKNOWN
        and evidence.failure not in _OFTEN_SURVIVED
    )


def _first(evidence: list[Evidence]) -> Evidence | None:
    strongest = min(map(strength, evidence), default=9)
    if strongest == 9:
        return None
    first = min((each for each in evidence if strength(each) == strongest), key=_order)
    if exact := _MORE_EXACT.get(first.failure or ""):
        alike = (each for each in evidence if each.failure == exact and _is_linked(each, first))
        return next(alike, first)
    if first.failure == CRASH or first.is_vague:
        general = [each for each in evidence if is_general(each) and 0 < first.offset - each.offset <= PRINTED_WITHIN]
        if general:
            return general[-1]
    return _before(first, evidence) if first.failure == UNKNOWN and first.role == "fallback" else first


def _order(evidence: Evidence) -> tuple[bool, int, int]:
    # Of what is often survived, the last one is the most likely to have ended the program.
    offset = -evidence.offset if strength(evidence) == _SURVIVED else evidence.offset
    return evidence.failure == WRAPPER, offset, _PRECEDENCE.index(evidence.role)


def _before(unknown: Evidence, evidence: list[Evidence]) -> Evidence:
    """Return what an unknown exception follows from: of the record itself, or of one before it in its chain."""
    before = [
        each
        for each in evidence
        if (each.role == "cascade" or strength(each) == _CONTEXT)
        and each.offset <= unknown.offset
        and _is_linked(each, unknown)
    ]
    return min(before, key=_order, default=unknown)


def _is_linked(one: Evidence, other: Evidence) -> bool:
    """Return whether both are of one record, or of one chain of exceptions."""
    return one.offset == other.offset or (one.label == other.label and one.chain == other.chain)


def _is_grave(evidence: Evidence) -> bool:
    return evidence.failure is not None and FAILURES[evidence.failure].severity in ("critical", "fatal")


def _link(evidence: Sequence[Evidence]) -> None:
    """Number the tracebacks, linked ones alike, and mark the exceptions that were being handled."""
    chains: dict[str, int] = {}
    linked: set[str] = set()
    begun: dict[str, list[Evidence]] = {}
    for each in evidence:
        if each.effect == HEAD:
            if each.label not in linked:
                chains[each.label] = chains.get(each.label, 0) + 1
                begun[each.label] = []
            linked.discard(each.label)
        elif each.effect in (HANDLED, CAUSED):
            linked.add(each.label)
            for one in begun.get(each.label, ()) if each.effect == HANDLED else ():
                one.context = True
            begun[each.label] = []
        if each.label in chains:
            each.chain = (each.label, chains[each.label])
            begun[each.label].append(each)


def _without_cleared(evidence: list[Evidence]) -> list[Evidence]:
    """Return the evidence without that of failures from which the program reports a recovery."""
    cleared: dict[str, int] = {}
    for each in evidence:
        if each.effect and each.effect.startswith(CLEARS):
            cleared.update(dict.fromkeys(each.effect[len(CLEARS) :].split(), each.offset))
    if not cleared:
        return evidence
    return [each for each in evidence if each.offset >= cleared.get(each.error_type or "", -1)]


def _without_recovered(evidence: list[Evidence]) -> list[Evidence]:
    recovered = max((each.offset for each in evidence if each.failure == RECOVERED), default=-1)
    later = [each for each in evidence if each.offset > recovered]
    if any(each.role in ("root", "symptom", "fallback") for each in later):
        return later
    # If the launcher gave up afterwards, the last failure is the one it tried to recover from.
    return evidence if recovered < 0 or any(each.role == "cascade" for each in later) else []


def _without_ended(evidence: list[Evidence]) -> list[Evidence]:
    """Return the evidence without processes that their launcher ended, where one is reported that failed by itself."""
    if not any(each.role == "cascade" and each.failure in _OF_LAUNCHERS for each in evidence):
        return evidence
    return [each for each in evidence if each.role != "cascade" or each.failure != "cancelled"]


def _without_known(evidence: list[Evidence]) -> list[Evidence]:
    """Return the evidence without the unknown exceptions that belong to a cascade."""
    known = {each.offset for each in evidence if each.role == "cascade"}
    return [each for each in evidence if each.role != "fallback" or each.offset not in known]


def _without_dismissed(evidence: Sequence[Evidence]) -> list[Evidence]:
    """Return the evidence without exceptions of finalizers, after which a process goes on."""
    standing: list[Evidence] = []
    until, exception = -1, -1
    for each in evidence:
        if each.effect == DISMISSES:
            until, exception = each.offset + DISMISSED_WITHIN, -1
            while standing and standing[-1].role == "confirmation":  # the head of its traceback
                standing.pop()
        elif each.offset > until or exception not in (-1, each.offset) or each.role in ("root", "symptom"):
            standing.append(each)
        elif each.role not in ("confirmation", "event"):
            exception = each.offset
    return standing
