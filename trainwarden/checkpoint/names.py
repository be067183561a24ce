"""What the names of checkpoints say: the step, and whether it is one at all."""

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
    """The step that a name speaks of, the last one if of several; None if of none."""
    found = _STEP.findall(name)
    return int(found[-1]) if found else None


def version_of(name: str) -> int:
    """Which of several of one step: `-v2` is what Lightning appends to the third."""
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    found = _AGAIN.search(name)
    return int(found[1]) if found else 0


def is_temporary(name: str) -> bool:
    """Whether the name is that of something still being written, or abandoned meanwhile."""
    return bool(_TEMPORARY.search(name))


def is_candidate(name: str) -> bool:
    """Whether somebody may want to resume from it: neither temporary, hidden nor set aside as damaged."""
    return not (name.startswith(".") or is_temporary(name) or _SET_ASIDE.search(name))


def is_part(name: str) -> bool:
    """Whether a file of that name commonly lies beside the model of the same step: an optimizer's, a scheduler's."""
    return bool(_PART.search(name))


def unfinished(name: str) -> str:
    """The marker that NeMo keeps beside what it is writing, and removes when that is done."""
    return f"{name.removesuffix('.ckpt').removesuffix('.nemo')}-unfinished"


def final(path: str) -> str | None:
    """What a leftover file inside a checkpoint was to be called: `x.distcp` for `x.distcp.tmp`; None if it is none."""
    found = _LEFTOVER.fullmatch(path)
    return found[1] if found else None


def guess(name: str) -> str | None:
    """The kind of checkpoint that commonly has such a name."""
    return next((kind for pattern, kind in _FORMATS if pattern.fullmatch(name)), None)
