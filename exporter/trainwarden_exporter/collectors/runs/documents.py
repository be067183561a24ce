"""Read the documents of a run record, and keep of them only what is exported, within bounds."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from trainwarden.record.clock import from_own_form
from trainwarden.record.document import FileContent, Unreadable
from trainwarden.record.folder import METADATA, PROGRESS
from trainwarden.record.metadata import Metadata, parse_metadata
from trainwarden.record.progress import Progress, parse_progress
from trainwarden.record.sentinels import Sentinel, of_attempt, parse_sentinel
from trainwarden.record.superseded import Superseded, parse_superseded, superseded_file

if TYPE_CHECKING:
    from trainwarden.record.schema import RecordDocument
    from trainwarden_exporter.core.owned_folder import OwnedFolder

# Longer than any path, and than what is shown of any message.
_MAX_TEXT = 4096
_MAX_PROBLEMS = 20
_MAX_ATTEMPTS = 16
_MAX_VARIABLES, _MAX_VALUE = 256, 1024

_LAST_UPDATE = b'"last_update": "'
_TIME_BYTES = 27

D = TypeVar("D", bound="RecordDocument")


class MetadataReader:
    """Reads the `metadata.json` of a run's folder, of at most `limit` bytes.

    A heartbeat changes only its `last_update`. Where the rest is that of before, which a hash shows without keeping it,
    nothing else is parsed.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rest: int | None = None
        self._known = Metadata()

    def __call__(self, files: OwnedFolder) -> Metadata | Unreadable | None:
        """Return the document; None if there is none."""
        content = files.read(METADATA, self._limit)
        if not isinstance(content, FileContent):
            return content
        head, _, behind = content.data.partition(_LAST_UPDATE)
        stated, tail = behind[:_TIME_BYTES], behind[_TIME_BYTES:]
        time, rest = from_own_form(stated.decode("latin-1")), hash((head, tail))
        if time is not None and rest == self._rest:
            if time != self._known.last_update:
                self._known = self._known.replace(last_update=time)
            return self._known
        self._rest = None
        found = _metadata_of(content, files)
        # Where it stands more than once, only one of them is that of the document.
        if isinstance(found, Metadata) and found.last_update == time and _LAST_UPDATE not in tail:
            self._rest, self._known = rest, found
        return found


def _metadata_of(content: FileContent, files: OwnedFolder) -> Metadata | Unreadable:
    found = parse_metadata(content, files.path_of(METADATA))
    if not isinstance(found, Metadata):
        return found
    current = tuple(attempt for attempt in found.attempts if attempt.key == found.attempt_key)
    variables = [(name, value) for name, value in found.environment.items() if len(name) + len(value) <= _MAX_VALUE]
    return _bounded(found, attempts=current[-_MAX_ATTEMPTS:], environment=dict(variables[:_MAX_VARIABLES]), s3={})


def read_progress(files: OwnedFolder, limit: int) -> Progress | Unreadable | None:
    """Return `progress.json` of a run's folder, of at most `limit` bytes; None if there is none."""
    content = files.read(PROGRESS, limit)
    found = parse_progress(content, files.path_of(PROGRESS)) if isinstance(content, FileContent) else content
    if not isinstance(found, Progress):
        return found
    last = found.checkpoint
    if last is not None and len(last.path) > _MAX_TEXT:
        found = found.replace(checkpoint=None)
    known = found.known_checkpoints()
    newest = next((one for one in known if one.verified_time is not None and len(one.path) <= _MAX_TEXT), None)
    return _bounded(found, metrics={}, checkpoints=() if newest is None else (newest,))


def read_sentinel(
    name: str, limit: int, files: OwnedFolder, key: str | None, attempt_start: float | None
) -> Sentinel | Unreadable | None:
    """Return a sentinel of a run's folder if it is about the attempt `key`, which began at `attempt_start`."""
    content = files.read(name, limit)
    found = parse_sentinel(content, files.path_of(name)) if isinstance(content, FileContent) else content
    if isinstance(found, Sentinel):
        found = _bounded(found, traceback=None)
    return of_attempt(found, key, attempt_start)


def read_superseded(attempt: int, limit: int, files: OwnedFolder) -> Superseded | Unreadable | None:
    """Return the file of an attempt that a newer one has superseded; None if there is none, or it is of another."""
    name = superseded_file(attempt)
    content = files.read(name, limit)
    found = parse_superseded(content, files.path_of(name)) if isinstance(content, FileContent) else content
    if not isinstance(found, Superseded):
        return found
    return _bounded(found, checkpoints=()) if found.attempt == attempt else None


def _bounded(document: D, **changes: object) -> D:
    """Return the document with other values for some fields, its texts cut, and the first of its problems."""
    too_long = [name for name, value in vars(document).items() if type(value) is str and len(value) > _MAX_TEXT]
    for name in too_long:
        changes.setdefault(name, getattr(document, name)[:_MAX_TEXT])
    problems = getattr(document, "problems", ())
    if len(problems) > _MAX_PROBLEMS:
        changes["problems"] = (*problems[:_MAX_PROBLEMS], f"and {len(problems) - _MAX_PROBLEMS} more")
    changes = {name: value for name, value in changes.items() if getattr(document, name) != value}
    return document.replace(**changes) if changes else document
