"""Trainwarden: records what a training process does, for its monitoring and restart.

Standard library only. Each name is imported when it is first used, so that `import trainwarden` takes about 1 ms.
"""

from __future__ import annotations

# As type checkers evaluate it, without importing `typing`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from trainwarden.classify import classify_exception, recovery_suggestion
    from trainwarden.record.ownership import RunRefused
    from trainwarden.retrying import retry
    from trainwarden.training.current import (
        checkpoint_saved,
        epoch,
        error,
        finish,
        note,
        phase,
        resume_checkpoint,
        run,
        section,
        step,
    )
    from trainwarden.training.run import Run

__version__ = "0.1.0"

__all__ = [
    "Run",
    "RunRefused",
    "__version__",
    "checkpoint_saved",
    "classify_exception",
    "epoch",
    "error",
    "finish",
    "note",
    "phase",
    "recovery_suggestion",
    "resume_checkpoint",
    "retry",
    "run",
    "section",
    "step",
]

_MODULES = {
    "Run": "trainwarden.training.run",
    "RunRefused": "trainwarden.record.ownership",
    "classify_exception": "trainwarden.classify",
    "recovery_suggestion": "trainwarden.classify",
    "retry": "trainwarden.retrying",
}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module  # noqa: PLC0415  # only when it is needed

    module = import_module(_MODULES.get(name, "trainwarden.training.current"))
    # Stored as a global, so that later look-ups in the training loop do not come here.
    value = globals()[name] = getattr(module, name)
    return value
