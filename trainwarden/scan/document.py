"""The report of a log as JSON."""

from collections.abc import Mapping
from typing import Any

from trainwarden.scan.verdicts import Finding
from trainwarden.signals.diagnosis import error_type_of
from trainwarden.signals.model import Match

# Severity of packs and of the taxonomy → severity of the report.
_SEVERITIES = {"fatal": "critical", "critical": "critical", "warning": "warning", "info": "info"}


def severity(stated: str) -> str:
    """Return one of critical, error, warning, info; any other severity of a pack counts as error."""
    return _SEVERITIES.get(stated.lower(), "error")


def document(finding: Finding) -> dict[str, Any]:
    """Return the object of one log, always with the same keys; null where unknown."""
    verdict = finding.verdict
    return {
        "file": finding.file,
        "error_type": finding.error_type,
        "failure": verdict.failure if verdict else None,
        "signal": verdict.signal if verdict else None,
        "subsystem": verdict.subsystem if verdict else None,
        "severity": severity(verdict.severity) if verdict else None,
        "fault": verdict.fault if verdict else None,
        "action": verdict.action if verdict else None,
        "suggestion": (verdict.hint or None) if verdict else None,
        "fields": dict(verdict.fields) if verdict else {},
        "evidence": [_evidence(match, finding.files) for match in finding.evidence],
        "also": [_also(match, finding.files) for match in finding.others],
        "progress": finding.progress.document(),
    }


def _evidence(match: Match, files: Mapping[int, str]) -> dict[str, Any]:
    return {**_file(match, files), "line": match.line, "text": match.text}


def _also(match: Match, files: Mapping[int, str]) -> dict[str, Any]:
    named = {"error_type": error_type_of(match.signal), "signal": match.signal.name, "line": match.line}
    return {**_file(match, files), **named}


def _file(match: Match, files: Mapping[int, str]) -> dict[str, str]:
    return {"file": files[id(match)]} if id(match) in files else {}
