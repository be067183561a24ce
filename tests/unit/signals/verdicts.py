"""The cause of a log, as `scan` and the exporter find it, and as the library and `exec` do."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING

from trainwarden.failures.records import cause_in
from trainwarden.signals.diagnosis import diagnose
from trainwarden.signals.pack import load_pack
from trainwarden.signals.scanner import Scanner

if TYPE_CHECKING:
    from trainwarden.failures.judge import Evidence
    from trainwarden.signals.model import Verdict


@cache
def _scanner() -> Scanner:
    return Scanner(load_pack().signals)


def new_scanner() -> Scanner:
    """Return a scanner of the default pack that has read nothing; the one before is no longer valid."""
    scanner = _scanner()
    scanner.restore({"offset": 0, "line": 1, "skipping": False})
    return scanner


def verdict_of(log: str) -> Verdict | None:
    scanner = new_scanner()
    return diagnose(scanner.feed(log.encode()) + scanner.finish())


def in_log(log: str) -> str | None:
    """Return the slug that `scan` and the exporter find."""
    verdict = verdict_of(log)
    return verdict.failure if verdict else None


def in_output(log: str) -> str | None:
    """Return the slug that the library and `exec` find."""
    cause: Evidence | None = cause_in(log)
    return cause.failure if cause else None
