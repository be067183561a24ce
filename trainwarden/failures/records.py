"""Evidence in text: in a message, in a traceback, in the end of a log. The shipped patterns find it, line by line."""

from __future__ import annotations

import functools
import re

from trainwarden.failures.entries import FAILURES
from trainwarden.failures.judge import STEPS_THAT_PROVE_LIFE, UNKNOWN, VAGUE_TYPES, Evidence, find_cause, strength
from trainwarden.failures.quotation import COLOUR, LINES_BEFORE, is_exception, is_quoted, unlabelled

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from trainwarden.failures.exception_types import Classification

# A record is searched this far.
RECORD_LIMIT = 64 * 1024
# Records that are warnings, notes or retries; and those that are errors nevertheless.
CALM = (
    rb"\b(?:WARN(?:ING)?|INFO|DEBUG|NOTICE|TRACE|\w{0,40}Warning|warning)\b|[\[(][WI]\d|\[W |^[WI]\d{4} "
    rb"|\blevel=(?:warn|info)|\b[Rr]etrying\b|Retry\(|\b[Ff]all(?:ing|s)? ?back\b|\b[Ii]gnor(?:ing|ed)\b"
    rb"|\b[Ss]kipp(?:ing|ed)\b(?! (?:is |was )?(?:disabled|off|impossible))|from scratch"
    rb"|\b[Uu]s(?:ing|es?) (?:\w{1,40} ){0,3}instead\b|not installed[,.;] |\b[Rr]etry(?:ing)? #?\d{1,6} ?(?:/|of) ?\d"
    rb"|\b[Ss]tarting (?:over|(?:from|at|with) (?:(?:step|iteration|epoch) )?0)\b"
    rb"|\bresolved after\b|\bthrown while requesting\b|\b[Uu]sing (?:the )?defaults?\b"
    rb"|\b[Cc]ontinuing (?:without|anyway)\b|\b[Tt]rying (?:again|another)\b|\brunning offline\b"
)
# Events of Kubernetes are of the type Normal or Warning.
LOUD = rb"\b(?:ERROR|CRITICAL|FATAL)\b|\[[EF]\d|\bWarning {1,12}[A-Z][a-z]\w{2,40} {1,12}\d{1,4}[smhd]"
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
# PyTorch's message of a full GPU lists the memory of each process on it.
_SIZE = r"(\d{1,9}(?:\.\d{1,9})?) ([KMGT])iB"
_TOTAL = rf"total capacity of {_SIZE}"
_OWN = rf"this process has {_SIZE} memory in use"
_OTHERS = rf"\bProcess \d{{1,9}} has {_SIZE} memory in use"
_UNITS = {"K": 1, "M": 2**10, "G": 2**20, "T": 2**30}


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
    for row in _rows_for(data):
        if row.failure == UNKNOWN and row.role == "fallback":
            kind, message = row.exception(data)
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
                self._lines[index] = _compiled(COLOUR.encode()).sub(b"", self._lines[index])
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
        lower = line.lower()
        found: list[Evidence] = []
        unknown: Evidence | None = None
        exact = b"[Errno" in line or _may_quote(line)
        for row in rows:
            at = row.search(line) if row.is_possible(lower if row.caseless else line) else None
            if at is None or (row.role not in ("confirmation", "event") and self._is_quoted(index, line, at)):
                continue
            evidence = self._evidence(index, offset, row, line)
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
            return False
        before = [self._text(each) for each in range(max(0, index - LINES_BEFORE), index)]
        return is_quoted(self._text(index), len(line[:at].decode("utf-8", "replace")), before)

    def _text(self, index: int) -> str:
        text = self._texts.get(index)
        if text is None:
            text = self._texts[index] = self._lines[index].decode("utf-8", "replace")
        return text

    def _evidence(self, index: int, offset: int, row: _Row, line: bytes) -> Evidence:
        label, plain = unlabelled(self._text(index))
        kind, message = row.exception(line) if row.failure == UNKNOWN else (None, "")
        slug = refined(row.failure, plain)
        record = Record(index, plain, row.name, kind, message)
        return Evidence(offset, row.role, slug, record, effect=row.effect, label=label)


class _Row:
    """One shipped signal; its expression is compiled when it is needed."""

    __slots__ = ("_calm", "_literals", "_pattern", "caseless", "effect", "failure", "name", "role")

    def __init__(
        self,
        name: str,
        role: str,
        failure: str | None,
        effect: str | None,
        calm: bool,
        caseless: bool,
        literals: bytes,
        pattern: bytes,
    ) -> None:
        self.name = name
        self.role = role
        self.failure = failure
        self.effect = effect
        self.caseless = caseless
        self._calm = calm
        self._literals = tuple(literals.split(b"\n"))
        self._pattern = pattern

    def is_possible(self, text: bytes) -> bool:
        """Return whether the text contains one of those of which each match contains one."""
        return any(map(text.__contains__, self._literals))

    def search(self, line: bytes) -> int | None:
        """Return where in the line the pattern matches; None if it does not."""
        found = _compiled(self._pattern).search(line)
        if found is None or (self._calm and is_calm(line)):
            return None
        return found.start()

    def exception(self, line: bytes) -> tuple[str | None, str]:
        """Return the type and the message of the exception that the line reports; None and nothing without one."""
        found = _compiled(self._pattern).search(line)
        groups = found.groupdict() if found else {}
        if not groups.get("exception"):
            return None, ""
        return groups["exception"].decode(), (groups.get("message") or b"").decode("utf-8", "replace").strip()


@functools.lru_cache(maxsize=1024)
def _row(number: int) -> _Row:
    from trainwarden.failures.patterns import SIGNALS  # noqa: PLC0415  # large

    name, role, failure, effect, calm, caseless, literals, pattern = SIGNALS[number].split(b"\0")
    return _Row(
        name.decode(), role.decode(), failure.decode() or None, effect.decode() or None, calm == b"calm",
        caseless == b"caseless", literals, pattern,
    )  # fmt: skip


def _rows_for(text: bytes) -> list[_Row]:
    """Return the signals that may match a record of the text, in their order."""
    from trainwarden.failures.patterns import CASELESS_STARTS, STARTS  # noqa: PLC0415  # large

    numbers: set[int] = set()
    for index, content in ((STARTS, text), (CASELESS_STARTS, text.lower())):
        starts = {content[at : at + 3] for at in range(len(content) - 2)}
        for start in starts:
            at = index.find(b"\n" + start)
            if at >= 0:
                numbers.update(map(int, index[at + 4 : index.index(b"\n", at + 1)].split()))
    rows = map(_row, sorted(numbers))
    lower = text.lower()
    return [row for row in rows if row.is_possible(lower if row.caseless else text)]


def _may_quote(line: bytes) -> bool:
    """Return whether the line may name an exception whose message is an identifier of the program."""
    return any(map(line.__contains__, _QUOTING_BYTES))


@functools.lru_cache(maxsize=512)
def _compiled(pattern: bytes) -> re.Pattern[bytes]:
    return re.compile(pattern, re.MULTILINE)


def is_calm(record: bytes) -> bool:
    """Return whether its writer marks a record as a warning, a note or a retry."""
    return _compiled(CALM).search(record) is not None and _compiled(LOUD).search(record) is None


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
    return "gpu_oom_leftover" if slug == "cuda_oom" and _is_left_over(text) else slug


def _is_left_over(text: str) -> bool:
    """Return whether other processes hold most of the full GPU.

    In a container a process may be listed by a number that is not its own, so it counts only where this process is
    named as well.
    """
    if "memory in use" not in text:
        return False
    total, own = re.search(_TOTAL, text), re.search(_OWN, text)
    if not total or not own:
        return False
    return sum(_size(*found) for found in re.findall(_OTHERS, text)) >= _size(*total.groups()) / 2


def _size(number: str, unit: str) -> float:
    return float(number) * _UNITS[unit]
