"""The record as shell commands change it: each reads what is there, changes what it has to say, and writes it back."""

# pathlib and contextlib are slow to import.
# ruff: noqa: PTH103, PTH118, PTH123

from __future__ import annotations

import json
import os
import time

from trainwarden.record.clock import to_iso
from trainwarden.record.error import MAX_MESSAGE, shorten
from trainwarden.record.locks import lock_holder, writing
from trainwarden.record.place import METADATA, OWNER, PROGRESS, RANKS, encode, replace
from trainwarden.shell.not_recorded import NotRecorded, Superseded
from trainwarden.shell.progress import advance

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from trainwarden.shell.speaker import Speaker

_LIVE = ("running", "pending")
# The phases that the first step ends; idle is what a run does that has shown no step yet.
_BEFORE_TRAINING = ("init", "compile", "load", "idle")
_MAX_BYTES = 4 * 2**20


def say(speaker: Speaker, *, phase: str | None = None, report: Mapping[str, Any] | None = None) -> list[str]:
    """Say that the run lives, and what it does; begins the attempt where the record does not know it.

    Returns:
        The names of the files that were written.

    Raises:
        NotRecorded: the attempt is over, the record belongs to somebody else, or the folder cannot be written.
    """
    try:
        os.makedirs(os.path.join(speaker.folder, RANKS), exist_ok=True)
        with writing(speaker.folder):
            if speaker.rank == 0:
                return _say_as_first(speaker, phase, report or {})
            return _write_rank(speaker, phase, report or {})
    except OSError as error:
        raise NotRecorded(f"{error.filename or speaker.folder}: {error.strerror or error}") from None


def metadata_of_attempt(speaker: Speaker) -> dict[str, Any]:
    """The metadata of the speaker's attempt, which is begun if the record does not know it.

    Raises:
        NotRecorded: the record belongs to somebody else, or to a newer attempt (Superseded).
        OSError: the folder cannot be written.
    """
    metadata = read(speaker.folder, METADATA)
    owner = library_owner(speaker.folder)
    if owner is not None:
        raise NotRecorded(f"{speaker.folder}: process {owner}, which uses the library, writes this record")
    if metadata.get("attempt_key") == str(speaker.key):
        return metadata
    attempts = metadata.get("attempts")
    if any(isinstance(one, dict) and one.get("key") == str(speaker.key) for one in attempts or ()):
        raise Superseded(f"{speaker.folder}: a newer attempt has begun: {metadata.get('attempt_key')}")
    from trainwarden.shell.beginning import begin  # noqa: PLC0415  # once in an attempt

    begin(speaker)
    return read(speaker.folder, METADATA)


def read(folder: str, name: str) -> dict[str, Any]:
    """The JSON object that a file of the record holds; empty if it holds none."""
    try:
        with open(os.path.join(folder, name), "rb") as file:
            document = json.loads(file.read(_MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def write(folder: str, name: str, document: dict[str, Any]) -> None:
    """Replace a file of the record.

    Raises:
        OSError: the folder cannot be written.
    """
    try:
        content = encode(document)
    except ValueError:
        # Somebody else wrote NaN into it, which is no JSON.
        content = encode(json.loads(json.dumps(document), parse_constant=lambda _text: None))
    replace(os.path.join(folder, name), content)


def close(speaker: Speaker, metadata: dict[str, Any], status: str, reason: str | None) -> None:
    """Say that the attempt has ended, and with it its rank.

    Raises:
        OSError: the folder cannot be written.
    """
    now = to_iso(time.time())
    changes: dict[str, Any] = {"status": status, "last_update": now, "end_time": now}
    if status == "succeeded":
        changes.update(phase="done", phase_time=now)
    if reason:
        changes["reason"] = " ".join(shorten(reason, MAX_MESSAGE).split())
    write(speaker.folder, METADATA, {**metadata, **changes})
    close_rank(speaker, status)


def close_rank(speaker: Speaker, status: str) -> None:
    """Say that the speaker's rank has ended.

    Raises:
        OSError: the folder cannot be written.
    """
    name = f"{RANKS}/{speaker.rank}.json"
    known = read(speaker.folder, name)
    if known.get("attempt_key") != str(speaker.key):
        known = {"rank": speaker.rank, "host": speaker.host, "attempt_key": str(speaker.key)}
    write(speaker.folder, name, {**known, "status": status, "time": to_iso(time.time())})


def _say_as_first(speaker: Speaker, phase: str | None, report: Mapping[str, Any]) -> list[str]:
    metadata = metadata_of_attempt(speaker)
    status = metadata.get("status")
    if status not in _LIVE:
        raise NotRecorded(f"{speaker.folder}: this attempt is over: {status}")
    now, before = time.time(), metadata.get("phase")
    if phase is None:
        # A run that shows no steps is idle: it may stand still for ever.
        phase = "idle" if (status, before) == ("pending", "init") else str(before)
        phase = "train" if "step" in report and phase in _BEFORE_TRAINING else phase
    changes = {"status": "running", "last_update": to_iso(now), "phase": phase}
    if phase != before:
        changes["phase_time"] = to_iso(now)
    written = [METADATA]
    if report:
        progress = advance(read(speaker.folder, PROGRESS), report, str(speaker.key), metadata.get("attempt") or 0, now)
        write(speaker.folder, PROGRESS, progress)
        written.append(PROGRESS)
    write(speaker.folder, METADATA, _with_first_step({**metadata, **changes}, report))
    return written + _write_rank(speaker, phase, report)


def _with_first_step(metadata: dict[str, Any], report: Mapping[str, Any]) -> dict[str, Any]:
    attempts = metadata.get("attempts")
    last = attempts[-1] if isinstance(attempts, list) and attempts else None
    if "step" in report and isinstance(last, dict) and last.get("key") == metadata.get("attempt_key"):
        last.setdefault("resume_step", report["step"])
    return metadata


def _write_rank(speaker: Speaker, phase: str | None, report: Mapping[str, Any]) -> list[str]:
    name = f"{RANKS}/{speaker.rank}.json"
    known = read(speaker.folder, name)
    before = known if known.get("attempt_key") == str(speaker.key) else {}
    if before.get("status") not in (None, "running"):
        raise NotRecorded(f"{speaker.folder}/{name}: this rank is over: {before['status']}")
    said = before.get("phase") or "idle"
    document = {
        "rank": speaker.rank,
        "step": report.get("step", before.get("step")),
        "phase": phase or ("train" if "step" in report and said in _BEFORE_TRAINING else said),
        "status": "running",
        "time": to_iso(time.time()),
        "host": speaker.host,
        # Of whoever stands for the rank all the time; a command like this one is gone at once.
        "pid": before.get("pid") if before.get("host") == speaker.host else None,
        "attempt_key": str(speaker.key),
    }
    write(speaker.folder, name, document)
    return [name]


def library_owner(folder: str) -> int | None:
    """The live process that holds the lock of the library; 0 for one on another host."""
    try:
        descriptor = os.open(os.path.join(folder, OWNER), os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except OSError:
        return None
    try:
        return lock_holder(descriptor)
    except OSError:
        return None
    finally:
        os.close(descriptor)
