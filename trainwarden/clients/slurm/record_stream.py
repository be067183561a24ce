"""Read the records of a long JSON answer one by one: `{"errors": [...], "jobs": [{...}, {...}, ...]}`.

Measured with 50,000 jobs of 22.05, 156 MB of JSON: `json.loads` grew the remediator by 607 MiB and the exporter by 357;
this grows them by 49, for the jobs that it keeps, and by 7, in the same time.
"""

from __future__ import annotations

import codecs
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Characters of one record, or of another member of the answer. A job on thousands of nodes takes some MiB.
MAX_RECORD = 64 << 20
_CUT_NUMBER = re.compile(r"[-+.eE0-9]*\Z")
_SPACE = re.compile(r"[ \t\r\n]*")
# Names and comments are any user's bytes: control characters, and bytes that are no UTF-8, must hide no other record.
_DECODER = json.JSONDecoder(strict=False)


class AnswerErrors(Exception):
    """The answer lists errors. Its list of records is empty then, or incomplete."""


def read_records(chunks: Iterable[bytes], kind: str) -> Iterator[Any]:
    """Yield each element of the list `kind` of a JSON object.

    What was yielded counts only if the generator ends without an error: `errors` may stand after the records.

    Args:
        chunks: the answer, UTF-8, cut anywhere.
        kind: the member of the object that is the list.

    Raises:
        AnswerErrors: the member `errors` is not empty.
        ValueError: the answer is no JSON object, or has no list `kind`, or two.
    """
    text = _Text(chunks)
    text.skip("{")
    found, errors = False, None
    while text.has_next("}"):
        if text.peek() != '"':
            raise ValueError("a name in the JSON object is no text")
        key = text.value()
        text.skip(":")
        if key != kind or text.peek() != "[":
            value = text.value()
            errors = value if key == "errors" else errors
        elif found:
            raise ValueError(f"two lists of {kind}")
        else:
            found = True
            text.skip("[")
            while text.has_next("]"):
                yield text.value()
    if errors:
        raise AnswerErrors(f"errors: {errors!r:.300}")
    if not found:
        raise ValueError(f"no list of {kind}")
    text.end()


class _Text:
    """The part of the answer that has arrived and is not read yet."""

    def __init__(self, chunks: Iterable[bytes]) -> None:
        self._chunks = iter(chunks)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._text = ""
        self._at = 0
        self._opened = False

    def peek(self) -> str:
        """Return the next character that is no white space; empty at the end."""
        while True:
            match = _SPACE.match(self._text, self._at)
            self._at = match.end() if match else self._at
            if self._at < len(self._text):
                return self._text[self._at]
            if not self._extend(1):
                return ""

    def skip(self, expected: str) -> str:
        """Read one character of `expected` and return it."""
        found = self.peek()
        if not found or found not in expected:
            raise ValueError(f"expected {' or '.join(expected)}, found {found or 'the end'}")
        self._at += 1
        self._opened = found in "[{"
        return found

    def has_next(self, closing: str) -> bool:
        """Read the comma before the next element, or the bracket after the last; return whether one follows."""
        if self._opened and self.peek() != closing:
            self._opened = False
            return True
        return self.skip(closing if self._opened else f",{closing}") == ","

    def value(self) -> Any:
        """Read one JSON value."""
        self.peek()
        while True:
            try:
                value, end = _DECODER.raw_decode(self._text, self._at)
            except json.JSONDecodeError:
                # Malformed, or cut off. The text doubles before the next try, so that a long record takes linear time.
                pending = len(self._text) - self._at
                if pending > MAX_RECORD or not self._extend(pending):
                    raise
                continue
            if isinstance(value, int | float) and _CUT_NUMBER.match(self._text, end) and self._extend(1):
                continue
            self._at = end
            return value

    def end(self) -> None:
        """Expect nothing but white space."""
        if self.peek():
            raise ValueError("text follows the JSON object")

    def _extend(self, size: int) -> bool:
        """Append at least so many characters, if as many come; return whether any came. Drop what was read."""
        parts, length = [self._text[self._at :]], 0
        while length < size:
            chunk = next(self._chunks, None)
            parts.append(self._decoder.decode(chunk or b"", final=chunk is None))
            length += len(parts[-1])
            if chunk is None:
                break
        self._text, self._at = "".join(parts), 0
        return length > 0
