"""Checkpoints of a job that reports none: found in the folder that its rule names, handed over to its next start."""

from __future__ import annotations

import contextlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from trainwarden.checkpoint import search, size_of
from trainwarden.checkpoint.verdict import Trust
from trainwarden.record.folder import replace_file
from trainwarden.record.progress import Checkpoint

# In the record of the run: what a script may source.
RESUME_FILE = "resume.env"
ARGUMENTS = "TRAINWARDEN_RESUME_ARGUMENTS"
# Of one search; a file system that does not answer holds up its own job alone.
_SEARCH_SECONDS = 20.0
# A path with others is handed over to no script: arguments are split at spaces, and not every script quotes.
_PLAIN_PATH = re.compile(r"/[\w./@:+=,-]{1,4000}", re.ASCII)


@dataclass(frozen=True)
class CheckpointFolder:
    """Where the checkpoints of a job are.

    Attributes:
        path: of the folder that holds them.
        trust: what counts as complete, as of `trainwarden.checkpoint.verify`.
        environment: what the next start finds in `resume.env`: by variable, a text with `{path}` and `{step}`.
        arguments: the same of `TRAINWARDEN_RESUME_ARGUMENTS`, arguments that are separated by spaces; empty for none.
    """

    path: str
    trust: Trust = "layout"
    environment: Mapping[str, str] = field(default_factory=dict)
    arguments: str = ""

    @property
    def templates(self) -> dict[str, str]:
        """The variables of the next start, with `{path}` and `{step}`; that of the arguments among them."""
        return {**self.environment, **({ARGUMENTS: self.arguments} if self.arguments else {})}

    def in_folder(self, path: str) -> CheckpointFolder:
        """Return the same of another folder."""
        return replace(self, path=path)


def newest_complete(folder: CheckpointFolder, user_id: int) -> Checkpoint | None:
    """Return the newest checkpoint that is complete, of the user's own; None where there is none. Never raises."""
    best = search(folder.path, seconds=_SEARCH_SECONDS, trust=folder.trust).best
    if best is None or best[1].answer != "complete":
        return None
    with contextlib.suppress(OSError):
        status = Path(best[0].path).stat()
        if status.st_uid == user_id:
            return Checkpoint(
                path=best[0].path, step=best[0].step, time=status.st_mtime, size_bytes=size_of(best[0].path)
            )
    return None


def resume_variables(templates: Mapping[str, str], path: str, step: int | None) -> dict[str, str] | None:
    """Return the variables of the next start with the checkpoint put in; None where no script gets such a path."""
    if not _PLAIN_PATH.fullmatch(path):
        return None
    stated = "" if step is None else str(step)
    return {name: text.replace("{path}", path).replace("{step}", stated) for name, text in templates.items()}


def hand_over(record: Path, folder: CheckpointFolder, checkpoint: Checkpoint) -> str | None:
    """Write `resume.env` for the next start; return why it was not written.

    Raises:
        OSError: the record cannot be written.
    """
    values = resume_variables(folder.templates, checkpoint.path, checkpoint.step)
    if values is None:
        (record / RESUME_FILE).unlink(missing_ok=True)
        return f"{checkpoint.path!r:.200} has letters that no script gets"
    lines = [f"export {name}={shlex.quote(text)}\n" for name, text in sorted(values.items())]
    replace_file(record / RESUME_FILE, "".join(lines).encode())
    return None
