"""Classifies messages."""

from __future__ import annotations

import re

from trainwarden.failures.entries import FAILURES
from trainwarden.failures.leftover import is_left_over
from trainwarden.failures.phrases import PHRASES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainwarden.failures.failure import Failure
    from trainwarden.failures.phrases.phrase import Phrase

# Messages can be of any size; their subject stands at the beginning or at the end.
MESSAGE_LIMIT = 12_000
# An identifier of the program, which may contain the words of any failure.
_QUOTED_NAME = re.compile(r"(has no attribute|cannot import name) '[^'\n]*'")


def classify_message(text: str) -> Failure | None:
    """Return the failure of one line or message; None if unknown."""
    slug = slug_of_message(shortened(text, MESSAGE_LIMIT))
    return FAILURES[slug] if slug else None


def shortened(text: str, limit: int) -> str:
    """Return the text; if longer than `limit` characters, its beginning and its end."""
    return text if len(text) <= limit else f"{text[: limit // 2]}\n{text[-limit // 2 :]}"


def slug_of_message(text: str) -> str | None:
    """Return the slug of a message's failure; None if unknown."""
    text = text.lower()
    if "has no attribute '" in text or "cannot import name '" in text:
        text = _QUOTED_NAME.sub(r"\1", text)
    slug = next((slug for slug, phrases in PHRASES if any(_says(text, phrase) for phrase in phrases)), None)
    return "gpu_oom_leftover" if slug == "cuda_oom" and is_left_over(text) else slug


def _says(text: str, phrase: Phrase) -> bool:
    if isinstance(phrase, str):
        return phrase in text
    needle, pattern = phrase
    return needle in text and re.search(pattern, text) is not None
