"""The report of a log: as text for a terminal, or as JSON."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from trainwarden.scan.context import ContextLines
from trainwarden.scan.verdicts import Finding
from trainwarden.signals.diagnosis import error_type_of
from trainwarden.signals.model import Match, Verdict

_WIDTH = 400
_NAMED = 6
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# Severity of packs and of the taxonomy → severity of the report.
_SEVERITIES = {"fatal": "critical", "critical": "critical", "warning": "warning", "info": "info"}
# Why a match of each role did not decide.
_WHY = {
    "symptom": "may be a consequence, and something else broke before it",
    "fallback": "an exception like any other; what is known counts more",
    "cascade": "follows from a failure elsewhere",
    "confirmation": "evidence beside another signal, and no failure by itself",
}
_STEPS = {
    "stop": "stop, and change what the failure asks for",
    "restart": "start the run again from its last checkpoint",
    "check_node": "check the node before anything runs there again",
    "exclude_node": "start the run again without the node",
    "roll_back": "go back to a checkpoint before it",
    "wait": "wait; it may pass by itself",
}


def report(finding: Finding, *, explain: bool) -> str:
    """Return the report of one log, or of several together, ending with a line feed."""
    return "\n".join(_lines(finding, explain)) + "\n"


def _severity(stated: str) -> str:
    """Return one of critical, error, warning, info; any other severity of a pack counts as error."""
    return _SEVERITIES.get(stated.lower(), "error")


def report_document(finding: Finding) -> dict[str, Any]:
    """Return the object of one log, always with the same keys; null where unknown."""
    verdict = finding.verdict
    return {
        "file": finding.file,
        "error_type": finding.error_type,
        "failure": verdict.failure if verdict else None,
        "signal": verdict.signal if verdict else None,
        "subsystem": verdict.subsystem if verdict else None,
        "severity": _severity(verdict.severity) if verdict else None,
        "fault": verdict.fault if verdict else None,
        "action": verdict.action if verdict else None,
        "suggestion": (verdict.hint or None) if verdict else None,
        "fields": dict(verdict.fields) if verdict else {},
        "evidence": [_match_document(match, finding.files) for match in finding.evidence],
        "also": [_other_document(match, finding.files) for match in finding.others],
        "progress": finding.progress.document(),
    }


def printable(text: str) -> str:
    """Return the text as one line, cut, without colours; other control characters are spelled out."""
    text = _COLOUR.sub("", text).expandtabs(4)
    shown = "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text[:_WIDTH]
    )
    return shown + (" …" if len(text) > _WIDTH else "")


def _lines(finding: Finding, explain: bool) -> Iterator[str]:
    verdict = finding.verdict
    if verdict is None:
        result = "no failure found" if finding.is_whole else "no failure found as far as it could be read"
        yield f"{printable(finding.file)}: {result}"
    else:
        kind = verdict.error_type + (f" ({verdict.failure})" if verdict.failure else "")
        yield f"{printable(finding.file)}: {printable(kind)}, {_severity(verdict.severity)}"
        yield from _evidence(finding)
        yield from _consequences(verdict)
    if progress := _progress(finding):
        yield f"  progress: {progress}"
    if explain:
        yield from _explanations(finding)
    elif finding.others:
        names = [f"{printable(match.signal.name)} ({_place(finding, match)})" for match in finding.others[:_NAMED]]
        more = f", and {len(finding.others) - _NAMED} more" if len(finding.others) > _NAMED else ""
        yield f"  also: {', '.join(names)}{more}; --explain says why they do not count"


def _evidence(finding: Finding) -> Iterator[str]:
    first, *rest = finding.evidence
    context = _context(finding, first)
    yield ""
    for text in context.before:
        yield f"  {'':>8} | {printable(text)}"
    yield f"  {first.line:>8} > {printable(first.text)}"
    for text in context.after:
        yield f"  {'':>8} | {printable(text)}"
    yield ""
    if rest:
        yield f"  again: {', '.join(_place(finding, match) for match in rest)}"


def _consequences(verdict: Verdict) -> Iterator[str]:
    if verdict.fields:
        yield f"  fields: {', '.join(f'{printable(key)}={printable(text)}' for key, text in verdict.fields.items())}"
    about = [f"signal {verdict.signal}", f"fault {verdict.fault}"]
    if verdict.subsystem:
        about.insert(1, f"subsystem {verdict.subsystem}")
    yield f"  {printable(', '.join(about))}"
    yield f"  next: {_STEPS.get(verdict.action, verdict.action)}"
    if verdict.hint:
        yield f"        {verdict.hint}"


def _progress(finding: Finding) -> str:
    return ", ".join(
        f"{key} {number:,.10g}" for key, number in finding.progress.document().items() if number is not None
    )


def _explanations(finding: Finding) -> Iterator[str]:
    if finding.verdict:
        first = finding.evidence[0]
        yield f"  {first.signal.name} counts: {_why_it_counts(first)} ({first.signal.source.rpartition('/')[2]})"
    if finding.others:
        yield "  also found:"
    for match in finding.others:
        times = sum(log.counts.get(match.signal.name, 0) for log in finding.logs)
        kind = error_type_of(match.signal) or "exception"
        yield f"    {_place(finding, match)}, {match.signal.name} ({kind}, {times}x): {_why_not(finding, match)}"
        yield f"      {printable(match.text)}"


def _why_it_counts(match: Match) -> str:
    if match.signal.role == "root":
        return "the first cause in the log that the training did not get over"
    return f"a {match.signal.role}; nothing that says more was found"


def _why_not(finding: Finding, match: Match) -> str:
    if finding.verdict is None:
        if match.signal.role in ("cascade", "confirmation"):
            return _WHY[match.signal.role]
        return "the training went on after it"
    first = finding.evidence[0]
    if match.signal.role in _WHY:
        return _WHY[match.signal.role]
    return "came later" if match.offset >= first.offset else "the training went on after it"


def _place(finding: Finding, match: Match) -> str:
    file = finding.files.get(id(match))
    return f"{printable(file)}:{match.line}" if file else f"line {match.line}"


def _context(finding: Finding, match: Match) -> ContextLines:
    for log in finding.logs:
        if any(match is one for one in log.matches):
            return log.contexts.get(match.offset, ContextLines())
    return ContextLines()


def _match_document(match: Match, files: Mapping[int, str]) -> dict[str, Any]:
    return {**_file_entry(match, files), "line": match.line, "text": match.text}


def _other_document(match: Match, files: Mapping[int, str]) -> dict[str, Any]:
    named = {"error_type": error_type_of(match.signal), "signal": match.signal.name, "line": match.line}
    return {**_file_entry(match, files), **named}


def _file_entry(match: Match, files: Mapping[int, str]) -> dict[str, str]:
    return {"file": files[id(match)]} if id(match) in files else {}
