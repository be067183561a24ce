"""The end of an attempt that nothing speaks against: the quick way of `trainwarden complete`."""

# pathlib is slow to import.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import time

from trainwarden.record.clock import to_iso
from trainwarden.record.locks import writing
from trainwarden.record.place import METADATA, PROGRESS, RANKS, encode, replace
from trainwarden.shell.not_recorded import NotRecorded
from trainwarden.shell.record import library_owner, read, write

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from trainwarden.shell.speaker import Speaker

# Whatever they say has to be weighed.
_OTHERS = ("_error", "_complete", "_restart")


def complete(speaker: Speaker, step: int | None) -> list[str] | None:
    """Record that the attempt has finished; None where more has to be weighed than this loads.

    Returns:
        The names of the files that were written.

    Raises:
        NotRecorded: the folder cannot be written.
    """
    folder = speaker.folder
    try:
        with writing(folder):
            metadata = read(folder, METADATA)
            if not is_undisputed(speaker, metadata):
                return None
            progress, now = read(folder, PROGRESS), to_iso(time.time())
            if step is None and progress.get("attempt_key") == str(speaker.key):
                step = progress.get("step")
            document = {"run_id": speaker.run_id, "attempt": metadata.get("attempt"), "attempt_key": str(speaker.key)}
            replace(os.path.join(folder, "_complete"), encode({**document, "time": now, "step": step}), durable=True)
            changes = {"status": "succeeded", "phase": "done", "phase_time": now, "last_update": now, "end_time": now}
            write(folder, METADATA, {**metadata, **changes, **early(step, progress.get("total_steps"))})
            rank = read(folder, f"{RANKS}/0.json")
            if rank.get("attempt_key") == str(speaker.key):
                write(folder, f"{RANKS}/0.json", {**rank, "status": "succeeded", "time": now})
    except OSError as error:
        raise NotRecorded(f"{error.filename or folder}: {error.strerror or error}") from None
    return [METADATA, "_complete"]


def is_undisputed(speaker: Speaker, metadata: dict[str, Any]) -> bool:
    """Whether the attempt runs and is the speaker's to end, and nobody has said anything of its end."""
    folder = speaker.folder
    plain = metadata.get("attempt_key") == str(speaker.key) and metadata.get("status") == "running"
    spoken = any(os.path.lexists(os.path.join(folder, name)) for name in _OTHERS)
    return speaker.rank == 0 and plain and not spoken and library_owner(folder) is None


def early(step: object, total: object) -> dict[str, str]:
    """The reason of a success that came before the last step; empty where it did not."""
    if isinstance(total, int) and isinstance(step, int) and step < total:
        return {"reason": f"ended at step {step} of {total}"}
    return {}
