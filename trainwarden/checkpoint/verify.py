"""Whether a checkpoint can be resumed from: complete, incomplete or unverifiable, with the evidence."""

import os
from collections.abc import Callable
from typing import TypeVar

from trainwarden.checkpoint import files, names
from trainwarden.checkpoint.contents import Contents, Damaged
from trainwarden.checkpoint.layouts import LAYOUTS
from trainwarden.checkpoint.place import place
from trainwarden.checkpoint.tree import Listing, NotThere, Tree
from trainwarden.checkpoint.verdict import Report, Verdict
from trainwarden.deadline import Deadline, DeadlineExceeded, call_with_deadline

TIMEOUT_SECONDS = 60.0
# A search that checks its own deadline ends in time, with more to report.
_GRACE_SECONDS = 1.0

_Result = TypeVar("_Result")


def verify(
    path: "str | os.PathLike[str]", expected_bytes: int | None = None, *, seconds: float = TIMEOUT_SECONDS
) -> Verdict:
    """Judge the checkpoint at `path`: by one listing, and the first and last bytes of its files. Never raises.

    Args:
        path: a file, a folder or `s3://bucket/prefix`.
        expected_bytes: its size when it was saved, None if that is not known.
        seconds: after which it is unverifiable, whatever the file system does.
    """

    def look() -> Verdict:
        deadline = Deadline(seconds)
        try:
            tree = place(path, deadline)
        except (OSError, ValueError) as error:
            return Verdict("unverifiable", (f"it cannot be looked at: {error}",))
        return verify_in(tree, "", expected_bytes, deadline)

    return within(seconds, look, lambda why: Verdict("unverifiable", (why,)))


def within(seconds: float, work: Callable[[], _Result], failed: Callable[[str], _Result]) -> _Result:
    """Return the result of `work`; of `failed`, given the reason, if it raises or takes longer than `seconds`."""
    try:
        return call_with_deadline(work, seconds + _GRACE_SECONDS, thread_name="trainwarden-checkpoint")
    except DeadlineExceeded:
        return failed(f"gave up after {seconds:g} s: the file system does not answer")
    except Exception as error:  # noqa: BLE001  # a checkpoint of an unknown form must not stop its training
        return failed(f"it could not be judged: {error!r}")


def verify_in(tree: Tree, path: str, expected_bytes: int | None, deadline: Deadline) -> Verdict:
    """Judge the checkpoint `path` of `tree`. Never raises, and waits as long as the tree does."""
    report = Report()
    name = tree.address(path).rstrip("/").rpartition("/")[2]
    try:
        kind = tree.kind(path)
        if kind == "other":
            return Verdict("unverifiable", ("it is neither a file nor a folder",))
        listing = tree.walk(path, deadline) if kind == "folder" else Listing({name: tree.size(path)})
    except NotThere as error:
        return Verdict("incomplete", (str(error),))
    except (OSError, DeadlineExceeded) as error:
        return Verdict("unverifiable", (f"it cannot be looked at: {error}",))
    size = listing.plain_bytes if kind == "folder" else listing.files[name]
    if not any(listing.files.values()) and not listing.troubles:
        return Verdict("incomplete", ("it is empty",))
    if expected_bytes is not None and size < expected_bytes and not listing.troubles:
        report.against.append(f"it has {size} bytes, and had {expected_bytes} when it was saved")
    report.doubts += listing.troubles
    contents = Contents(tree, path, listing, deadline, is_file=kind == "file")
    if kind == "folder":
        _look_into(contents, report)
    else:
        report.layouts += filter(None, [names.guess(name)])
        files.judge(contents, name, report)
    if expected_bytes == size and not listing.troubles:
        # Nothing was lost since it was reported as saved, whatever else is not known.
        report.proof.insert(0, f"it has the {size} bytes that it had when it was saved")
        report.doubts.clear()
    elif expected_bytes is not None and size > expected_bytes and (report.doubts or not report.proof):
        # A late shard or a marker that another tool left: something was added, and nothing need be missing.
        report.doubts.insert(0, f"it has {size} bytes, more than the {expected_bytes} when it was saved")
    return report.verdict()


def _look_into(contents: Contents, report: Report) -> None:
    for look in LAYOUTS:
        report.add(_report(look, contents))
    files.judge_all(contents, report)


def _report(look: Callable[[Contents], Report], contents: Contents) -> Report:
    try:
        return look(contents)
    except Damaged as error:
        return Report(against=[str(error)])
    except (OSError, DeadlineExceeded) as error:
        return Report(doubts=[str(error)])
    except Exception as error:  # noqa: BLE001  # what confuses us here must not hide what the others find
        return Report(doubts=[f"it could not be judged: {error!r}"])
