"""The checkpoint to resume from, in a folder of this machine or of a pod, verified where it lies."""

from __future__ import annotations

import io
import json
import os
import zipfile
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import trainwarden
from trainwarden.checkpoint import names
from trainwarden.checkpoint.find import newest, search
from trainwarden.clients.kubernetes import PodExecError
from trainwarden.ray.head import open_head
from trainwarden.ray.log import log

if TYPE_CHECKING:
    from trainwarden.ray.head import RayHead

SECONDS = 120.0
# What `trainwarden checkpoints` needs: the standard library, and these.
_PARTS = ("*.py", "checkpoint/**/*.py", "record/**/*.py")
# Runs the package that it reads from its standard input. The answer is what is printed; its status says no more.
_IN_POD = """
import sys, tempfile
with tempfile.NamedTemporaryFile(suffix=".zip") as package:
    package.write(sys.stdin.buffer.read())
    package.flush()
    sys.path.insert(0, package.name)
    from trainwarden.checkpoint.command import main
    main(sys.argv[1:])
"""
_NAMES_IN_POD = "import json, os, sys; print(json.dumps([each.name for each in os.scandir(sys.argv[1])]))"


class CheckpointProgress(TypedDict):
    """The checkpoints of a folder; 0 where there is none."""

    latest_step: int
    checkpoint_count: int
    checkpoint_dir: str


def find_latest_checkpoint(
    checkpoint_dir: str, head_pod: str | None = None, namespace: str | None = None
) -> str | None:
    """Return the path of the checkpoint to resume from: the newest that is complete; None if there is none.

    One that nothing proves complete is returned where none is complete and none is proven damaged.

    Args:
        checkpoint_dir: the folder, or `s3://…`; in the pod where one is named.
        head_pod: name of the head pod; None for this machine.
        namespace: of the pod; kubectl's own if None.
    """
    head = open_head(head_pod, namespace) if head_pod else None
    return latest(head, checkpoint_dir)


def latest(head: RayHead | None, checkpoint_dir: str) -> str | None:
    """Do what `find_latest_checkpoint` does."""
    if head is None or head.pod is None or checkpoint_dir.startswith("s3://"):
        found = newest(checkpoint_dir)
        if found is None or found[1].answer == "incomplete" or (found[0].step is None and not found[0].tracked):
            log.warning("no checkpoint to resume from in %s", checkpoint_dir)
            return None
        log.info("%s is %s", found[0].path, found[1])
        return found[0].path
    document = _in_pod(head, checkpoint_dir)
    if document is None:
        return _by_name(head, checkpoint_dir)
    best = document.get("newest")
    if not isinstance(best, dict) or best.get("answer") == "incomplete":
        log.warning("no checkpoint to resume from in %s of %s", checkpoint_dir, head.name)
        return None
    log.info("%s is %s", best.get("path"), best.get("answer"))
    return str(best["path"])


def progress(head: RayHead | None, checkpoint_dir: str) -> CheckpointProgress:
    """Return the newest step and the number of checkpoints, by their names; raises PodExecError."""
    if head is None or head.pod is None or checkpoint_dir.startswith("s3://"):
        steps = [each.step for each in search(checkpoint_dir, verifying=False).candidates if each.step is not None]
    else:
        steps = [step for _, step in _named(head, checkpoint_dir)]
    return {"latest_step": max(steps, default=0), "checkpoint_count": len(steps), "checkpoint_dir": checkpoint_dir}


def _in_pod(head: RayHead, checkpoint_dir: str) -> dict[str, object] | None:
    """Return the JSON of `trainwarden checkpoints`, run in the pod; None if it cannot be run there."""
    argv = ["python3", "-c", _IN_POD, checkpoint_dir, "--format=json", "--newest", f"--timeout={SECONDS / 2:g}"]
    try:
        document = json.loads(head.run(argv, stdin=_package(), seconds=SECONDS))
    except (PodExecError, ValueError) as error:
        log.warning("checkpoints in %s cannot be verified: %s", head.name, error)
        return None
    return document if isinstance(document, dict) else None


def _by_name(head: RayHead, checkpoint_dir: str) -> str | None:
    try:
        found = _named(head, checkpoint_dir)
    except PodExecError as error:
        log.error("%s of %s cannot be read: %s", checkpoint_dir, head.name, error)  # the reason says all
        return None
    if not found:
        log.warning("no checkpoint in %s of %s", checkpoint_dir, head.name)
        return None
    name, step = max(found, key=lambda each: each[1])
    log.warning("%s is the newest by its name, step %d, and not verified", name, step)
    return os.path.join(checkpoint_dir, name)  # noqa: PTH118  # a path of another machine


def _named(head: RayHead, checkpoint_dir: str) -> list[tuple[str, int]]:
    """Return names and steps of the checkpoints in a folder of the pod."""
    try:
        listed = json.loads(head.run(["python3", "-c", _NAMES_IN_POD, checkpoint_dir]))
    except ValueError:
        raise PodExecError("the list of files is cut off or none of ours") from None
    steps = [(str(name), names.step_of(str(name))) for name in listed if names.is_candidate(str(name))]
    return [(name, step) for name, step in steps if step is not None]


@cache
def _package() -> bytes:
    """Return a zip file with the part of this package that verifies checkpoints."""
    root = Path(trainwarden.__file__).parent
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as package:
        for path in sorted({path for part in _PARTS for path in root.glob(part)}):
            package.write(path, path.relative_to(root.parent))
    return content.getvalue()
