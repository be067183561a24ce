"""Search for the checkpoints in a folder or S3 prefix, and for the one to resume from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainwarden.checkpoint import archive, names, pickle_scan
from trainwarden.checkpoint.contents import CheckpointFiles, DamagedFile
from trainwarden.checkpoint.layouts import orbax
from trainwarden.checkpoint.paths import open_tree
from trainwarden.checkpoint.tracker import Tracker, trackers
from trainwarden.checkpoint.tree import Listing, NotThere, Tree, TreeEntry
from trainwarden.checkpoint.verdict import CheckpointVerdict, Trust, printable
from trainwarden.checkpoint.verify import TIMEOUT_SECONDS, run_with_timeout, verify_tree
from trainwarden.deadline import Deadline, DeadlineExceeded

# The most that are verified once one is complete, where all are requested.
MAX_VERIFIED = 20
_MAX_OPENED = 16
_MAX_NAMED = 5
_BELOW = ("checkpoints", "checkpoint")
_STEP_KEYS = ("global_step", "iteration")


@dataclass(frozen=True)
class FoundCheckpoint:
    """A checkpoint by its name. `format` is the usual one of such names; `tracked`: a tracker file or link names it."""

    path: str
    name: str
    step: int | None
    format: str | None = None
    tracked: bool = False
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class SearchResult:
    """The candidates, newest first. `remarks` are about trackers; `problem` is why the path cannot be read."""

    candidates: tuple[FoundCheckpoint, ...] = ()
    remarks: tuple[str, ...] = ()
    problem: str | None = None
    verdicts: dict[str, CheckpointVerdict] = field(default_factory=dict)

    @property
    def best(self) -> tuple[FoundCheckpoint, CheckpointVerdict] | None:
        """The newest complete candidate; else an unverifiable one, without a sign of damage if possible; else any."""
        judged = [(found, self.verdicts[found.path]) for found in self.candidates if found.path in self.verdicts]
        for answer in ("complete", "unverifiable", "incomplete"):
            fitting = [pair for pair in judged if pair[1].answer == answer]
            if answer == "unverifiable":
                fitting.sort(key=lambda pair: (pair[1].is_suspect, not pair[0].tracked))
            if fitting:
                return fitting[0]
        return None


def find(path: str | os.PathLike[str], *, seconds: float = TIMEOUT_SECONDS) -> list[FoundCheckpoint]:
    """Return the checkpoints in a folder or S3 prefix, newest first; none if it cannot be read. Never raises."""
    found = search(path, verifying=False, seconds=seconds)
    return [] if found.problem else list(found.candidates)


def newest(
    path: str | os.PathLike[str], *, seconds: float = TIMEOUT_SECONDS, trust: Trust = "layout"
) -> tuple[FoundCheckpoint, CheckpointVerdict] | None:
    """Return the checkpoint to resume from and its verdict; None if there is none. Never raises.

    It is the newest complete one, whether or not a tracker names it; else an unverifiable one, the tracked one first;
    else the newest. If the path cannot be read it is the path itself, unverifiable.
    """
    return search(path, seconds=seconds, trust=trust).best


def search(
    path: str | os.PathLike[str],
    *,
    verifying: bool = True,
    every: bool = False,
    seconds: float = TIMEOUT_SECONDS,
    trust: Trust = "layout",
    whole: bool = False,
) -> SearchResult:
    """Find the checkpoints, and verify them from the newest on until one is complete. Never raises.

    Args:
        path: a folder or `s3://bucket/prefix` that holds checkpoints, or a checkpoint itself.
        verifying: False to use names alone.
        every: verify up to MAX_VERIFIED, also after the first complete one.
        seconds: timeout for all of it.
        trust: what counts as complete; see `verify`.
        whole: read files with digests as a whole; see `verify`.
    """

    def work() -> SearchResult:
        deadline = Deadline(seconds)
        try:
            tree = open_tree(path, deadline)
            done = _search(tree, deadline)
        except NotThere as error:
            return SearchResult(problem=f"{os.fsdecode(path)}: {error}")
        except (OSError, ValueError, DeadlineExceeded) as error:
            return failed(getattr(error, "strerror", None) or str(error))
        enough, has_complete = MAX_VERIFIED if every else 1, False
        for found in done.candidates if verifying else ():
            below = found.name if found.path != tree.address("") else ""
            done.verdicts[found.path] = verify_tree(tree, below, None, deadline, trust, whole=whole)
            has_complete |= done.verdicts[found.path].answer == "complete"
            if has_complete and len(done.verdicts) >= enough:
                break
        return done

    def failed(why: str) -> SearchResult:
        # It may hold complete checkpoints, so the verdict is not an empty result.
        unread = FoundCheckpoint(os.fsdecode(path), "", None)
        problem = f"{unread.path}: {why}"
        return SearchResult(
            (unread,), problem=problem, verdicts={unread.path: CheckpointVerdict("unverifiable", (printable(problem),))}
        )

    return run_with_timeout(seconds, work, failed)


def _search(tree: Tree, deadline: Deadline) -> SearchResult:
    itself = _itself(tree)
    if tree.kind("") == "file":
        return SearchResult((itself,))
    if itself.step is not None:
        return SearchResult((itself,))
    for below in ("", *_BELOW):
        try:
            entries = tree.entries(below, deadline)
        except NotADirectoryError:
            continue
        except (NotThere, FileNotFoundError):
            if not below:
                raise
            continue
        tracked_by = trackers(tree, below, entries, deadline)
        candidates = list(_candidates(tree, below, entries, tracked_by, deadline))
        if candidates:
            candidates.sort(key=_age, reverse=True)
            return SearchResult(tuple(candidates), tuple(_remarks(candidates, tracked_by)))
        if not below and _is_one(entries):
            return SearchResult((itself,), tuple(map(str, tracked_by)))
    return SearchResult(remarks=tuple(_no_candidates(tree.entries("", deadline))))


def _itself(tree: Tree) -> FoundCheckpoint:
    address = tree.address("")
    name = address.rstrip("/").rpartition("/")[2]
    return FoundCheckpoint(address, "", names.step_of(name) if names.is_candidate(name) else None, names.guess(name))


def _is_one(entries: list[TreeEntry]) -> bool:
    return any(
        entry.kind == "file"
        and (entry.name.endswith((*names.SUFFIXES, ".distcp")) or entry.name in {".metadata", *orbax.MARKERS})
        for entry in entries
    )


def _candidates(
    tree: Tree, below: str, entries: list[TreeEntry], tracked_by: list[Tracker], deadline: Deadline
) -> Iterator[FoundCheckpoint]:
    opened, beside = 0, {entry.name for entry in entries}
    for entry in entries:
        is_link = entry.target is not None and any(one.file == entry.name for one in tracked_by)
        if is_link or entry.kind == "other" or not names.is_candidate(entry.name):
            continue
        if entry.kind == "file" and not entry.name.endswith(names.SUFFIXES):
            continue
        if names.unfinished(entry.name) in beside:
            continue
        path = f"{below}/{entry.name}" if below else entry.name
        evidence: tuple[str, ...] = ("its name gives the step",)
        step = names.step_of(entry.name)
        if step is None and entry.kind == "file" and entry.name.endswith(".ckpt") and opened < _MAX_OPENED:
            opened += 1
            step, evidence = _stated_step(tree, path, entry.size, deadline), ("it holds the step",)
        elif step is None and entry.kind == "folder" and entry.name.isascii() and entry.name.isdigit():
            step = _orbax_step(tree, path, entry.name, deadline)
        tracked = [one for one in tracked_by if one.names(entry.name, step)]
        if step is not None or tracked:
            evidence += tuple(str(one) for one in tracked)
            yield FoundCheckpoint(tree.address(path), path, step, names.guess(entry.name), bool(tracked), evidence)


def _stated_step(tree: Tree, path: str, size: int, deadline: Deadline) -> int | None:
    """Return the step in a file of `torch.save`, such as Lightning's `last.ckpt`, whose name has none."""
    folder, _, name = path.rpartition("/")
    contents = CheckpointFiles(tree, folder, Listing({name: size}), deadline)
    try:
        data = archive.pickle_of(contents, name)
        values = dict(pickle_scan.key_values(data or b".", _STEP_KEYS, deadline))
    except (OSError, DamagedFile, DeadlineExceeded):
        return None
    return next((value for key in _STEP_KEYS if type(value := values.get(key)) is int), None)


def _orbax_step(tree: Tree, path: str, name: str, deadline: Deadline) -> int | None:
    """Return the step of a folder whose name is a bare number, if it has a marker of orbax."""
    try:
        inside = {entry.name for entry in tree.entries(path, deadline)}
    except OSError:
        return None
    return int(name) if len(name) <= 18 and inside & set(orbax.MARKERS) else None


def _no_candidates(entries: list[TreeEntry]) -> Iterator[str]:
    """Yield a line for each name that looks like a checkpoint and is not counted, with the reason."""
    beside = {entry.name for entry in entries}
    like = [entry.name for entry in entries if _looks_like_one(entry)]
    for name in like[:_MAX_NAMED]:
        if not names.is_candidate(name):
            why = "its name is that of something unfinished or set aside"
        elif (marker := names.unfinished(name)) in beside:
            why = f"{marker} beside it marks it as unfinished"
        elif names.step_of(name) is None:
            why = "its name gives no step, as step_100, iter_0000100 and checkpoint-100 do"
        else:
            why = f"files count with the endings {' '.join(names.SUFFIXES)}"
        yield f"{name} is not counted: {why}"
    if len(like) > _MAX_NAMED:
        yield f"{len(like) - _MAX_NAMED} more are not counted"


def _looks_like_one(entry: TreeEntry) -> bool:
    if entry.kind == "folder":
        return not entry.name.startswith(".")
    has_step = names.is_candidate(entry.name) and names.step_of(entry.name) is not None
    return entry.name.endswith(names.SUFFIXES) or (has_step and not entry.name.endswith(names.UNFINISHED))


def _age(found: FoundCheckpoint) -> tuple[bool, int, bool, int, bool, str]:
    is_model = not names.is_part(found.name.rpartition("/")[2])
    return found.step is not None, found.step or 0, is_model, names.version_of(found.name), found.tracked, found.name


def _remarks(candidates: list[FoundCheckpoint], tracked_by: list[Tracker]) -> Iterator[str]:
    for one in tracked_by:
        named = [found for found in candidates if one.names(found.name.rpartition("/")[2], found.step)]
        if one.problem:
            yield str(one)
        elif not named:
            yield f"{one}, which is not there"
        elif named[0].step is not None and candidates[0].step != named[0].step:
            yield f"{one}, and step {candidates[0].step} is there as well"
