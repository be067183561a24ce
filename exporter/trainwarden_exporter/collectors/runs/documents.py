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
    from collections.abc import Iterable

    from trainwarden.record.rank import RankBeat
    from trainwarden.record.schema import RecordDocument
    from trainwarden_exporter.core.owned_folder import OwnedFolder

# More than is shown of a name: the records of thousands of runs are in memory together.
_MAX_NAME = 256
_MAX_TEXTS = {"message": 2048, "reason": 2048}
# A longer path is left out, for a part of it is another path.
_MAX_PATH = 1024
_PATHS = ("signals", "log_path")
_MAX_PROBLEMS, _MAX_PROBLEMS_OF_RANK = 20, 2
# Variables of its environment, in lower case: what names its logs, on which node the batch script runs, and
# which network is asked for.
PLACEHOLDERS = {
    "slurm_array_job_id": "array_job_id",
    "slurm_array_task_id": "array_task_id",
    "slurm_job_name": "job_name",
    "slurm_job_user": "user",
}
NODE = "slurm_node"
NETWORK = ("nccl_net", "nccl_net_plugin", "fi_provider", "nccl_ib_disable")
_VARIABLES = frozenset((*PLACEHOLDERS, NODE, *NETWORK))

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
    used = {name: found.environment[name] for name in found.environment.keys() & _VARIABLES}
    environment = {name: value for name, value in used.items() if len(value) <= _MAX_NAME}
    return _bounded(found, attempts=(), environment=environment, resume={}, s3={})


def read_progress(files: OwnedFolder, limit: int) -> Progress | Unreadable | None:
    """Return `progress.json` of a run's folder, of at most `limit` bytes; None if there is none."""
    content = files.read(PROGRESS, limit)
    found = parse_progress(content, files.path_of(PROGRESS)) if isinstance(content, FileContent) else content
    if not isinstance(found, Progress):
        return found
    last = found.checkpoint
    if last is not None and len(last.path) > _MAX_PATH:
        found = found.replace(checkpoint=None)
    known = found.known_checkpoints()
    newest = next((one for one in known if one.verified_time is not None and len(one.path) <= _MAX_PATH), None)
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


def bounded_beats(beats: Iterable[RankBeat]) -> list[RankBeat]:
    """Return the beats of ranks, their texts cut as those of other documents, and the first of their problems."""
    return [
        beat
        if len(beat.host or "") <= _MAX_NAME
        and len(beat.uuid or "") <= _MAX_NAME
        and len(beat.attempt_key or "") <= _MAX_NAME
        and len(beat.problems) <= _MAX_PROBLEMS_OF_RANK
        else _bounded(beat, problems=beat.problems[:_MAX_PROBLEMS_OF_RANK])
        for beat in beats
    ]


def _bounded(document: D, **changes: object) -> D:
    """Return the document with other values for some fields, its texts cut, and the first of its problems."""
    for name, value in vars(document).items():
        if type(value) is str and len(value) > _MAX_NAME:
            if name in _PATHS:
                changes.setdefault(name, value if len(value) <= _MAX_PATH else None)
            else:
                changes.setdefault(name, value[: _MAX_TEXTS.get(name, _MAX_NAME)])
    problems = getattr(document, "problems", ())
    if len(problems) > _MAX_PROBLEMS:
        changes["problems"] = (*problems[:_MAX_PROBLEMS], f"and {len(problems) - _MAX_PROBLEMS} more")
    changes = {name: value for name, value in changes.items() if getattr(document, name) != value}
    return document.replace(**changes) if changes else document
