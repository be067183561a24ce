"""The last line of a run's log, which shows what it did last."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden.record.folder import LOG
from trainwarden.redaction import MAX_INPUT
from trainwarden_exporter.core.files import last_line
from trainwarden_exporter.core.owned_folder import OwnedFolder
from trainwarden_exporter.sampling.calls import enter

# When it is shown: while the attempt failed or is quiet, always, never.
LAST_LINE = NEEDED, ALWAYS, NEVER = "needed", "always", "never"
# Each other line makes a new series, so it is read again when the state changes, and otherwise only after:
LAST_LINE_SECONDS = 60.0


@dataclass(frozen=True)
class _LogLine:
    """The last line of a log, in which state and attempt it was read, and when."""

    state: tuple[str | None, str | None]
    time: float
    text: str | None


class LastLine:
    """Reads that of one run; `shown` is NEEDED, ALWAYS or NEVER."""

    def __init__(self, shown: str) -> None:
        self._shown = shown
        self._line: _LogLine | None = None

    def read(self, files: OwnedFolder, state: tuple[str | None, str | None], now: float, *, needed: bool) -> str | None:
        """Return the line where it is to be shown, else None.

        Args:
            files: of the run.
            state: of the run, and the key of its attempt.
            now: Unix seconds.
            needed: the attempt failed or is quiet.
        """
        if self._shown == NEVER or not (needed or self._shown == ALWAYS):
            return None
        if self._line is None or self._line.state != state or abs(now - self._line.time) >= LAST_LINE_SECONDS:
            enter(LOG)
            line = last_line(files)
            self._line = _LogLine(state, now, line and line[: MAX_INPUT + 1])
        return self._line.text
