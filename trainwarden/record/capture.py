"""`_capture` and what answers it: the stacks of the ranks of an attempt, taken before it is ended.

Whoever may write the folder of a run as its user can request them; a file of anybody else is ignored.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

from trainwarden.record.document import FileContent, JsonObject, parse_json, read_file
from trainwarden.record.folder import CAPTURE, RANKS, encode, replace_file
from trainwarden.record.schema import INTEGER, TEXT, TIME, RecordDocument, key, required

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# What a rank leaves in `ranks/` beside its stacks: frames of native code, NCCL's flight recorder, its node.
STACKS, NATIVE, FLIGHT, NODE = "stacks", "native", "flight", "node"
LIMITS = {STACKS: 256 << 10, NATIVE: 512 << 10, FLIGHT: 4 << 20, NODE: 512 << 10}
_REQUEST_BYTES = 4096
_MODE = 0o600


class CaptureRequest(RecordDocument):
    """`_capture`: the ranks of the attempt `attempt_key` are to leave their stacks, once for each `intent`."""

    attempt_key: str = required(TEXT)
    intent: str = required(TEXT)
    time: float | None = TIME


def _read_names(source: JsonObject, name: str) -> tuple[str, ...] | None:
    value = source.values.get(name)
    return tuple(each for each in value if each in LIMITS) if isinstance(value, list) else None


_NAMES: Any = key(_read_names, list, ())


class StacksHeader(RecordDocument):
    """The first line of `ranks/<rank>.stacks`.

    `thread` is the thread of the training loop, as it stands in the text; `state` and `waits_in` are what the kernel
    shows of the main thread. `follow` are the files that the rank still writes, each at its end, also if it is empty.
    """

    rank: int = required(INTEGER)
    attempt_key: str = required(TEXT)
    intent: str = required(TEXT)
    time: float | None = TIME
    host: str | None = TEXT
    pid: int | None = INTEGER
    step: int | None = INTEGER
    phase: str | None = TEXT
    thread: str | None = TEXT
    state: str | None = TEXT
    waits_in: str | None = TEXT
    follow: tuple[str, ...] = _NAMES


def write_request(folder: str | os.PathLike[str], attempt_key: str, intent: str) -> None:
    """Request the stacks of an attempt.

    Raises:
        OSError: the folder cannot be written, or is not there.
    """
    request = CaptureRequest(attempt_key, intent, time.time())
    replace_file(Path(folder, CAPTURE), encode(request.to_json()), mode=_MODE)


def read_request(folder: str | os.PathLike[str]) -> CaptureRequest | None:
    """Return the request in the record of a run; None if there is none of this process's user, root or the owner."""
    content = read_file(Path(folder, CAPTURE), _REQUEST_BYTES)
    if not isinstance(content, FileContent):
        return None
    if content.owner not in (0, os.geteuid()):
        try:
            owner = os.stat(folder).st_uid  # noqa: PTH116  # one call
        except OSError:
            return None
        if content.owner != owner:
            return None
    return parse_request(content)


def parse_request(content: FileContent) -> CaptureRequest | None:
    """Return the request that a file holds; None if it holds none."""
    source = parse_json(content, CAPTURE)
    if not isinstance(source, JsonObject) or not source.text("attempt_key") or not source.text("intent"):
        return None
    return CaptureRequest.from_json(source)


def write_answer(folder: str | os.PathLike[str], rank: int, kind: str, content: bytes) -> None:
    """Write one file of a rank's answer, readable by its user alone; its end is cut off beyond its limit.

    Raises:
        OSError: the folder cannot be written.
    """
    replace_file(answer_path(folder, rank, kind), content[: LIMITS[kind]], mode=_MODE)


def answer_path(folder: str | os.PathLike[str], rank: int, kind: str) -> Path:
    """Return where a rank leaves its `kind` of answer."""
    return Path(folder, RANKS, f"{rank}.{kind}")


def parse_stacks(data: bytes) -> tuple[StacksHeader, str] | None:
    """Return the header and the text of `ranks/<rank>.stacks`; None if it is not such a file."""
    first, _, rest = data.partition(b"\n")
    source = parse_json(FileContent(first, 0.0), STACKS)
    if not isinstance(source, JsonObject) or source.integer("rank") is None:
        return None
    if not source.text("attempt_key") or not source.text("intent"):
        return None
    return StacksHeader.from_json(source), rest.decode("utf-8", "replace")


def forget_answers(folder: str | os.PathLike[str]) -> None:
    """Remove the request and the answers of earlier attempts.

    Raises:
        OSError: the folder cannot be written.
    """
    Path(folder, CAPTURE).unlink(missing_ok=True)
    for path in Path(folder, RANKS).glob("*.*"):
        if path.suffix[1:] in LIMITS and path.stem.isdigit():
            path.unlink(missing_ok=True)
