"""The marks in the comment of a SLURM job: the incident that ended its last start, and the one that submitted it.

They are the only trace where the database is lost. The rest of a comment stays: others read it, too.
"""

from __future__ import annotations

import re

from trainwarden.clients.slurm.jobs import HOLD_MARK, MAX_COMMENT_BYTES, SlurmJob, comment_words
from trainwarden_remediator.drivers.driver import RestartTarget
from trainwarden_remediator.incidents.incident import clean

# Why the incident of `HOLD_MARK` ends the start.
_WHY = "trainwarden-why:"
# The incident that has submitted a job, and the job that it comes after.
SUBMITTED_MARK, _REPLACES = "trainwarden-submitted:", "trainwarden-replaces:"
_OLD_HOLD = re.compile(rf"\s*(?:{HOLD_MARK}|{_WHY})[^\s,;]*")
_OLD_MARKS = re.compile(rf"\s*(?:{SUBMITTED_MARK}|{_REPLACES}|{HOLD_MARK}|{_WHY})[^\s,;]*")
# Of the reason, as one word: a comment is a text of words.
_NO_WORD = re.compile(r"[^A-Za-z0-9._+-]+")
_MAX_WHY = 120


def with_hold(comment: str, target: RestartTarget) -> str | None:
    """Return a comment with the mark that the incident ends this start, and why where there is room; else None.

    One that is not plain text gets no mark.
    """
    marked = f"{_OLD_HOLD.sub('', comment)} {HOLD_MARK}{target.incident}:{target.generation}".strip()
    why = f"{marked} {_WHY}{_NO_WORD.sub('_', target.reason)[:_MAX_WHY].strip('_')}"
    marked = why if _has_room(why) else marked
    return marked if comment.isprintable() and _has_room(marked) else None


def with_submission(comment: str, target: RestartTarget) -> str | None:
    """Return the comment of a job that the incident submits in the place of another; None where there is no room."""
    marked = f"{_OLD_MARKS.sub('', comment)} {SUBMITTED_MARK}{target.incident} {_REPLACES}{target.job_id}".strip()
    return marked if _has_room(marked) else None


def hold_of(job: SlurmJob) -> str | None:
    """Return the incident that has ended the start before this one, as the comment has it."""
    for word in comment_words(job.comment):
        incident, _, generation = word.removeprefix(HOLD_MARK).partition(":")
        if word.startswith(HOLD_MARK) and generation == str((job.restarts or 0) - 1):
            return clean(incident, 64)
    return None


def submission_of(job: SlurmJob) -> str | None:
    """Return the incident that has submitted a job, as the comment has it."""
    for word in comment_words(job.comment):
        if word.startswith(SUBMITTED_MARK):
            return clean(word.removeprefix(SUBMITTED_MARK), 64)
    return None


def _has_room(comment: str) -> bool:
    return len(comment.encode()) <= MAX_COMMENT_BYTES
