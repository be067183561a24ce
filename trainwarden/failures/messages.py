"""Classifies messages."""

from __future__ import annotations

from trainwarden.failures.chain import shortened
from trainwarden.failures.entries import FAILURES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainwarden.failures.failure import Failure

# Messages can be of any size; their subject stands at the beginning or at the end.
MESSAGE_LIMIT = 12_000


def classify_message(text: str) -> Failure | None:
    """Return the failure of a message, a traceback, or the end of a log; None if unknown."""
    from trainwarden.failures.judge import UNKNOWN  # noqa: PLC0415
    from trainwarden.failures.records import cause_in  # noqa: PLC0415  # takes long to load

    cause = cause_in(shortened(text, MESSAGE_LIMIT))
    return FAILURES[cause.failure] if cause and cause.failure and cause.failure != UNKNOWN else None
