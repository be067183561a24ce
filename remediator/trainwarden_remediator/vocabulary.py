"""The names that a policy may use: those of the taxonomy, and those that earlier tools gave to the same things."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from trainwarden.taxonomy import ERROR_TYPES, FAILURES, SUBSYSTEMS

# One earlier name to one of ours, wherever it is met.
_ERROR_TYPES = {
    "watchdog_timeout": "hang",
    "nccl_collective": "nccl",
    "torch": "exception",
    "timeout": "time_limit",
}
# In a list of a policy it may stand for more: there was one name for the memory of GPUs and of hosts.
_WIDER = {"oom": frozenset(("oom", "host_oom"))}
_SUBSYSTEMS = {"slurm": "scheduler", "cpu": "memory"}
# Signals of earlier tools, each by the error type of all failures that it means.
_SIGNALS = {
    "cpu_oom": "host_oom",
    "cuda_hang": "hang",
    "watchdog_timeout": "hang",
    "nccl_error": "nccl",
    "nccl_warning": "nccl",
    "nccl_collective_fail": "nccl",
    "nccl_timeout": "nccl_timeout",
    "processgroup_timeout": "distributed_timeout",
    "communication_error": "communication",
    "gradient_invalid": "numerical_instability",
    "gradient_nan": "numerical_instability",
    "loss_invalid": "numerical_instability",
    "loss_nan": "numerical_instability",
    "torch_error": "exception",
    "python_exception": "exception",
}
_MANY = 40
# From here on an unknown name is taken for a known one that is misspelt.
_MISSPELT = 0.8


@dataclass(frozen=True)
class Vocabulary:
    """The known names of one kind. `what` says of which, and where they are listed if they are too many to say."""

    what: str
    names: frozenset[str]

    def expected(self) -> str:
        """What a name of this kind may be."""
        return f"{self.what}: {', '.join(sorted(self.names))}" if len(self.names) <= _MANY else self.what

    def misspelt(self, name: str) -> str | None:
        """The known name that an unknown one nearly is; None if the name is known, or one of the user's own."""
        near = [] if name in self.names else get_close_matches(name, self.names, 1, _MISSPELT)
        return near[0] if near else None

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Those of the names that are not known."""
        return [name for name in names if name not in self.names]


VOCABULARIES: Mapping[str, Vocabulary] = {
    "restart_on_error_types": Vocabulary("one of the error types", ERROR_TYPES | _ERROR_TYPES.keys()),
    "exclude_error_types": Vocabulary("one of the error types", ERROR_TYPES | _ERROR_TYPES.keys()),
    "restart_on_subsystems": Vocabulary("one of the subsystems", SUBSYSTEMS | _SUBSYSTEMS.keys()),
    "restart_on_signals": Vocabulary("a slug of docs/failures.md", frozenset(FAILURES) | _SIGNALS.keys()),
}


def covers_error_type(names: Iterable[str], error_type: str | None) -> bool:
    """Whether a policy's list of error types names this one."""
    if error_type is None:
        return False
    error_type = _ERROR_TYPES.get(error_type, error_type)
    return any(error_type in _WIDER.get(name, (_ERROR_TYPES.get(name, name),)) for name in names)


def covers_subsystem(names: Iterable[str], subsystem: str | None) -> bool:
    """Whether a policy's list of subsystems names this one."""
    if subsystem is None:
        return False
    return _SUBSYSTEMS.get(subsystem, subsystem) in {_SUBSYSTEMS.get(name, name) for name in names}


def covers_signal(names: Iterable[str], signal: str | None, error_type: str | None) -> bool:
    """Whether a policy's list of signals names this failure, or all those of its error type."""
    known = FAILURES.get(signal or "")
    kind = known.error_type if known else error_type
    return any(name == signal or (kind is not None and _SIGNALS.get(name) == kind) for name in names)
