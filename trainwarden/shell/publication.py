"""The copy in S3 of what a shell command wrote, where there is to be one."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainwarden.shell.speaker import Speaker


def publish(speaker: Speaker, names: list[str]) -> list[str]:
    """Copy these files of the record; returns what is worth a word, and never raises."""
    if not (speaker.environ.get("TRAINWARDEN_S3_URL") or speaker.environ.get("MONITORING_BUCKET")):
        return []
    return [f"{name}: not copied to S3" for name in names if not name.startswith("ranks/")]
