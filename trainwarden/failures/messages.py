"""Classifies messages."""

from __future__ import annotations

from trainwarden.failures.chain import shortened
from trainwarden.failures.entries import FAILURES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainwarden.failures.failure import Failure

# Messages can be of any size; their subject stands at the beginning or at the end.
MESSAGE_LIMIT = 12_000
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
    first, _, last = message.lower().partition(": ")
    return _slug(_phrase(first)) or _slug(_phrase(last.rpartition(": ")[2]))


def _slug(phrase: str) -> str | None:
    """Return the slug of the shipped signal that has the phrase among its `messages`."""
    from trainwarden.failures.patterns import MESSAGES  # noqa: PLC0415  # large

    at = MESSAGES.find(f"\n{phrase}\t") if phrase else -1
    return MESSAGES[at + len(phrase) + 2 : MESSAGES.index("\n", at + 1)] if at >= 0 else None


def _phrase(text: str) -> str:
    """Return a part of a message without fillers, and without where and when it happened."""
    end = min(at for at in (len(text), *map(text.find, _REST)) if at >= 0)
    if len(text[end:].split()) > _REST_WORDS:
        return ""
    words = text[:end].strip(" \t\n.!:;'\"()[]").split()
    return " ".join([word for word in words if word not in _FILLERS])
