"""The numbers of a record, each with the words before it and the unit behind it."""

import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import NamedTuple

# A key is looked for this far before its number, and is no longer than so many words.
KEY_LIMIT, WORDS = 96, 6
# More numbers are no record of progress but a dump of something.
NUMBERS = 1024

_NUMBER = re.compile(
    rb"""
    (?<![\w.])
    (?P<number>
        [-+]?(?:
            \d{1,3}(?:,\d{3})+(?![\d,])(?:\.\d+)?
          | \d+(?:\.\d+)?(?:[eE][-+]?\d+)?
          | \.\d+(?:[eE][-+]?\d+)?
          | [nN]a[nN]\b | [iI]nf(?:inity)?\b
        )
    )
    (?P<multiple>[kKMBG](?![\w/]))?
    (?:\s{0,12}(?:/|\bof\b)\s{0,12}(?P<total>\d{1,15}(?:,\d{3}){0,4})(?![\w.:]))?
    (?P<unit>
        %
      | \s?(?:ms|milliseconds|s|secs?|seconds)(?![\w/])
      | \s?(?:tok|token|sample|seq|sequence|example|sentence|img|image|it|iter|step|batche?)(?:s|es)?
          /s(?:ec|econd)?(?![\w/])
      | \s?s/(?:it|iter|step|batch)(?![\w/])
    )?
    (?!\w | [-.][\w-] | :\d | \()
    """,
    re.VERBOSE,
)
_WRAPPER = re.compile(rb"(?:[\w.]{1,16}\.)?(?:float\d*|int\d*|tensor|array)\($")
_SCALE = re.compile(rb"\([-+.\deE]{1,16}\)$")
_BREAK = re.compile(rb"[,;|{}\t\]]|\s-\s")
_WORD = re.compile(r"[a-z0-9]+")
_MULTIPLE = {b"k": 1e3, b"K": 1e3, b"M": 1e6, b"B": 1e9, b"G": 1e9}


class Token(NamedTuple):
    """A number with its key and unit.

    Attributes:
        key: the last words before it, lower case; empty if only punctuation is there.
        namespaced: the key is a path such as `train/lr`.
        assigned: a colon, an equals sign or a bracket parts key and number, not only space.
        rounded: printed with fewer digits than it has (26K, 3.1e+4).
        total: of `12/500` or `12 of 500`.
        unit: lower case, without space; empty if there is none.
        scale: of keys such as `lr(1e-4)`.
        start: where its key starts in the record.
    """

    key: tuple[str, ...]
    namespaced: bool
    assigned: bool
    value: float
    whole: bool
    rounded: bool
    total: int | None
    unit: str
    start: int


class _Key(NamedTuple):
    words: tuple[str, ...]
    namespaced: bool
    assigned: bool
    length: int
    takes_words: bool  # NaN and infinity: after `number of` it is a word


def tokens(record: bytes) -> Iterator[Token]:
    """Return the numbers of a record from left to right, in time linear in its length."""
    after, scale = 0, 1.0
    for match in islice(_NUMBER.finditer(record), NUMBERS):
        text, multiple, total, unit = match.groups()
        start, end = match.span()
        if record[start - 1 : start] == b"(" and record[end : end + 2] in (b"):", b")="):
            scale = float(text) if text[:1].isdigit() and b"," not in text else 1.0  # lr(1e-4):0.01
            continue
        key = _key(record[max(after, start - KEY_LIMIT) : start])
        if not key.takes_words and text[-1:].isalpha():
            continue
        after = end
        value = float(text.replace(b",", b""))
        if multiple:
            value *= _MULTIPLE[multiple]
        yield Token(
            key=key.words,
            namespaced=key.namespaced,
            assigned=key.assigned,
            value=value * scale,
            # "STEP 513.0" is a job's
            whole=0 <= value < 1e15 and value == int(value) and (key.assigned or b"." not in text),
            rounded=multiple is not None or b"e" in text or b"E" in text,
            total=int(total.replace(b",", b"")) if total else None,
            unit=unit.decode().strip() if unit else "",
            start=max(0, start - key.length),
        )
        scale = 1.0


@lru_cache(maxsize=4096)
def _key(head: bytes) -> _Key:
    """Return the key at the end of the text between two numbers; cached, for lines of one kind repeat it."""
    head = _WRAPPER.sub(b"", head)
    bare = head.rstrip(b" \t\"'[(<~@#*")
    assigned = bare[-1:] in (b":", b"=") or head[-1:] in (b"[", b"(")
    piece = _BREAK.split(_SCALE.sub(b"", bare.rstrip(b" \t\"':=")))[-1]
    words = tuple(_WORD.findall(piece.decode("ascii", "replace").lower())[-WORDS:])
    return _Key(words, b"/" in piece, assigned, len(piece), assigned or bare.endswith((b"loss", b"Loss", b"norm")))
