"""Classifies messages."""

from __future__ import annotations

import re

from trainwarden.failures.entries import FAILURES
from trainwarden.failures.phrases import PHRASES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainwarden.failures.failure import Failure
    from trainwarden.failures.phrases.phrase import Phrase

# Messages can be of any size; their subject stands at the beginning or at the end.
MESSAGE_LIMIT = 12_000
# An identifier of the program, which may contain the words of any failure.
_QUOTED_NAME = re.compile(r"(has no attribute|cannot import name) '[^'\n]*'")
# PyTorch's message of a full GPU lists the memory of each process on it.
_SIZE = r"(\d+(?:\.\d+)?) ([kmgt])ib"
_TOTAL = rf"total capacity of {_SIZE}"
_OWN = rf"this process has {_SIZE} memory in use"
_OTHERS = rf"\bprocess \d+ has {_SIZE} memory in use"
_UNITS = {"k": 1, "m": 2**10, "g": 2**20, "t": 2**30}


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
    slug = next((slug for slug, phrases in PHRASES if any(_matches(text, phrase) for phrase in phrases)), None)
    return "gpu_oom_leftover" if slug == "cuda_oom" and _is_left_over(text) else slug


def _matches(text: str, phrase: Phrase) -> bool:
    if isinstance(phrase, str):
        return phrase in text
    needle, pattern = phrase
    return needle in text and re.search(pattern, text) is not None


def _is_left_over(text: str) -> bool:
    """Return whether other processes hold most of the full GPU, by a message in lower case.

    In a container a process may be listed by a number that is not its own, so it counts only where this process is
    named as well.
    """
    total, own = re.search(_TOTAL, text), re.search(_OWN, text)
    if not total or not own:
        return False
    return sum(_size(*found) for found in re.findall(_OTHERS, text)) >= _size(*total.groups()) / 2


def _size(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit]
