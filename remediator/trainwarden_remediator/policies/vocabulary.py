"""The names that a policy may use: those of the taxonomy, and names of earlier tools for the same failures."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches

from trainwarden.taxonomy import ERROR_TYPES, FAILURES, SUBSYSTEMS

# Earlier name to ours, wherever it occurs.
_ERROR_TYPES = {
    "watchdog_timeout": "hang",
    "nccl_collective": "nccl",
    "torch": "exception",
    "timeout": "time_limit",
}
# In a policy's list a name may cover more: earlier tools had one name for memory of GPUs and of hosts.
_WIDER = {"oom": frozenset(("oom", "host_oom"))}
_SUBSYSTEMS = {"slurm": "scheduler", "cpu": "memory"}
# Signals of earlier tools, by the error type of all failures that each covers.
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
# An unknown name this similar to a known one counts as misspelt.
_MISSPELT = 0.8


@dataclass(frozen=True)
class Vocabulary:
    """The known names of one kind. `what` describes the kind, and where its names are listed if they are many."""

    what: str
    names: frozenset[str]

    def expected(self) -> str:
        """Return the expected names, for an error message."""
        return f"{self.what}: {', '.join(sorted(self.names))}" if len(self.names) <= _MANY else self.what

    def misspelt(self, name: str) -> str | None:
        """Return the known name that an unknown one nearly equals; None if it is known, or the user's own."""
        near = [] if name in self.names else get_close_matches(name, self.names, 1, _MISSPELT)
        return near[0] if near else None

    def unknown(self, names: Iterable[str]) -> list[str]:
        """Return the unknown names."""
        return [name for name in names if name not in self.names]


VOCABULARIES: Mapping[str, Vocabulary] = {
    "restart_on_error_types": Vocabulary("one of the error types", ERROR_TYPES | _ERROR_TYPES.keys()),
    "exclude_error_types": Vocabulary("one of the error types", ERROR_TYPES | _ERROR_TYPES.keys()),
    "restart_on_subsystems": Vocabulary("one of the subsystems", SUBSYSTEMS | _SUBSYSTEMS.keys()),
    "restart_on_signals": Vocabulary("a slug of docs/failures.md", frozenset(FAILURES) | _SIGNALS.keys()),
    "exclude_signals": Vocabulary("a slug of docs/failures.md", frozenset(FAILURES) | _SIGNALS.keys()),
    "restart_elsewhere_on_error_types": Vocabulary("one of the error types", ERROR_TYPES | _ERROR_TYPES.keys()),
}


def covers_error_type(names: Iterable[str], error_type: str | None) -> bool:
    """Return whether a policy's list of error types covers this one."""
    if error_type is None:
        return False
    error_type = _ERROR_TYPES.get(error_type, error_type)
    return any(error_type in _WIDER.get(name, (_ERROR_TYPES.get(name, name),)) for name in names)


def covers_subsystem(names: Iterable[str], subsystem: str | None) -> bool:
    """Return whether a policy's list of subsystems covers this one."""
    if subsystem is None:
        return False
    return _SUBSYSTEMS.get(subsystem, subsystem) in {_SUBSYSTEMS.get(name, name) for name in names}


def covers_signal(names: Iterable[str], signal: str | None, error_type: str | None) -> bool:
    """Return whether a policy's list of signals covers this failure, or all of its error type."""
    known = FAILURES.get(signal or "")
    kind = known.error_type if known else error_type
    return any(name == signal or (kind is not None and _SIGNALS.get(name) == kind) for name in names)
