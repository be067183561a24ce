"""The attempt that a shell command reports for: whether the record is the command's to write, and its start and end."""

# Shell commands load this: pathlib is slow to import.
# ruff: noqa: PTH118

from __future__ import annotations

import os
import time

from trainwarden.record.document import JsonObject, read_json
from trainwarden.record.folder import COMPLETE, ERROR, METADATA, OWNER, RESTART
from trainwarden.record.locks import is_locked
from trainwarden.record.metadata import Metadata, end_of_attempt
from trainwarden.record.rank import RankBeat, rank_file, read_rank
from trainwarden.shell.arguments import Misuse
from trainwarden.shell.command import NotRecorded, Superseded

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path
    from typing import Any

    from trainwarden.s3.startup import S3Startup
    from trainwarden.shell.command import CommandContext

# No process stands for the attempt: each command is gone at once.
_NO_PROCESS = 0
_S3_SECONDS = 5.0


def values_of_attempt(context: CommandContext) -> dict[str, Any]:
    """Return the values of `metadata.json`; begin the attempt first if the record does not list it.

    Raises:
        NotRecorded: the record belongs to another process, or to a newer attempt (Superseded).
        OSError: the folder cannot be written.
    """
    values = context.store.values(METADATA)
    owner = library_owner(context.folder)
    if owner is not None:
        raise NotRecorded(f"{context.folder}: process {owner or '?'}, which uses the library, writes this record")
    if values.get("attempt_key") == str(context.key):
        return values
    if Metadata.from_json(values).number_of(str(context.key)) is not None:
        raise Superseded(f"{context.folder}: a newer attempt has begun: {values.get('attempt_key')}")
    _begin(context)
    return context.store.values(METADATA)


def is_undisputed(context: CommandContext, metadata: Metadata) -> bool:
    """Return whether the attempt runs, is this command's to end, and has no evidence of its end yet."""
    is_running = metadata.attempt_key == str(context.key) and metadata.status == "running"
    has_sentinel = any(os.path.lexists(context.store.path(name)) for name in (ERROR, COMPLETE, RESTART))
    return context.rank == 0 and is_running and not has_sentinel and library_owner(context.folder) is None


def close_attempt(context: CommandContext, values: dict[str, Any], status: str, reason: str | None) -> None:
    """Write that the attempt has ended, and with it its rank.

    Raises:
        OSError: the folder cannot be written.
    """
    now = time.time()
    context.store.update(METADATA, values, end_of_attempt(status, reason, now).replace(last_update=now))
    close_rank(context, status)


def close_rank(context: CommandContext, status: str) -> None:
    """Write that the context's rank has ended.

    Raises:
        OSError: the folder cannot be written.
    """
    name = rank_file(context.rank)
    values = context.store.values(name)
    known = read_rank(context.folder, context.rank, key=str(context.key), host=context.host)
    if values.get("attempt_key") != str(context.key):
        # The keys of another attempt; those of the library are in the file of the host.
        values = {}
    if not isinstance(known, RankBeat):
        known = RankBeat(rank=context.rank, host=context.host, attempt_key=str(context.key))
    context.store.update(name, values, known.replace(status=status, time=time.time()))


def early_end(step: object, total: object) -> str | None:
    """Return the reason of a success that came before the last step; None where it did not."""
    if isinstance(total, int) and isinstance(step, int) and step < total:
        return f"ended at step {step} of {total}"
    return None


def library_owner(folder: str) -> int | None:
    """Return the live process that holds the lock of the library; 0 for an unknown one, None for none."""
    try:
        descriptor = os.open(os.path.join(folder, OWNER), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        if not is_locked(descriptor):
            return None
    except OSError:
        return None
    finally:
        os.close(descriptor)
    source = read_json(os.path.join(folder, OWNER))
    return (source.integer("pid") if isinstance(source, JsonObject) else None) or 0


def _begin(context: CommandContext) -> None:
    # Once in an attempt: it loads what heartbeats do without.
    from pathlib import Path  # noqa: PLC0415

    from trainwarden.exec.record_writer import ExternalRecordWriter  # noqa: PLC0415
    from trainwarden.record.ownership import RunRefused, owner_of  # noqa: PLC0415
    from trainwarden.record.store import RecordStore  # noqa: PLC0415
    from trainwarden.record.thresholds import InvalidThreshold, choose  # noqa: PLC0415

    folder = Path(context.folder)
    owner = owner_of(folder, context.key)
    if owner is not None:
        raise NotRecorded(f"{folder}: it belongs to a live run: {owner}")
    try:
        thresholds = choose(None, context.environ)
    except InvalidThreshold as error:
        raise Misuse(str(error)) from None
    try:
        in_s3 = _s3_startup(context, folder)
        if in_s3:
            in_s3.restore()
    except RunRefused as error:
        raise NotRecorded(str(error)) from None
    store = RecordStore(folder, in_s3.begin() if in_s3 else None)
    ExternalRecordWriter(store, context.key, thresholds, pid=_NO_PROCESS).announce()
    store.close(_S3_SECONDS)


def _s3_startup(context: CommandContext, folder: Path) -> S3Startup | None:
    from trainwarden.exec.record_writer import s3_startup  # noqa: PLC0415  # as above
    from trainwarden.record.ownership import RunRefused  # noqa: PLC0415

    try:
        return s3_startup(context.environ, folder, context.key, time.time(), rank=context.rank)
    except RunRefused:
        # A variable that names no place in S3 is no reason to record nothing here; `publish` warns of it.
        return None
