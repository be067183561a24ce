"""What goes wrong with logs: counted by kind, and each named in the exporter's own log once."""

from __future__ import annotations

import errno
import logging
from collections import Counter
from typing import TYPE_CHECKING

from trainwarden.signals.tailing.opening import Refused
from trainwarden_exporter.core.redaction import plain

if TYPE_CHECKING:
    from collections.abc import Callable

log = logging.getLogger(__name__)

REASONS = (
    "no_plain_file",
    "outside",
    "permission",
    "stale",
    "io",
    "blocked",
    "unreadable",
    "template",
    "pack",
    "state",
    "internal",
)
_OF_ERRNO = {errno.ESTALE: "stale", errno.EIO: "io", errno.EACCES: "permission", errno.EPERM: "permission"}
_NAMED = 10000


class LogProblems:
    """Counts problems; `counts` has every reason, from 0."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._named: set[tuple[str, str]] = set()

    def add(self, reason: str, subject: str, text: str) -> None:
        """Count one; `text` is logged if nothing of this reason was said of the subject before."""
        self.counts[reason] += 1
        if (reason, subject) in self._named:
            return
        if len(self._named) >= _NAMED:
            self._named.clear()
        self._named.add((reason, subject))
        log.warning("%s", plain(f"logs: {reason}: {text}")[:500])

    def safely(self, path: str, act: Callable[[], object]) -> bool:
        """Do something with a file and let it, however odd, cost the others nothing; whether that was done."""
        try:
            act()
        except (FileNotFoundError, NotADirectoryError):
            return False
        except Refused as error:
            self.add(error.reason, path, str(error))
        except OSError as error:
            self.add(_OF_ERRNO.get(error.errno or 0, "unreadable"), path, f"{path}: {error.strerror or error}")
        except Exception as error:
            log.debug("%s", path, exc_info=True)
            self.add("internal", path, f"{path}: {type(error).__name__}: {error}")
        else:
            return True
        return False
