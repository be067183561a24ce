"""Why a run is not restarted, as a line of its own `events.jsonl`: the place where its user looks."""

from __future__ import annotations

import errno
import logging
import time
from pathlib import Path

from trainwarden.clients.slack import NotSent
from trainwarden.identity import InvalidRunId
from trainwarden.record.append import append_line
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import EVENTS, run_folder
from trainwarden.record.lines import encode_line
from trainwarden_remediator.notify.message import Notice
from trainwarden_remediator.notify.outbox import HAND_OVER, NOT_RESTARTED, REFUSAL, RESUBMITTED

log = logging.getLogger(__name__)

# The library writes all other kinds itself, at the next start.
_EVENT_TYPES = {
    HAND_OVER: "person_needed",
    RESUBMITTED: "attempt_resubmitted",
    **dict.fromkeys((REFUSAL, NOT_RESTARTED), "attempt_not_restarted"),
}
JOURNALED = frozenset(_EVENT_TYPES)
# It stays so, however often it is tried.
_FINAL = frozenset((errno.ENOENT, errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.ELOOP, errno.ENXIO))


class RunJournal:
    """A channel of the outbox that appends to the journals of runs below `runs_dir`.

    It never creates one: the run's user could not write a file that belongs to the remediator's.
    """

    name = "journal"
    pace = 0.0

    def __init__(self, runs_dir: Path) -> None:
        self._runs_dir = runs_dir

    def send(self, notice: Notice, mark: str) -> None:
        """Append the line, unless it is there or there is no journal for it; raises NotSent."""
        event_type = _EVENT_TYPES.get(notice.kind)
        if event_type is None:
            return
        said = dict(notice.lines)
        # A restart that waits has been decided for a reason, and waits for another.
        waits_for = said.get("Outcome") if notice.kind == NOT_RESTARTED else None
        data = {
            "attempt_key": notice.attempt_key,
            "alert": said.get("Alert", ""),
            "incident": said.get("Incident", ""),
            "reason": waits_for or said.get("Reason", ""),
            "mark": mark,
        }
        if notice.kind == RESUBMITTED:
            data["jobs"] = said.get("Outcome", "")
        line = encode_line({"timestamp": to_iso(time.time()), "event_type": event_type, "data": data})
        try:
            append_line(run_folder(notice.run_id, self._runs_dir), EVENTS, line, mark)
        except InvalidRunId:
            return
        except OSError as error:
            if error.errno not in _FINAL:
                raise NotSent(f"{EVENTS} of the run: {error.strerror}", of_message=True) from None
            log.info("run %s: %s cannot be written: %s", notice.run_id, EVENTS, error.strerror)
