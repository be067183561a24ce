"""The journal of a run's events, `events.jsonl`, as `status`, `compare` and `report` read it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

from trainwarden.record.clock import from_iso
from trainwarden.record.document import FileContent, JsonObject, read_file
from trainwarden.record.folder import EVENTS

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

# The end of each file of a journal.
MAX_JOURNAL_BYTES = 8 * 2**20
_MAX_EVENTS = 20_000


class Event(NamedTuple):
    """One line: when, Unix seconds, what, and its data."""

    time: float
    name: str
    data: JsonObject


def read_events(folder: Path, names: Collection[str] = ()) -> list[Event]:
    """Return the last events of a run in order of time; what is no event is left out.

    Args:
        folder: of the run.
        names: of the events that are returned; all if empty.
    """
    found: list[Event] = []
    wanted = [f'"{name}"'.encode() for name in names]
    for name in (f"{EVENTS}.1", EVENTS):
        content = read_file(folder / name, MAX_JOURNAL_BYTES)
        for line in content.data.splitlines()[-_MAX_EVENTS:] if isinstance(content, FileContent) else ():
            if wanted and not any(each in line for each in wanted):
                continue
            values = parsed_line(line)
            stated = values.get("timestamp") if isinstance(values, dict) else None
            at = from_iso(stated) if isinstance(stated, str) else None
            if at is None or not isinstance(values, dict):
                continue
            event, data = str(values.get("event_type")), values.get("data")
            if not names or event in names:
                found.append(Event(at, event, JsonObject(data if isinstance(data, dict) else {})))
    return sorted(found, key=lambda event: event.time)


def parsed_line(line: bytes) -> Any:
    """Return what a line of JSON spells; None if it is none."""
    try:
        return json.loads(line)
    except (ValueError, RecursionError):
        return None
