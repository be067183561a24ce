"""Verification of checkpoints: complete, incomplete or unverifiable, with the evidence."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from typing import TypeVar

from trainwarden.checkpoint import digests, file_checks, names
from trainwarden.checkpoint.contents import CheckpointFiles, DamagedFile
from trainwarden.checkpoint.layouts import LAYOUTS
from trainwarden.checkpoint.paths import open_tree
from trainwarden.checkpoint.tree import Listing, NotThere, Tree
from trainwarden.checkpoint.verdict import CheckpointVerdict, Findings, Trust
from trainwarden.deadline import Deadline, DeadlineExceeded, call_with_deadline
from trainwarden.record.progress import Checkpoint

TIMEOUT_SECONDS = 60.0
# Work that checks its own deadline ends by itself a little later, with a better message.
_GRACE_SECONDS = 1.0

_Result = TypeVar("_Result")


def verify(
    path: str | os.PathLike[str],
    expected_bytes: int | None = None,
    *,
    seconds: float = TIMEOUT_SECONDS,
    trust: Trust = "layout",
    whole: bool = False,
) -> CheckpointVerdict:
    """Verify a checkpoint by one listing and a few short reads of its files. Never raises.

    Args:
        path: a file, a folder or `s3://bucket/prefix`.
        expected_bytes: its size when it was saved, None if unknown.
        seconds: timeout, after which it is unverifiable.
        trust: what counts as complete where no digests prove the content: `layout`, what the files promise in a known
            layout or by their recorded size; `complete`, whatever shows no defect, which its owner vouches for; `none`,
            nothing.
        whole: where there are digests, read the files as a whole to compare them, and not in a few places.
    """

    def work() -> CheckpointVerdict:
        deadline = Deadline(seconds)
        try:
            tree = open_tree(path, deadline)
        except (OSError, ValueError) as error:
            return CheckpointVerdict("unverifiable", (f"it cannot be read: {error}",))
        return verify_tree(tree, "", expected_bytes, deadline, trust, whole=whole)

    return run_with_timeout(seconds, work, lambda why: CheckpointVerdict("unverifiable", (why,)))


def run_with_timeout(seconds: float, work: Callable[[], _Result], failed: Callable[[str], _Result]) -> _Result:
    """Return the result of `work`; that of `failed`, given the reason, if it raises or takes longer than `seconds`."""
    try:
        return call_with_deadline(work, seconds + _GRACE_SECONDS, thread_name="trainwarden-checkpoint")
    except DeadlineExceeded:
        return failed(f"gave up after {seconds:g} s: the file system does not answer")
    except Exception as error:  # noqa: BLE001  # an unexpected checkpoint must not stop its training
        return failed(f"it could not be verified: {error!r}")


def choose(candidates: Iterable[Checkpoint], trust: Trust = "layout") -> tuple[Checkpoint | None, list[str]]:
    """Return the first complete candidate, else the first unverifiable one, and a line for each rejected before it.

    Of the unverifiable ones those without a sign of damage come first.
    """
    unproven: dict[bool, Checkpoint] = {}
    rejected: list[str] = []
    for candidate in candidates:
        verdict = verify(candidate.path, candidate.size_bytes, trust=trust)
        if verdict.answer == "complete":
            return candidate, rejected
        rejected.append(f"checkpoint {candidate.path} is {verdict}")
        if verdict.answer == "unverifiable":
            unproven.setdefault(verdict.is_suspect, candidate)
    return unproven.get(False) or unproven.get(True), rejected


def verify_tree(
    tree: Tree,
    path: str,
    expected_bytes: int | None,
    deadline: Deadline,
    trust: Trust = "layout",
    *,
    whole: bool = False,
) -> CheckpointVerdict:
    """Verify the checkpoint `path` of `tree`. Never raises; it may hang if the file system does."""
    report = Findings()
    name = tree.address(path).rstrip("/").rpartition("/")[2]
    try:
        kind = tree.kind(path)
        if kind == "other":
            return CheckpointVerdict("unverifiable", ("it is neither a file nor a folder",))
        listing = tree.walk(path, deadline) if kind == "folder" else Listing({name: tree.size(path)})
    except NotThere as error:
        return CheckpointVerdict("incomplete", (str(error),))
    except (OSError, DeadlineExceeded) as error:
        return CheckpointVerdict("unverifiable", (f"it cannot be read: {error}",))
    size = listing.plain_bytes if kind == "folder" else listing.files[name]
    if not any(listing.files.values()) and not listing.errors:
        return CheckpointVerdict("incomplete", ("it is empty",))
    if expected_bytes is not None and size < expected_bytes and not listing.errors:
        report.defects.append(f"it has {size} bytes, and had {expected_bytes} when it was saved")
    report.unread += listing.errors
    contents = CheckpointFiles(tree, path, listing, deadline, is_file=kind == "file")
    if kind == "folder":
        _check_folder(contents, report)
    else:
        report.layouts += filter(None, [names.guess(name)])
        file_checks.check_file(contents, name, report)
    try:
        if (manifest := tree.manifest(path, is_file=kind == "file")) is not None:
            digests.check(contents, manifest, report, whole=whole)
    except OSError as error:
        report.remarks.append(f"its manifest of digests cannot be read: {error}")
    if expected_bytes == size and not listing.errors:
        # Nothing was lost since it was saved, so the doubts do not matter.
        report.proofs.insert(0, f"it has the {size} bytes that it had when it was saved")
        report.doubts.clear()
        report.unread.clear()
    elif expected_bytes is not None and size > expected_bytes and (report.doubts or not report.proofs):
        # Something was added, such as a late shard or a marker of another tool; nothing need be missing.
        report.doubts.insert(0, f"it has {size} bytes, more than the {expected_bytes} when it was saved")
    return report.verdict(trust)


def _check_folder(contents: CheckpointFiles, report: Findings) -> None:
    for check in LAYOUTS:
        report.add(_findings(check, contents))
    file_checks.check_files(contents, report)


def _findings(check: Callable[[CheckpointFiles], Findings], contents: CheckpointFiles) -> Findings:
    try:
        return check(contents)
    except DamagedFile as error:
        return Findings(defects=[str(error)])
    except (OSError, DeadlineExceeded) as error:
        return Findings(unread=[str(error)])
    except Exception as error:  # noqa: BLE001  # one failing check must not hide the findings of the others
        return Findings(unread=[f"it could not be verified: {error!r}"])
