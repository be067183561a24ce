"""What goes wrong with logs: counted by reason, each case logged once, and within a budget of lines."""

from __future__ import annotations

import errno
import logging
import time
from collections import Counter
from typing import TYPE_CHECKING

from trainwarden.redaction import plain
from trainwarden.signals.tailing.opening import Refused
from trainwarden_exporter.core.line_budget import LineBudget

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

REASONS = (
    "no_plain_file",
    "outside",
    "owner",
    "permission",
    "stale",
    "io",
    "blocked",
    "unreadable",
    "nuls",
    "template",
    "pack",
    "state",
    "internal",
)
DONE, ABSENT, FAILED = "done", "absent", "failed"
_REASON_OF_ERRNO = {errno.ESTALE: "stale", errno.EIO: "io", errno.EACCES: "permission", errno.EPERM: "permission"}
_MAX_LOGGED = 10000


class LogProblems:
    """Counts problems; `counts` has every reason, from 0."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._logged: set[tuple[str, str]] = set()
        self._budget = LineBudget()

    def add(self, reason: str, subject: str, text: str) -> None:
        """Count a problem, and log it as `note` does."""
        self.counts[reason] += 1
        self.note(reason, subject, text)

    def note(self, reason: str, subject: str, text: str) -> None:
        """Log `text` if it is the first for this reason and subject."""
        if (reason, subject) in self._logged:
            return
        if len(self._logged) >= _MAX_LOGGED:
            self._logged.clear()
        self._logged.add((reason, subject))
        if self._budget.take(None, time.monotonic()):
            log.warning("%s", plain(f"logs: {reason}: {text}")[:500])
        elif self._budget.is_first_refusal(None):
            log.warning("more goes wrong with logs than is logged: trainwarden_log_errors_total counts it")

    def isolate(self, path: str, act: Callable[[], object]) -> str:
        """Do something with a file, so that no failure reaches the others; return `DONE`, `ABSENT` or `FAILED`."""
        try:
            act()
        except (FileNotFoundError, NotADirectoryError):
            return ABSENT
        except Refused as error:
            self.add(error.reason, path, str(error))
        except OSError as error:
            reason = _REASON_OF_ERRNO.get(error.errno or 0, "unreadable")
            self.add(reason, path, f"{path}: {error.strerror or error}")
        except Exception as error:
            log.debug("%s", path, exc_info=True)
            self.add("internal", path, f"{path}: {type(error).__name__}: {error}")
        else:
            return DONE
        return FAILED
