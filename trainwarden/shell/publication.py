"""The copy in S3 of what a shell command wrote, where there is to be one."""

from __future__ import annotations

from trainwarden.shell.arguments import Misuse

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainwarden.shell.speaker import Speaker


_SECONDS = 10.0


def publish(speaker: Speaker, names: list[str], *, strict: bool = False) -> list[str]:
    """Copy these files of the record, in ten seconds or not at all; returns what is worth a word.

    Raises:
        Misuse: a variable names no place in S3, and this is to be `strict`.
    """
    if not (speaker.environ.get("TRAINWARDEN_S3_URL") or speaker.environ.get("MONITORING_BUCKET")):
        return []
    # They load much that a record in a folder alone does not need.
    import time  # noqa: PLC0415
    from pathlib import Path  # noqa: PLC0415

    from trainwarden.clients.s3 import InvalidLocation, records_location  # noqa: PLC0415
    from trainwarden.s3.uploader import upload_once  # noqa: PLC0415

    deadline = time.monotonic() + _SECONDS
    for name in names:
        if name.startswith("ranks/"):
            continue
        try:
            place = records_location(None, speaker.environ)
            if place is not None:
                record, left = place.below(speaker.run_id), deadline - time.monotonic()
                upload_once(record, name, Path(speaker.folder, name), speaker.key, timeout_seconds=max(left, 0.1))
        except InvalidLocation as error:
            if strict:
                raise Misuse(f"{error}; the record in {speaker.folder} was written") from None
            return [f"recorded in {speaker.folder} alone, not in S3: {error}"]
        except Exception as error:  # noqa: BLE001  # nothing about S3 may end a training
            return [f"{name} was not copied to S3: {error}"]
    return []
