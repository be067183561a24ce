"""The first word of an attempt that nobody else has begun."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.record.ownership import RunRefused, owner_of
from trainwarden.record.thresholds import InvalidThreshold, choose
from trainwarden.shell.arguments import Misuse
from trainwarden.shell.not_recorded import NotRecorded
from trainwarden.shell.speaker import Speaker
from trainwarden.wrapper.s3_copy import opening
from trainwarden.wrapper.witness import Witness

if TYPE_CHECKING:
    from trainwarden.s3.opening import Opening

# No process stands for the attempt: each command is gone at once.
_NOBODY = 0
_S3_SECONDS = 5.0


def begin(speaker: Speaker) -> None:
    """Begin the speaker's attempt in the record, pending.

    Raises:
        NotRecorded: a live run owns the folder.
        Misuse: a variable holds no threshold.
        OSError: the folder cannot be written.
    """
    folder = Path(speaker.folder)
    owner = owner_of(folder, speaker.key)
    if owner is not None:
        raise NotRecorded(f"{folder}: it belongs to a live run: {owner}")
    try:
        thresholds = choose(None, speaker.environ)
    except InvalidThreshold as error:
        raise Misuse(str(error)) from None
    try:
        in_s3 = _opening(speaker, folder)
        if in_s3:
            in_s3.fill()
    except RunRefused as error:
        raise NotRecorded(str(error)) from None
    mirror = in_s3.begin() if in_s3 else None
    Witness(folder, speaker.key, thresholds, pid=_NOBODY, copy=mirror).announce()
    if mirror:
        mirror.close(_S3_SECONDS)


def _opening(speaker: Speaker, folder: Path) -> Opening | None:
    try:
        return opening(speaker.environ, folder, speaker.key, time.time(), rank=speaker.rank)
    except RunRefused:
        # What names no place in S3 is no reason to record nothing here; whoever copies the record there says so.
        return None
