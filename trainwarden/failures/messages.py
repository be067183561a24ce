"""Classifies messages."""

from __future__ import annotations

from trainwarden.failures.chain import shortened
from trainwarden.failures.entries import FAILURES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainwarden.failures.failure import Failure

# Messages can be of any size; their subject stands at the beginning or at the end.
MESSAGE_LIMIT = 12_000
# Whole messages: as the reason of an end they name a failure, in a line of a log they would not.
_PHRASES = {
    "cuda_oom": (
        "oom; cuda oom; gpu oom; hip oom; oom error; out of memory; gpu out of memory; device out of memory; "
        "ran out of memory; out of memory error"
    ),
    "host_oom": (
        "host oom; cpu oom; host out of memory; cpu out of memory; out of ram; ran out of ram; oom killed; "
        "oomkilled; oom-killed"
    ),
    "storage_quota": "disk full; no space; no space left; out of space; out of disk; quota exceeded",
    "stall": "hang; hung; stalled; stuck; frozen; no progress; cuda hang; gpu hang",
    "deadlock": "deadlock; deadlocked",
    "nccl_watchdog_timeout": "nccl timeout; nccl timed out; collective timeout; collective timed out",
    "nccl_system": "nccl error; nccl failure",
    "store_timeout": "rendezvous timeout; rendezvous timed out; store timeout; barrier timeout",
    "numeric": (
        "nan; inf; nan loss; loss nan; inf loss; loss inf; nan gradients; gradient explosion; exploding "
        "gradients; diverged"
    ),
    "peer_timeout": (
        "connection timeout; connection timed out; network timeout; socket timeout; network unreachable; "
        "network error; network failure; network down; host unreachable"
    ),
    "peer_reset": "connection reset; connection lost; connection closed; connection refused; connection aborted",
    "killed": "killed; sigkill",
    "crash_signal": "segfault; segmentation fault; sigsegv; core dumped; bus error",
    "cancelled": "cancelled; canceled; interrupted; sigterm; sigint; user interrupt; keyboard interrupt",
    "preempted": "preempted; preemption; spot interruption; spot termination; instance preempted",
    "time_limit": "time limit; time limit exceeded; time limit reached; walltime exceeded; walltime reached",
    "node_fail": "node failure; node fail; node lost; node died; node down; node unhealthy; bad node",
    "gpu_lost": "gpu lost; gpu fell off; gpu fell off bus; gpu failure; gpu died; bad gpu",
    "gpu_ecc": "ecc error; uncorrectable ecc; uncorrectable ecc error; double-bit ecc error",
    "nvlink": "nvlink error; nvlink failure; nvlink down",
    "cuda_error": "cuda error; gpu error; hip error",
    "ckpt_corrupt": "checkpoint corrupt; checkpoint corrupted; corrupt checkpoint; corrupted checkpoint",
    "ckpt_missing": "checkpoint missing; checkpoint not found; no checkpoint",
    "data_missing": "dataset not found; data not found; dataset missing; data missing",
    "data_corrupt": "dataset corrupt; dataset corrupted; data corrupt; data corrupted; corrupt data; corrupt dataset",
    "config_error": (
        "config error; configuration error; invalid config; bad config; invalid configuration; invalid "
        "argument; invalid arguments; invalid learning rate"
    ),
}
_LONGEST_PHRASE = 100
# What such a message has around the phrase.
_FILLERS = frozenset((
    "a", "an", "the", "is", "was", "has", "been", "got", "due", "to", "job", "run", "training", "exception", "detected",
    "occurred", "encountered",
))  # fmt: skip
_REST_WORDS = 4
_REST = (" on ", " at ", " in ", " during ", " after ", " by ", " while ", " for ")


def classify_message(text: str) -> Failure | None:
    """Return the failure of a message, a traceback, or the end of a log; None if unknown."""
    from trainwarden.failures.judge import UNKNOWN  # noqa: PLC0415
    from trainwarden.failures.records import cause_in  # noqa: PLC0415  # takes long to load

    cause = cause_in(shortened(text, MESSAGE_LIMIT))
    slug = cause.failure if cause and cause.failure and cause.failure != UNKNOWN else failure_of_phrase(text)
    return FAILURES[slug] if slug else None


def failure_of_phrase(message: str) -> str | None:
    """Return the slug of a message that is nothing but the short name of a failure, such as `OOM`; None of others."""
    if len(message) > _LONGEST_PHRASE:
        return None
    phrases = {phrase: slug for slug, listed in _PHRASES.items() for phrase in listed.split("; ")}
    first, _, last = message.lower().partition(": ")
    return phrases.get(_phrase(first)) or phrases.get(_phrase(last.rpartition(": ")[2]))


def _phrase(text: str) -> str:
    """Return a part of a message without fillers, and without where and when it happened."""
    end = min(at for at in (len(text), *map(text.find, _REST)) if at >= 0)
    if len(text[end:].split()) > _REST_WORDS:
        return ""
    words = text[:end].strip(" \t\n.!:;'\"()[]").split()
    return " ".join([word for word in words if word not in _FILLERS])
