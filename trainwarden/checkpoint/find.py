"""Which checkpoints are in a place, and which is the one to resume from."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field

from trainwarden.checkpoint import archive, names, pickled
from trainwarden.checkpoint.contents import Contents, Damaged
from trainwarden.checkpoint.layouts import orbax
from trainwarden.checkpoint.place import place
from trainwarden.checkpoint.tracker import Tracker, trackers
from trainwarden.checkpoint.tree import Entry, Listing, NotThere, Tree
from trainwarden.checkpoint.verdict import Verdict, printable
from trainwarden.checkpoint.verify import TIMEOUT_SECONDS, verify_in, within
from trainwarden.deadline import Deadline, DeadlineExceeded

# So many are verified where all are wanted and one is complete.
MAX_VERIFIED = 20
_MAX_OPENED = 16
_MAX_NAMED = 5
_BELOW = ("checkpoints", "checkpoint")
_STEP_KEYS = ("global_step", "iteration")


@dataclass(frozen=True)
class Found:
    """A checkpoint by its name. `format` is what such names usually are; `tracked`: a tracker file or link names it."""

    path: str
    name: str
    step: int | None
    format: str | None = None
    tracked: bool = False
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class Search:
    """What was found, newest first. `remarks` are what trackers say; `problem` is why the place cannot be read."""

    candidates: tuple[Found, ...] = ()
    remarks: tuple[str, ...] = ()
    problem: str | None = None
    verdicts: dict[str, Verdict] = field(default_factory=dict)

    @property
    def best(self) -> "tuple[Found, Verdict] | None":
        """The newest complete one; else an unverifiable one, the tracked one first; else the newest."""
        judged = [(found, self.verdicts[found.path]) for found in self.candidates if found.path in self.verdicts]
        for answer in ("complete", "unverifiable", "incomplete"):
            fitting = [pair for pair in judged if pair[1].answer == answer]
            if answer == "unverifiable":
                fitting.sort(key=lambda pair: not pair[0].tracked)
            if fitting:
                return fitting[0]
        return None


def find(path: "str | os.PathLike[str]", *, seconds: float = TIMEOUT_SECONDS) -> list[Found]:
    """The checkpoints in a folder or an S3 prefix, newest first; none where it cannot be read. Never raises."""
    found = search(path, verifying=False, seconds=seconds)
    return [] if found.problem else list(found.candidates)


def newest(path: "str | os.PathLike[str]", *, seconds: float = TIMEOUT_SECONDS) -> "tuple[Found, Verdict] | None":
    """The checkpoint to resume from, and why; None if there is none. Never raises.

    It is the newest complete one, whatever a tracker says; else one that nothing speaks against, the tracked one first;
    else the newest. For a place that cannot be read it is the place itself, unverifiable.
    """
    return search(path, seconds=seconds).best


def search(
    path: "str | os.PathLike[str]",
    *,
    verifying: bool = True,
    every: bool = False,
    seconds: float = TIMEOUT_SECONDS,
) -> Search:
    """Find the checkpoints, and verify them from the newest on until one is complete. Never raises.

    Args:
        path: a folder or `s3://bucket/prefix` that holds checkpoints, or a checkpoint itself.
        verifying: False to look at names alone.
        every: go on after the first complete one, as far as MAX_VERIFIED.
        seconds: for all of it.
    """

    def look() -> Search:
        deadline = Deadline(seconds)
        try:
            tree = place(path, deadline)
            done = _search(tree, deadline)
        except NotThere as error:
            return Search(problem=f"{os.fsdecode(path)}: {error}")
        except (OSError, ValueError, DeadlineExceeded) as error:
            return failed(getattr(error, "strerror", None) or str(error))
        enough, has_complete = MAX_VERIFIED if every else 1, False
        for found in done.candidates if verifying else ():
            below = found.name if found.path != tree.address("") else ""
            done.verdicts[found.path] = verify_in(tree, below, None, deadline)
            has_complete |= done.verdicts[found.path].answer == "complete"
            if has_complete and len(done.verdicts) >= enough:
                break
        return done

    def failed(why: str) -> Search:
        # It may hold the best of all checkpoints.
        unread = Found(os.fsdecode(path), "", None)
        problem = f"{unread.path}: {why}"
        return Search(
            (unread,), problem=problem, verdicts={unread.path: Verdict("unverifiable", (printable(problem),))}
        )

    return within(seconds, look, failed)


def _search(tree: Tree, deadline: Deadline) -> Search:
    itself = _itself(tree)
    if tree.kind("") == "file":
        return Search((itself,))
    if itself.step is not None:
        return Search((itself,))
    for below in ("", *_BELOW):
        try:
            entries = tree.entries(below, deadline)
        except NotADirectoryError:
            continue
        except (NotThere, FileNotFoundError):
            if not below:
                raise
            continue
        told = trackers(tree, below, entries, deadline)
        candidates = list(_candidates(tree, below, entries, told, deadline))
        if candidates:
            candidates.sort(key=_age, reverse=True)
            return Search(tuple(candidates), tuple(_remarks(candidates, told)))
        if not below and _is_one(entries):
            return Search((itself,), tuple(map(str, told)))
    return Search(remarks=tuple(_no_candidates(tree.entries("", deadline))))


def _itself(tree: Tree) -> Found:
    address = tree.address("")
    name = address.rstrip("/").rpartition("/")[2]
    return Found(address, "", names.step_of(name) if names.is_candidate(name) else None, names.guess(name))


def _is_one(entries: list[Entry]) -> bool:
    return any(
        entry.kind == "file"
        and (entry.name.endswith((*names.SUFFIXES, ".distcp")) or entry.name in {".metadata", *orbax.MARKERS})
        for entry in entries
    )


def _candidates(
    tree: Tree, below: str, entries: list[Entry], told: list[Tracker], deadline: Deadline
) -> Iterator[Found]:
    opened, beside = 0, {entry.name for entry in entries}
    for entry in entries:
        is_link = entry.target is not None and any(one.file == entry.name for one in told)
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
        tracked = [one for one in told if one.names(entry.name, step)]
        if step is not None or tracked:
            evidence += tuple(str(one) for one in tracked)
            yield Found(tree.address(path), path, step, names.guess(entry.name), bool(tracked), evidence)


def _stated_step(tree: Tree, path: str, size: int, deadline: Deadline) -> int | None:
    """The step in a file of `torch.save`: Lightning's `last.ckpt` does not say it in its name."""
    folder, _, name = path.rpartition("/")
    contents = Contents(tree, folder, Listing({name: size}), deadline)
    try:
        data = archive.pickle_of(contents, name)
        said = dict(pickled.pairs(data or b".", _STEP_KEYS, deadline))
    except (OSError, Damaged, DeadlineExceeded):
        return None
    return next((value for key in _STEP_KEYS if type(value := said.get(key)) is int), None)


def _orbax_step(tree: Tree, path: str, name: str, deadline: Deadline) -> int | None:
    """Orbax calls a checkpoint by its bare number; so are many folders that are none."""
    try:
        held = {entry.name for entry in tree.entries(path, deadline)}
    except OSError:
        return None
    return int(name) if len(name) <= 18 and held & set(orbax.MARKERS) else None


def _no_candidates(entries: list[Entry]) -> Iterator[str]:
    """What looks like a checkpoint, and why it is taken for none."""
    like = [
        entry.name
        for entry in entries
        if entry.name.endswith(names.SUFFIXES) or (entry.kind == "folder" and not entry.name.startswith("."))
    ]
    for name in like[:_MAX_NAMED]:
        if names.is_candidate(name):
            yield f"{name} is not counted: its name gives no step, as step_100, iter_0000100 and checkpoint-100 do"
        else:
            yield f"{name} is not counted: its name is that of something unfinished or set aside"
    if len(like) > _MAX_NAMED:
        yield f"{len(like) - _MAX_NAMED} more are not counted"


def _age(found: Found) -> tuple[bool, int, bool, int, bool, str]:
    is_model = not names.is_part(found.name.rpartition("/")[2])
    return found.step is not None, found.step or 0, is_model, names.version_of(found.name), found.tracked, found.name


def _remarks(candidates: list[Found], told: list[Tracker]) -> Iterator[str]:
    for one in told:
        named = [found for found in candidates if one.names(found.name.rpartition("/")[2], found.step)]
        if one.problem:
            yield str(one)
        elif not named:
            yield f"{one}, which is not there"
        elif named[0].step is not None and candidates[0].step != named[0].step:
            yield f"{one}, and step {candidates[0].step} is there as well"
