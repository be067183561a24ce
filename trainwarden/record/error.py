"""What `_error` says, whoever writes it. As `trainwarden.record.place`, this loads nothing that takes long to load."""

from __future__ import annotations

import time

from trainwarden.identity import host_name
from trainwarden.record.clock import to_iso

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from trainwarden.failures.failure import Failure

MAX_MESSAGE = 4000
MAX_TRACEBACK = 64_000


def error_document(
    *,
    run_id: str,
    attempt: int | None,
    key: str,
    failure: Failure,
    message: str,
    rank: int | None = None,
    exception_type: str | None = None,
    traceback: str | None = None,
    exit_code: int | None = None,
    host: str | None = None,
    when: float | None = None,
) -> dict[str, Any]:
    """`_error` of the attempt `key`; on this host and now unless `host` and `when` (Unix seconds) say else."""
    return {
        "run_id": run_id,
        "attempt": attempt,
        "attempt_key": key,
        "rank": rank,
        "host": host or host_name(),
        "time": to_iso(time.time() if when is None else when),
        "message": shorten(message, MAX_MESSAGE),
        "exception_type": exception_type,
        "error_type": failure.error_type,
        "failure": failure.slug,
        "subsystem": failure.subsystem,
        "severity": failure.severity,
        "fault": failure.fault,
        "hint": failure.hint,
        "traceback": traceback and shorten(traceback, MAX_TRACEBACK),
        "exit_code": exit_code,
    }


def shorten(text: str, limit: int) -> str:
    """At most `limit` characters: beginning and end, which say more than the middle; never unencodable."""
    if len(text) > limit:
        cut = f" … {len(text) - limit} characters left out … "
        head = (limit - len(cut)) // 3
        text = text[:head] + cut + text[len(text) - (limit - len(cut) - head) :]
    return text.encode("utf-8", "replace").decode()
