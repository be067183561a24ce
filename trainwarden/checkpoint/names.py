"""Names of checkpoints: the step in them, and whether a name is that of a checkpoint at all."""

from __future__ import annotations

import re

SUFFIXES = (".pt", ".pth", ".ckpt", ".bin", ".safetensors", ".npz", ".pkl", ".h5", ".msgpack", ".tar")

_STEP = re.compile(
    r"(?:^|[._=-])(?:global[_-]?step|steps?|iter|iteration|checkpoint|ckpt)[_=-]?([0-9]{1,18})(?![0-9])", re.IGNORECASE
)
_AGAIN = re.compile(r"-v([0-9]{1,6})$")
_TEMPORARY = re.compile(
    r"(?:^|[._-])(?:tmp|temp|partial|incomplete|inprogress|orbax-checkpoint-tmp)(?=$|[._0-9-])|~$", re.IGNORECASE
)
_SET_ASIDE = re.compile(r"(?:^|[._-])(?:failed|corrupt|corrupted|broken|damaged|quarantined?|deleted)(?=$|[._-])", re.I)
_PART = re.compile(r"(?:^|[._-])(?:optim|optimizer|sched|scheduler|scaler|rng)(?=[._-])", re.IGNORECASE)
_LEFTOVER = re.compile(r"(.+?)(?:\.tmp|\.temp|\.partial|\.part|\.incomplete)(?:[._-]?[0-9A-Za-z]{1,40})?")
# What NFS keeps in place of a file that was removed while a process had it open; it goes when the process closes it.
_NFS_REMOVED = re.compile(r"\.nfs[0-9a-fA-F]{8,}")
# How NeMo's marker of a checkpoint that is being written ends.
UNFINISHED = "-unfinished"
# The digests of a checkpoint's files: in its folder, or beside a checkpoint that is one file.
MANIFEST = ".trainwarden-digests.json"
_FORMATS = (
    (re.compile(r"iter_[0-9]{7}"), "Megatron"),
    (re.compile(r"checkpoint-[0-9]+"), "transformers Trainer"),
    (re.compile(r"global_step[0-9]+"), "DeepSpeed"),
    (re.compile(r"global_step_[0-9]+"), "verl"),
    (re.compile(r".*\.ckpt"), "Lightning"),
    (re.compile(r".*\.npz"), "numpy"),
    (re.compile(r".*\.safetensors"), "safetensors"),
    (re.compile(r".*\.(pt|pth|bin)"), "torch"),
)


def step_of(name: str) -> int | None:
    """Return the step in a name, the last one if there are several; None if there is none."""
    found = _STEP.findall(name)
    return int(found[-1]) if found else None


def version_of(name: str) -> int:
    """Return the version among several of one step: Lightning appends `-v2` to the third."""
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    found = _AGAIN.search(name)
    return int(found[1]) if found else 0


def is_temporary(name: str) -> bool:
    """Whether the name is temporary: still being written, or abandoned."""
    return bool(_TEMPORARY.search(name))


def is_candidate(name: str) -> bool:
    """Whether it may be a checkpoint to resume from: neither temporary, hidden nor renamed as damaged."""
    return not (name.startswith(".") or is_temporary(name) or _SET_ASIDE.search(name))


def is_part(name: str) -> bool:
    """Whether a file of that name commonly lies beside the model of the same step, such as an optimizer's."""
    return bool(_PART.search(name))


def unfinished(name: str) -> str:
    """Return the name of the marker that NeMo keeps beside a checkpoint while it writes it."""
    return f"{name.removesuffix('.ckpt').removesuffix('.nemo')}{UNFINISHED}"


def manifest(name: str, *, is_file: bool) -> str:
    """Return the name of the manifest of a checkpoint: inside its folder, or beside the file."""
    return f".{name}{MANIFEST}" if is_file else MANIFEST


def is_no_content(name: str) -> bool:
    """Whether a file of that name is no part of a checkpoint: what NFS keeps of removed ones, a manifest of digests."""
    return name.endswith(MANIFEST) or bool(_NFS_REMOVED.fullmatch(name))


def is_in_hidden_folder(path: str) -> bool:
    """Whether a file, by its path in the checkpoint, is below a folder that its writer did not make.

    Such as `.git`, `.cache` of a download, `.ipynb_checkpoints`, or `.~tmp~` of a copy that is under way.
    """
    return "/." in f"/{path}".rpartition("/")[0]


def final(path: str) -> str | None:
    """Return the final name of a temporary file in a checkpoint: `x.distcp` for `x.distcp.tmp`; None for another."""
    found = _LEFTOVER.fullmatch(path)
    return found[1] if found else None


def guess(name: str) -> str | None:
    """Return the kind of checkpoint that commonly has such a name; None if unknown."""
    return next((kind for pattern, kind in _FORMATS if pattern.fullmatch(name)), None)
