"""`trainwarden checkpoints set-aside`: move a checkpoint that is proven damaged out of the way, without deleting it."""

from __future__ import annotations

import errno
import os
import shlex
import stat
import sys
import time
from dataclasses import dataclass

from trainwarden.checkpoint import names
from trainwarden.checkpoint.find import search
from trainwarden.checkpoint.folder_tree import FolderTree
from trainwarden.checkpoint.paths import absolute, is_remote
from trainwarden.checkpoint.tracker import trackers
from trainwarden.checkpoint.tree import MAX_FILES
from trainwarden.checkpoint.verdict import CheckpointVerdict, printable
from trainwarden.checkpoint.verify import TIMEOUT_SECONDS, verify
from trainwarden.command_line import CommandLine, timeout_seconds
from trainwarden.deadline import Deadline, DeadlineExceeded

# What was written to more lately may be a save that goes on.
QUIET_SECONDS = 600.0
PREFIX = ".set-aside-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_MOST = 100


class Refused(Exception):
    """The checkpoint stays where it is; the message is the reason."""


@dataclass(frozen=True)
class _Seen:
    """What tells a checkpoint from another at its place, and the newest time of anything in it, Unix seconds."""

    device: int
    inode: int
    newest: float


def main(argv: list[str]) -> int:
    """Set a checkpoint aside, or print what would be done. Return 0; 1 if it is refused, 2 if PATH cannot be read."""
    parser = CommandLine(
        prog="trainwarden checkpoints set-aside",
        description="Move a damaged or incomplete checkpoint into a hidden folder beside it. Nothing is deleted.",
        epilog="exit status: 0 it was, or would be, set aside; 1 refused; 2 PATH cannot be read",
    )
    parser.add_argument("path", metavar="PATH", help="the checkpoint, a file or a folder")
    parser.add_argument("--apply", action="store_true", help="do it (default: print what would be done)")
    parser.add_argument("--timeout", type=timeout_seconds, default=TIMEOUT_SECONDS, help="seconds to verify it (60)")
    arguments = parser.parse_args(argv)
    try:
        lines = set_aside(arguments.path, apply=arguments.apply, seconds=arguments.timeout)
    except Refused as error:
        print(f"trainwarden checkpoints set-aside: {printable(arguments.path)} stays: {error}", file=sys.stderr)
        return 1
    except (OSError, ValueError, DeadlineExceeded) as error:
        reason = getattr(error, "strerror", None) or str(error)
        print(f"trainwarden checkpoints set-aside: {printable(arguments.path)}: {printable(reason)}", file=sys.stderr)
        return 2
    for line in lines:
        print(line)
    return 0


def set_aside(path: str, *, apply: bool, seconds: float = TIMEOUT_SECONDS, now: float | None = None) -> list[str]:
    """Move a checkpoint to `.set-aside-<step>/` beside it, if it is incomplete; return lines for people.

    Args:
        path: of the checkpoint.
        apply: False to find out alone.
        seconds: timeout of its verification.
        now: Unix seconds; the system's clock if None.

    Raises:
        Refused: it is not to be moved.
        OSError, ValueError, DeadlineExceeded: it cannot be read or moved.
    """
    if is_remote(path):
        raise Refused("it is in S3, where nothing can be renamed")
    path = absolute(path)
    parent, name = os.path.split(path)
    step = names.step_of(name)
    if not names.is_candidate(name) or step is None:
        raise Refused("its name is that of no checkpoint to resume from: unfinished, set aside, or without a step")
    folder = os.open(parent, _FOLDER)
    try:
        before = _look(folder, name, Deadline(seconds))
        age = (time.time() if now is None else now) - before.newest
        if age < QUIET_SECONDS:
            raise Refused(f"it was written to less than {QUIET_SECONDS / 60:.0f} minutes ago: a save may be going on")
        verdict = verify(path, seconds=seconds)
        if verdict.answer != "incomplete":
            raise Refused(f"only what is proven damaged is set aside, and it is {verdict}")
        if _look(folder, name, Deadline(seconds)) != before:
            raise Refused("it was changed while it was verified")
        target = _free_name(folder, step)
        if apply:
            _move(folder, name, target)
        return [*_report(path, f"{parent}/{target}/{name}", verdict, apply=apply), *_pointers(path, step, seconds)]
    finally:
        os.close(folder)


def _look(folder: int, name: str, deadline: Deadline) -> _Seen:
    """Return what a checkpoint is; refuse what is a link, another user's, or being saved."""
    beside, itself = os.fstat(folder), os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISLNK(itself.st_mode):
        target = printable(os.readlink(name, dir_fd=folder))
        raise Refused(f"it is a link to {target}: name the checkpoint itself")
    if not (stat.S_ISDIR(itself.st_mode) or stat.S_ISREG(itself.st_mode)):
        raise Refused("it is neither a file nor a folder")
    if itself.st_uid != os.geteuid():
        raise Refused(f"it belongs to another user (uid {itself.st_uid}), who alone may set it aside")
    if beside.st_uid not in (os.geteuid(), 0):
        raise Refused(f"the folder around it belongs to another user (uid {beside.st_uid})")
    if names.unfinished(name) in os.listdir(folder):
        raise Refused(f"{names.unfinished(name)} beside it marks it as unfinished: a save may be going on")
    newest = itself.st_mtime
    if stat.S_ISDIR(itself.st_mode):
        newest = max(newest, _newest_inside(folder, name, deadline))
    return _Seen(itself.st_dev, itself.st_ino, newest)


def _newest_inside(folder: int, name: str, deadline: Deadline) -> float:
    newest, count = 0.0, 0
    for _, folders, files, opened in os.fwalk(name, dir_fd=folder, onerror=_fail):
        for each in (*folders, *files):
            deadline.check()
            count += 1
            if count > MAX_FILES:
                raise Refused(f"it holds more than {MAX_FILES} files")
            newest = max(newest, os.stat(each, dir_fd=opened, follow_symlinks=False).st_mtime)
    return newest


def _fail(error: OSError) -> None:
    raise error


def _free_name(folder: int, step: int) -> str:
    taken = set(os.listdir(folder))
    wanted = (f"{PREFIX}{step}{f'.{number}' if number > 1 else ''}" for number in range(1, _MOST))
    free = next((each for each in wanted if each not in taken), None)
    if free is None:
        raise Refused(f"{_MOST - 1} checkpoints of step {step} are set aside already: remove some")
    return free


def _move(folder: int, name: str, target: str) -> None:
    """Rename the checkpoint, and the manifest beside one that is a file, into a new folder: nothing is replaced."""
    os.mkdir(target, dir_fd=folder)
    inside = os.open(target, _FOLDER | os.O_NOFOLLOW, dir_fd=folder)
    try:
        os.rename(name, name, src_dir_fd=folder, dst_dir_fd=inside)
    except OSError:
        os.rmdir(target, dir_fd=folder)
        raise
    else:
        manifest = names.manifest(name, is_file=True)
        try:
            os.rename(manifest, manifest, src_dir_fd=folder, dst_dir_fd=inside)
        except OSError as error:
            if error.errno != errno.ENOENT:
                raise
    finally:
        os.close(inside)


def _report(path: str, target: str, verdict: CheckpointVerdict, *, apply: bool) -> list[str]:
    done = "was" if apply else "would be"
    lines = [f"{printable(path)} {done} set aside as {printable(target)}", f"  it is {verdict}"]
    if apply:
        return lines
    # Of a name that cannot be shown as it is, a command to copy would be about another one.
    is_shown = printable(path) == path
    command = f"trainwarden checkpoints set-aside --apply {shlex.quote(path)}" if is_shown else "the same with --apply"
    return [*lines, f"  to do it: {command}"]


def _pointers(path: str, step: int, seconds: float) -> list[str]:
    """Return which trackers name the checkpoint, and which one there is to resume from."""
    parent, name = os.path.split(path)
    tree, deadline = FolderTree(parent), Deadline(seconds)
    entries = tree.entries("", deadline)
    lines = [
        f"  {printable(str(each))}: a framework that follows it finds no checkpoint there; name another one in it"
        for each in trackers(tree, "", entries, deadline)
        if each.names(name, step)
    ]
    result = search(parent, every=True, seconds=seconds)
    complete = [each for each in result.candidates if each.path in result.verdicts]
    complete = [each for each in complete if result.verdicts[each.path].answer == "complete"]
    if not complete:
        return [*lines, "  no complete checkpoint is beside it"]
    return [*lines, f"  the newest complete one is {printable(complete[0].path)}"]
