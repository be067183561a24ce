"""Tracker files and links, in which trainings name their last checkpoint."""

from __future__ import annotations

from dataclasses import dataclass

from trainwarden.checkpoint import names
from trainwarden.checkpoint.tree import Tree, TreeEntry
from trainwarden.deadline import Deadline

MEGATRON = "latest_checkpointed_iteration.txt"
_FILES = (MEGATRON, "latest", "last", "latest_checkpoint")
_LINKS = ("latest", "last")
_MAX_BYTES = 4096


@dataclass(frozen=True)
class Tracker:
    """`file` names a checkpoint by its name or its step; neither if its content is invalid."""

    file: str
    name: str | None = None
    step: int | None = None
    problem: str | None = None

    def names(self, name: str, step: int | None) -> bool:
        """Whether it names that checkpoint."""
        return name == self.name if self.name is not None else self.step is not None and step == self.step

    def __str__(self) -> str:
        what = self.problem or (f"names {self.name}" if self.name is not None else f"names step {self.step}")
        return f"{self.file} {what}"


def trackers(tree: Tree, path: str, entries: list[TreeEntry], deadline: Deadline) -> list[Tracker]:
    """Read the trackers in a folder: Megatron's iteration file, DeepSpeed's tag file, `latest` and `last`."""
    found = []
    for entry in sorted(entries, key=lambda entry: entry.name):
        stem = entry.name.partition(".")[0]
        if entry.target is not None and stem in _LINKS:
            found.append(_link(entry, entry.target))
        elif entry.name in _FILES and entry.kind == "file":
            found.append(_file(tree, path, entry, deadline))
    return found


def _link(entry: TreeEntry, target: str) -> Tracker:
    name = target.rstrip("/").rpartition("/")[2]
    return Tracker(entry.name, name=name, step=names.step_of(name))


def _file(tree: Tree, path: str, entry: TreeEntry, deadline: Deadline) -> Tracker:
    if entry.size > _MAX_BYTES:
        return Tracker(entry.name, problem="is too large to name a checkpoint")
    try:
        deadline.check()
        text = (
            tree.read(f"{path}/{entry.name}" if path else entry.name, 0, _MAX_BYTES).decode("utf-8", "replace").strip()
        )
    except OSError as error:
        return Tracker(entry.name, problem=f"cannot be read: {error}")
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return Tracker(entry.name, step=int(text))
    if entry.name == MEGATRON and text != "release":
        return Tracker(entry.name, problem="holds neither a step nor `release`")
    name = text.rstrip("/").rpartition("/")[2]
    if not name or "\n" in text:
        return Tracker(entry.name, problem="names no checkpoint")
    return Tracker(entry.name, name=name, step=names.step_of(name))
