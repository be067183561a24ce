"""The JSON of SLURM's commands. It differs from version to version: numbers and states have had three forms each."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from trainwarden_exporter.collectors.slurm.command import failure
from trainwarden_exporter.collectors.slurm.errors import SlurmError

if TYPE_CHECKING:
    from trainwarden_exporter.collectors.slurm.command import Answer

# A record has some hundred fields; of the others nothing is kept, so that a long queue needs little memory.
_KEPT = frozenset(
    """jobs nodes errors description error job_id job_state state_reason state_description restart_cnt priority hold
    comment job name user_name user_id partition node_count submit_time start_time end_time exit_code return_code
    signal id signal_id set infinite number gres_detail tres_alloc_str
    state state_flags gres gres_used reason reason_changed_at reason_set_by_user""".split()  # noqa: SIM905  # shorter
)
# gpu, gpu:COUNT or gpu:TYPE:COUNT; a type may begin with a digit, as that of a part of a GPU does.
_GPUS = re.compile(r"gpu(?::(?!\d+(?:[,(]|$))[^,(:]+)?(?::(\d+)|\(CNT:(\d+)\))?(?=[,(]|$)")
_TRES_GPUS = re.compile(r"(?:^|,)gres/gpu=(\d+)(?=,|$)")
_NO_VALUE = 0xFFFFFFF0  # from here on SLURM's own "none" and "infinite" begin, where a version prints them


def records(answer: Answer, kind: str) -> list[Any]:
    """Return the list `kind` of an answer; raises `SlurmError` if it is not there or says that something went wrong."""
    try:
        # Names and comments are any user's bytes; one that is no UTF-8 must not hide every other record.
        document = json.loads(answer.output.decode("utf-8", "replace"), strict=False, object_pairs_hook=_kept)
    except (ValueError, RecursionError) as error:
        raise SlurmError("unreadable", f"no JSON: {error}") from error
    if not isinstance(document, dict):
        raise SlurmError("unreadable", "no object of JSON")
    if document.get("errors"):
        # The list is empty then, and the status 0.
        raise failure(f"{document['errors']!r:.300} {answer.said}", answer.said)
    found = document.get(kind)
    if not isinstance(found, list):
        raise SlurmError("unreadable", f"no list of {kind}")
    return found


def number(value: object) -> int | None:
    """Return a number, plain or as {set, infinite, number}; None where it is not set."""
    if isinstance(value, dict):
        if value.get("infinite") or not value.get("set", True):
            return None
        value = value.get("number")
    whole = value if isinstance(value, int) and not isinstance(value, bool) else None
    return None if whole is None or whole < 0 else whole


def moment(value: object) -> float | None:
    """Return a time, Unix seconds; None where there is none yet."""
    found = number(value)
    return float(found) if found and found < _NO_VALUE else None


def words(*values: object) -> frozenset[str]:
    """Return states and flags in capitals: one word, several with a `+` between, or lists of them."""
    found: set[str] = set()
    for value in values:
        for text in value if isinstance(value, list) else [value]:
            if isinstance(text, str):
                found.update(part.strip("*~#!%$@^-") for part in text.upper().split("+"))
    return frozenset(found - {""})


def text(value: object) -> str:
    """Return a text; empty where it is none."""
    return value if isinstance(value, str) else ""


def gpus_of_gres(gres: str) -> int:
    """Return how many GPUs a text such as `gpu:h100:4(S:0-1),gpu:2` or `gpu(CNT:2)` names."""
    total = 0
    for item in re.split(r",(?![^(]*\))", gres):
        match = _GPUS.match(item)
        if match:
            total += int(match[1] or match[2] or 1)
    return total


def gpus_of_tres(tres: str) -> int | None:
    """Return how many GPUs a text such as `cpu=8,gres/gpu=4` names; None where it names none."""
    match = _TRES_GPUS.search(tres)
    return int(match[1]) if match else None


def _kept(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    return {key: value for key, value in pairs if key in _KEPT}
