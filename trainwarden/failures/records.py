"""Evidence in text: in a message, in a traceback, in the end of a log. The shipped patterns find it, line by line."""

from __future__ import annotations

import functools
import re

from trainwarden.failures.entries import FAILURES
from trainwarden.failures.judge import STEPS_THAT_PROVE_LIFE, UNKNOWN, VAGUE_TYPES, Evidence, find_cause, strength
from trainwarden.failures.out_of_memory import is_left_over
from trainwarden.failures.quotation import LINES_BEFORE, is_exception, is_in_command, is_quoted, unlabelled
from trainwarden.failures.windows import (
    ESCAPE_SEQUENCE,
    RECORD_LIMIT,
    SHORT_RECORD,
    SearchBudget,
    stretches_of,
    windows,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from trainwarden.failures.exception_types import Classification

# Of a record, for the question whether it is quoted. Whether it is a warning stands at its beginning, or near what was
# found.
QUOTED_BYTES = 4096
_MARK_BYTES = 512
# Records that are warnings, notes or retries; and those that are errors nevertheless.
CALM = (
    rb"\b(?:WARN(?:ING)?|INFO|DEBUG|NOTICE|TRACE|\w{0,40}Warning|warning)\b|[\[(][WI]\d|\[W |^[WI]\d{4} "
    rb"|\blevel=(?:warn|info)|\b[Rr]etrying\b|Retry\(|\b[Ff]all(?:ing|s)? ?back\b|\b[Ii]gnor(?:ing|ed)\b"
    rb"|\b[Ss]kipp(?:ing|ed)\b(?! (?:is |was )?(?:disabled|off|impossible))|from scratch"
    rb"|\b[Uu]s(?:ing|es?) (?:\w{1,40} ){0,3}instead\b|not installed[,.;] |\b[Rr]etry(?:ing)? #?\d{1,6} ?(?:/|of) ?\d"
    rb"|\b[Ss]tarting (?:over|(?:from|at|with) (?:(?:step|iteration|epoch) )?0)\b"
    rb"|\bresolved after\b|\bretry loop\b|\bthrown while requesting\b|\b[Uu]sing (?:the )?defaults?\b"
    rb"|\b[Cc]ontinuing (?:without|anyway)\b|\b[Tt]rying (?:again|another)\b|\brunning offline\b"
)
# Events of Kubernetes are of the type Normal or Warning.
LOUD = rb"\b(?:ERROR|CRITICAL|FATAL)\b|\[[EF]\d|\bWarning {1,12}[A-Z][a-z]\w{2,40} {1,40}\d{1,4}[smhd]"
# Exceptions whose message is an identifier of the program, which may contain the words of any failure; and what it is
# evidence of nevertheless: those patterns are about the exception itself.
_QUOTING = frozenset(("KeyError", "IndexError", "AttributeError", "NameError", "UnboundLocalError"))
_QUOTING_BYTES = tuple(name.encode() for name in sorted(_QUOTING))
_OF_NAMES = frozenset((
    "missing_module", "driver_setup", "crash_signal", "compile_toolchain", "model_creation", "shape_mismatch",
    "ckpt_mismatch", "data_exception", UNKNOWN,
))  # fmt: skip
# What may follow from a failure elsewhere, however certain it is: as the patterns have it.
_SYMPTOMS = frozenset(("rendezvous", "peer_timeout", "store_timeout", "cancelled", "nccl_system", "data_exception"))
_NAME = rb"(has no attribute|cannot import name) '[^'\n]*'"


class Record:
    """A line of a text in which a pattern was found.

    Attributes:
        line: its number, from 0.
        text: without the label of a launcher and without colours.
        signal: name of the pattern.
        exception_type, message: where the line is the last one of a traceback, or logs an exception.
    """

    __slots__ = ("exception_type", "line", "message", "signal", "text")

    def __init__(self, line: int, text: str, signal: str, exception_type: str | None, message: str) -> None:
        self.line = line
        self.text = text
        self.signal = signal
        self.exception_type = exception_type
        self.message = message


def cause_in(text: str, progress: Sequence[int] = ()) -> Evidence | None:
    """Return the evidence of the cause in a message, a traceback or the end of a log; its source is a `Record`.

    Args:
        text: of any size.
        progress: offsets, in its UTF-8, of the records in which a step higher than all before was reported, sorted.
    """
    return find_cause(evidence_in(text, progress), progress)


def evidence_in(text: str, progress: Sequence[int] = ()) -> list[Evidence]:
    """Return the evidence in a text, in its order, up to where the cause is certain."""
    survived = progress[-STEPS_THAT_PROVE_LIFE] if len(progress) >= STEPS_THAT_PROVE_LIFE else 0
    found = _Search(text, survived)
    return sorted(found.evidence, key=lambda each: each.offset)


def exception_in(line: str) -> tuple[str, str] | None:
    """Return type and message of the exception that a line reports; None if it reports none."""
    data = line.encode("utf-8", "replace")[:RECORD_LIMIT]
    rows = [row for row in _rows_for(data) if row.failure == UNKNOWN and row.role == "fallback"]
    for row, found in _finds(rows, data, data.lower()):
        kind, message = row.exception(found)
        if kind:
            return kind, message
    return None


class _Search:
    """The lines of a text, and the patterns that may match one of them."""

    def __init__(self, text: str, survived: int) -> None:
        whole = text.encode("utf-8", "replace")
        self._lines = whole.replace(b"\r", b"\n").split(b"\n")
        rows = _rows_for(whole)
        self._texts: dict[int, str] = {}
        self.evidence: list[Evidence] = []
        effects = [row for row in rows if row.effect is not None]
        others = [row for row in rows if row.effect is None]
        starts, offset = [], 0
        quotes_names = b"has no attribute '" in whole or b"cannot import name '" in whole
        for index, line in enumerate(self._lines):
            starts.append(offset)
            offset += len(line) + 1
            self._lines[index] = line[:RECORD_LIMIT]
            if b"\x1b[" in line:
                self._lines[index] = _compiled(ESCAPE_SEQUENCE).sub(b"", self._lines[index])
            if quotes_names:
                self._lines[index] = _compiled(_NAME).sub(rb"\1 'x'", self._lines[index])
            self._search(index, starts[index], effects)
        decided = max((each.offset for each in self.evidence), default=-1)
        for index, line in enumerate(self._lines):
            if not line or starts[index] < survived:
                continue
            if self._search(index, starts[index], others) and starts[index] > decided:
                # Nothing that follows can outweigh it.
                break

    def _search(self, index: int, offset: int, rows: list[_Row]) -> bool:
        """Add the evidence of one line; return whether a root is among it."""
        line = self._lines[index]
        found: list[Evidence] = []
        unknown: Evidence | None = None
        exact = b"[Errno" in line or _may_quote(line)
        for row, match in _finds(rows, line, line.lower()):
            if row.role not in ("confirmation", "event") and self._is_quoted(index, line, match.start()):
                continue
            evidence = self._evidence(index, offset, row, match)
            if row.failure == UNKNOWN and evidence.source.exception_type:
                unknown = unknown or evidence
            else:
                found.append(evidence)
            if row.role == "root" and not exact:
                # Of several roots in one record the first one counts.
                break
        if unknown is None and found and not is_exception(found[0].source.text):
            for each in found:
                each.is_printed = True
        if unknown:
            record = unknown.source
            found = with_exception(found, unknown, record.exception_type, record.message)
        self.evidence += found
        return any(strength(each) == 0 for each in found)

    def _is_quoted(self, index: int, line: bytes, at: int) -> bool:
        if len(self._lines) == 1:
            return is_in_command(self._text(index)[:QUOTED_BYTES], at)
        before = [self._text(each)[:QUOTED_BYTES] for each in range(max(0, index - LINES_BEFORE), index)]
        record = line[:QUOTED_BYTES]
        return is_quoted(record.decode("utf-8", "replace"), len(record[:at].decode("utf-8", "replace")), before)

    def _text(self, index: int) -> str:
        text = self._texts.get(index)
        if text is None:
            text = self._texts[index] = self._lines[index].decode("utf-8", "replace")
        return text

    def _evidence(self, index: int, offset: int, row: _Row, match: re.Match[bytes]) -> Evidence:
        label, plain = unlabelled(self._text(index))
        kind, message = row.exception(match) if row.failure == UNKNOWN else (None, "")
        slug = refined(row.failure, plain)
        record = Record(index, plain, row.name, kind, message)
        return Evidence(offset, row.role, slug, record, effect=row.effect, label=label)


class _Part:
    """One alternative of a shipped signal; its expression is compiled when it is needed."""

    __slots__ = ("_caseless", "_literals", "_pattern", "calm", "reach")

    def __init__(self, calm: bool, caseless: bool, literals: bytes, reach: int, pattern: bytes) -> None:
        self.calm = calm
        self.reach = reach
        self._caseless = caseless
        self._literals = tuple(literals.split(b"\n"))
        self._pattern = pattern

    def is_possible(self, line: bytes, lower: bytes) -> bool:
        """Return whether the line contains a text of those of which each match contains one."""
        return any(map((lower if self._caseless else line).__contains__, self._literals))

    def stretches(self, line: bytes, lower: bytes) -> list[list[int]]:
        """Return where in a long line these texts are."""
        return stretches_of(self._literals, lower if self._caseless else line, self.reach)

    def search(self, line: bytes, low: int, high: int, last: int) -> re.Match[bytes] | None:
        """Return the match in line[low:high] that begins at `last` at the latest; None if there is none."""
        found = _compiled(self._pattern).search(line, low, high)
        # What begins behind the last text only seems to match, at the end of the window.
        if found is None or (found.start() > last and high < len(line)):
            return None
        return None if self.calm and is_calm(line, 0, len(line), found.start()) else found


class _Row:
    """One shipped signal."""

    __slots__ = ("effect", "failure", "name", "parts", "role")

    def __init__(self, name: str, role: str, failure: str | None, effect: str | None, parts: tuple[_Part, ...]) -> None:
        self.name = name
        self.role = role
        self.failure = failure
        self.effect = effect
        self.parts = parts

    def exception(self, found: re.Match[bytes]) -> tuple[str | None, str]:
        """Return the type and the message of the exception that a match reports; None and nothing without one."""
        groups = found.groupdict()
        if not groups.get("exception"):
            return None, ""
        return groups["exception"].decode(), (groups.get("message") or b"").decode("utf-8", "replace").strip()


def _finds(rows: Sequence[_Row], line: bytes, lower: bytes) -> Iterator[tuple[_Row, re.Match[bytes]]]:
    """Yield the rows that match a line, in their order, each with its first match."""
    if len(line) > SHORT_RECORD:
        yield from _finds_in_long(rows, line, lower)
        return
    for row in rows:
        parts = [part for part in row.parts if part.is_possible(line, lower)]
        matches = [part.search(line, 0, len(line), len(line)) for part in parts]
        if found := [match for match in matches if match]:
            yield row, min(found, key=re.Match.start)


def _finds_in_long(rows: Sequence[_Row], line: bytes, lower: bytes) -> Iterator[tuple[_Row, re.Match[bytes]]]:
    budget = SearchBudget()
    places = [(part.stretches(line, lower), row, part) for row in rows for part in row.parts]
    found: dict[_Row, re.Match[bytes]] = {}
    # What is everywhere in the line must not keep the rest from being found.
    for stretches, row, part in sorted(places, key=lambda place: sum(last - first for first, last in place[0])):
        for low, high, last in windows(stretches, part.reach, 0, len(line)):
            if not budget.allows(high - low):
                break
            match = part.search(line, low, high, last)
            if match:
                found[row] = min(match, found.get(row, match), key=re.Match.start)
                break
    yield from ((row, found[row]) for row in rows if row in found)


@functools.lru_cache(maxsize=1024)
def _row(number: int) -> _Row:
    from trainwarden.failures.patterns import SIGNALS  # noqa: PLC0415  # large

    name, role, failure, effect, calm, *fields = SIGNALS[number].split(b"\0")
    parts = tuple(
        _Part(calm == b"calm", caseless == b"caseless", literals, int(reach), pattern)
        for caseless, literals, reach, pattern in zip(*[iter(fields)] * 4, strict=True)
    )
    return _Row(name.decode(), role.decode(), failure.decode() or None, effect.decode() or None, parts)


def _rows_for(text: bytes) -> list[_Row]:
    """Return the signals that may match a record of the text, in their order."""
    from trainwarden.failures.patterns import CASELESS_TEXTS, TEXTS  # noqa: PLC0415  # large

    numbers: set[int] = set()
    for start in {text[at : at + 3] for at in range(len(text) - 2)}:
        for entry in TEXTS[start].split(b"\n") if start in TEXTS else ():
            literal, _, signals = entry.partition(b"\0")
            if literal in text:
                numbers.update(map(int, signals.split()))
    lower = text.lower() if CASELESS_TEXTS else b""
    for entries in CASELESS_TEXTS.values():
        for entry in entries.split(b"\n"):
            literal, _, signals = entry.partition(b"\0")
            if literal in lower:
                numbers.update(map(int, signals.split()))
    return list(map(_row, sorted(numbers)))


def _may_quote(line: bytes) -> bool:
    """Return whether the line may name an exception whose message is an identifier of the program."""
    return any(map(line.__contains__, _QUOTING_BYTES))


@functools.lru_cache(maxsize=512)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.MULTILINE)


def is_calm(text: bytes, start: int, end: int, at: int) -> bool:
    """Return whether the record text[start:end] is marked as a warning, a note or a retry, seen from a place in it."""
    near = max(start, at - _MARK_BYTES), min(end, at + _MARK_BYTES)
    parts = [near] if near[0] <= start else [(start, min(near[0], start + _MARK_BYTES)), near]
    marks = b"\n".join(text[low:high] for low, high in parts)
    return _compiled(CALM).search(marks) is not None and _compiled(LOUD).search(marks) is None


def with_exception(evidence: list[Evidence], unknown: Evidence, kind: str, message: str) -> list[Evidence]:
    """Return the evidence of one record, completed by what the type and the number of its exception indicate.

    Args:
        evidence: of the other patterns that match the record.
        unknown: that it is an exception.
        kind: as printed: `FileNotFoundError`, `requests.exceptions.Timeout`.
        message: the text after the colon.
    """
    unknown.is_vague = kind.rpartition(".")[2] in VAGUE_TYPES
    if any(each.role == "root" for each in evidence) and "[Errno" not in message and not is_quoting(kind):
        return evidence
    from trainwarden.failures.exception_types import of_errno, of_type, rebuild  # noqa: PLC0415  # takes long to load

    exc = rebuild(kind, message)
    by_type = of_type(exc)
    if kind == "KeyboardInterrupt":
        by_type = None
    return weighed(evidence, unknown, of_errno(exc), by_type, quoting=is_quoting(kind) and _NAMED not in message)


_NAMED = " in DataLoader worker process "


def weighed(
    evidence: list[Evidence],
    unknown: Evidence,
    by_errno: Classification | None,
    by_type: Classification | None,
    *,
    quoting: bool,
) -> list[Evidence]:
    """Return all evidence of one exception, that which counts more first."""
    if quoting:
        evidence = [each for each in evidence if each.failure in _OF_NAMES or each.role == "event"]

    def known(found: Classification) -> Evidence:
        vague = "cascade" if FAILURES[found.slug].cascade else "fallback"
        role = ("symptom" if found.slug in _SYMPTOMS else "root") if found.sure else vague
        return Evidence(unknown.offset, role, found.slug, unknown.source, label=unknown.label, context=unknown.context)

    # Without memory nothing else may work.
    first = [by_type] if by_type and by_type.slug == "host_oom" else [by_errno] if by_errno else []
    last = [by_type] if by_type and by_type not in first else []
    found = [*map(known, first), *evidence, *map(known, last)]
    return found if first or last else [*found, unknown]


def is_quoting(kind: str) -> bool:
    """Return whether the message of such an exception is an identifier of the program."""
    return kind.rpartition(".")[2] in _QUOTING


def refined(slug: str | None, text: str) -> str | None:
    """Return the slug, more exact where the record is."""
    return "gpu_oom_leftover" if slug == "cuda_oom" and is_left_over(text) else slug
