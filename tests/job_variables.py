"""What the machine that runs the tests may have in its environment: it may be a job of some scheduler itself."""

from __future__ import annotations

import os

import pytest

from tests.session import NODE_FOLDER

_PREFIXES = (
    "TRAINWARDEN_",
    "MONITORING_",
    "SLURM_",
    "RAY_",
    "TORCHELASTIC_",
    "KUBERNETES_",
    "MODAL_",
    "OMPI_",
    "PMI",
    "PALS_",
    "FLUX_",
    "MASTER_",
    "AWS_",
)
_NAMES = frozenset(("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "JOB_COMPLETION_INDEX", "STALE_MINUTES"))


def remove_job_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """Remove the variables of schedulers, launchers and credentials, and those that this project reads."""
    for name in list(os.environ):
        if name != NODE_FOLDER and (name.startswith(_PREFIXES) or name in _NAMES):
            monkeypatch.delenv(name)
