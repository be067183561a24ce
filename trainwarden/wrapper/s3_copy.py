"""The copy in S3 of a record that somebody beside the training writes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from trainwarden.clients.s3 import InvalidLocation, records_location
from trainwarden.identity import AttemptKey
from trainwarden.record.ownership import RunRefused

if TYPE_CHECKING:
    from trainwarden.s3.opening import Opening


def opening(environ: Mapping[str, str], folder: Path, key: AttemptKey, start: float, *, rank: int) -> Opening | None:
    """An attempt's beginning in S3, if the environment wants a copy there.

    Raises:
        RunRefused: what it names is no place in S3, or cannot be used.
    """
    try:
        place = records_location(None, environ)
    except InvalidLocation as error:
        raise RunRefused(str(error)) from None
    if place is None:
        return None
    # It loads much that a record in a folder alone does not need.
    from trainwarden.s3.opening import Opening  # noqa: PLC0415

    return Opening(place.below(folder.name), folder, key, start, whole=rank == 0)
