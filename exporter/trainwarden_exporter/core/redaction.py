"""Text from logs and records made fit for a label: no secrets, no control characters, bounded in bytes."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

MAX_INPUT = 4096
CACHED_INPUT = 256
REDACTED = "[redacted]"

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\-_])")
_NAMES = r"(?:password|passwd|pwd|secret|token|api[_-]?key|access[_-]?key(?:[_-]?id)?|private[_-]?key|credentials?)"
# Each keeps what stands before the secret, so that a reader still sees what kind it was.
_SECRETS = tuple(
    re.compile(f"(?P<kept>{kept}){secret}")
    for kept, secret in (
        ("", r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*"),
        (r"[A-Za-z][A-Za-z0-9+.-]{0,30}://", r"[^\s/@]+@"),
        ("", r"\b(?:AKIA|ASIA|AROA|AIDA)[A-Z0-9]{12,}"),
        (r"(?i:\bauthorization[\"']?\s*[=:]\s*[\"']?)", r"(?i:(?:bearer|basic|token)\s+)?[^\s\"']+"),
        (r"(?i:\b(?:bearer|basic)\s+)", r"[A-Za-z0-9._~+/=-]{16,}"),
        ("", r"\b(?:hf_|sk-|sk_|pk_|ghp_|gho_|ghs_|github_pat_|glpat-|xox[a-z]-|xapp-|nvapi-)[A-Za-z0-9_-]{6,}"),
        ("", r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{4,}(?:\.[A-Za-z0-9_-]*)?"),
        (r"(?i:hooks\.slack\.com/)(?:services|workflows|triggers)/", r"\S+"),
        (rf"(?i:{_NAMES})[\"']?\s*[=:]\s*", r"(?!\[redacted\])(?:\"[^\"]*\"?|'[^']*'?|[^\s,;&\"']+)"),
        (r"(?i:--(?:password|token|secret|api-key))\s+", r"\S+"),
    )
)


def redact(text: str) -> str:
    """Return the text with everything that looks like a secret replaced."""
    for pattern in _SECRETS:
        text = pattern.sub(lambda match: match["kept"] + REDACTED, text)
    return text


def label_text(text: str, limit: int = 200) -> str:
    """Return the text as one line of at most `limit` bytes of UTF-8, cut between characters, without secrets."""
    if len(text) <= CACHED_INPUT:
        return _cached(text, limit)
    if len(text) > MAX_INPUT:
        # A secret cut in two would not be known as one: cut between words.
        text = text[:MAX_INPUT].rpartition(" ")[0]
    return truncate(redact(plain(text)), limit)


@lru_cache(maxsize=4096)  # the same few texts come with every sample
def _cached(text: str, limit: int) -> str:
    return truncate(redact(plain(text)), limit)


def plain(text: str) -> str:
    """Return the text without terminal escapes, control and format characters and lone surrogates, on one line."""
    text = _ESCAPES.sub("", text)
    return " ".join("".join(char if _printable(char) else " " for char in text).split())


def truncate(text: str, limit: int) -> str:
    """Return at most `limit` bytes of the text's UTF-8, cut between characters."""
    return text.encode("utf-8", "replace")[:limit].decode("utf-8", "ignore")


def _printable(char: str) -> bool:
    return not unicodedata.category(char).startswith("C")
