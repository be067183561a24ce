"""One line of a journal: a JSON object of bounded size, from any values."""

import itertools
import json
from collections.abc import Mapping
from typing import Any

from trainwarden.record.schema import shorten

MAX_LINE = 64 * 1024

_LARGEST = 2**63
_INFINITY = float("inf")
# Characters of a text, entries of a list or an object, and levels: the first row that makes the line short enough.
_MEASURES = ((48_000, 5000, 12), (16_000, 1000, 8), (4000, 200, 6), (1000, 50, 4), (200, 10, 3), (40, 8, 3))
# The last resort: no nested values.
_LAST_TEXT, _LAST_ENTRIES = 100, 20


def encode_line(document: Mapping[str, Any], limit: int = MAX_LINE) -> bytes:
    """Return the document as one line of strict JSON in ASCII, at most `limit` bytes with its end.

    Long texts and lists are shortened until it fits, NaN and infinities become null, and a value without a JSON form
    becomes its number or its text.
    """
    for text, entries, depth in _MEASURES:
        line = _dump({_text(key, text): _plain(value, text, entries, depth) for key, value in document.items()})
        if len(line) <= limit:
            return line
    some = itertools.islice(document.items(), _LAST_ENTRIES)
    return _dump({_text(key, _LAST_TEXT): _plain(value, _LAST_TEXT, 0, 0) for key, value in some})


def _dump(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False).encode("ascii") + b"\n"


def _plain(value: Any, text: int, entries: int, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return shorten(value, text)
    if isinstance(value, int) and abs(value) < _LARGEST:
        return int(value)
    if isinstance(value, Mapping):
        some = itertools.islice(value.items(), entries if depth else 0)
        return {_text(key, text): _plain(one, text, entries, depth - 1) for key, one in some}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(one, text, entries, depth - 1) for one in itertools.islice(value, entries if depth else 0)]
    return _number(value) if hasattr(value, "__float__") else _text(value, text)


def _number(value: Any) -> float | None:
    try:
        number = float(value)
    except Exception:  # noqa: BLE001  # a conversion written by the user may raise anything
        return None
    return number if -_INFINITY < number < _INFINITY else None


def _text(value: Any, limit: int) -> str:
    if isinstance(value, (bytes, bytearray)):
        value = bytes(value[: 4 * limit]).decode("utf-8", "replace")
    try:
        return shorten(str(value), limit)
    except Exception:  # noqa: BLE001  # as above
        return type(value).__name__
