"""Where the ranks of a run stand, from their stacks, and which of them is the odd one out."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from trainwarden.record.capture import StacksHeader
from trainwarden_remediator.incidents.incident import clean

_FRAME = re.compile(r'^ +File "(.*)", line (\d+) in (.*)$')
# Of files that are no code of the training.
_LIBRARY = re.compile(r"/(?:site|dist)-packages/|/lib(?:64)?/python3\.\d+t?/|^<frozen|/trainwarden/training/")
# Functions that only call another one.
_WRAPPERS = frozenset(("wrapper", "inner", "_call_impl", "_wrapped_call_impl", "decorate_context", "<lambda>", "_fn"))
_COLLECTIVES = frozenset(
    (
        "all_reduce", "all_reduce_coalesced", "all_gather", "all_gather_into_tensor", "all_gather_object",
        "all_to_all", "all_to_all_single", "allreduce", "barrier", "batch_isend_irecv", "broadcast",
        "broadcast_object_list", "gather", "gather_object", "monitored_barrier", "recv", "reduce", "reduce_scatter",
        "reduce_scatter_tensor", "scatter", "scatter_object_list", "send",
    )
)  # fmt: skip
_MAX_GROUPS, _MAX_NAMED = 4, 3
_MAX_NAME = 60


@dataclass(frozen=True)
class Place:
    """Where a thread stands: the function that the training called, and the line of the training that called it."""

    function: str
    line: str
    is_collective: bool

    def __str__(self) -> str:
        return f"{self.function} at {self.line}"


@dataclass(frozen=True)
class Comparison:
    """What the stacks of all ranks show together; `suspect` is empty where no rank stands out.

    Both are one line of text that programs of users may have chosen parts of.
    """

    text: str
    suspect: str


def place_of(header: StacksHeader, text: str) -> Place | None:
    """Return where the training loop of a rank stands; None where its stacks cannot be read."""
    threads = text.split("\n\n")
    starts = (f"Thread {header.thread} ", "Current thread ")
    own = next((each for start in starts for each in threads if each.startswith(start)), threads[0])
    frames = [match.groups() for line in own.splitlines() if (match := _FRAME.match(line))]
    if not frames:
        return None
    users = next((number for number, (path, _, _) in enumerate(frames) if not _LIBRARY.search(path)), None)
    called = [name for _, _, name in frames[:users] if name not in _WRAPPERS]
    path, number, name = frames[users or 0]
    names = {*called, *(each for _, _, each in frames[: (users or 0) + 1])}
    return Place(
        clean(called[-1] if called and users is not None else frames[0][2] if users is None else name, _MAX_NAME),
        clean(f"{path.rpartition('/')[2]}:{number}", _MAX_NAME),
        bool(names & _COLLECTIVES),
    )


def compare(
    answers: Mapping[int, tuple[StacksHeader, Place | None]], silent: Iterable[int], hosts: Mapping[int, str]
) -> Comparison:
    """Compare the ranks of an attempt.

    Args:
        answers: the stacks by rank.
        silent: ranks that gave none.
        hosts: by rank, where known.
    """
    missing = sorted(silent)
    groups: dict[str, list[int]] = defaultdict(list)
    for rank, (_, place) in sorted(answers.items()):
        groups[str(place) if place else "an unreadable place"].append(rank)
    ordered = sorted(groups.items(), key=lambda group: -len(group[1]))
    parts = [f"{_ranks(ranks, hosts)} in {where}" for where, ranks in ordered[:_MAX_GROUPS]]
    if len(ordered) > _MAX_GROUPS:
        parts.append(f"{sum(len(ranks) for _, ranks in ordered[_MAX_GROUPS:])} ranks elsewhere")
    in_kernel = [rank for rank, (header, _) in sorted(answers.items()) if header.state == "D"]
    if in_kernel:
        waits = clean(answers[in_kernel[0]][0].waits_in or "", _MAX_NAME)
        parts.append(f"{_ranks(in_kernel, hosts)} waiting in the kernel{f' ({waits})' if waits else ''}")
    if missing:
        parts.append(
            f"{_ranks(missing, hosts)} without an answer: stopped, gone, or holding the interpreter"
            if answers
            else f"no answer of {_ranks(missing, hosts)}"
        )
    return Comparison("; ".join(parts), _suspect(answers, missing, [ranks for _, ranks in ordered], hosts))


def _suspect(
    answers: Mapping[int, tuple[StacksHeader, Place | None]],
    missing: Sequence[int],
    groups: Sequence[Sequence[int]],
    hosts: Mapping[int, str],
) -> str:
    total = len(answers) + len(missing)
    if not answers:
        return ""
    if missing and len(missing) <= max(1, total // 4):
        return f"{_ranks(missing, hosts)}: no answer, where {len(answers)} answered"
    waiting = [rank for rank, (_, place) in answers.items() if place is not None and place.is_collective]
    outside = [rank for rank in sorted(answers) if rank not in waiting]
    if outside and len(outside) <= len(waiting):
        places = {str(answers[rank][1] or "an unreadable place") for rank in outside}
        where = next(iter(places)) if len(places) == 1 else f"{len(places)} other places"
        return f"{_ranks(outside, hosts)}: in {where}, where {len(waiting)} wait in a collective operation"
    few = [rank for group in groups[1:] for rank in group]
    if few and not waiting and len(few) <= max(1, total // 4) < len(groups[0]):
        return f"{_ranks(sorted(few), hosts)}: not where the other {len(groups[0])} are"
    return ""


def _ranks(ranks: Sequence[int], hosts: Mapping[int, str]) -> str:
    if len(ranks) > _MAX_NAMED:
        return f"{len(ranks)} ranks"
    named = [f"{rank} ({clean(hosts[rank], _MAX_NAME)})" if hosts.get(rank) else str(rank) for rank in ranks]
    return f"rank{'s' if len(ranks) > 1 else ''} {' and '.join(named)}"
