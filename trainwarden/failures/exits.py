"""Classifies exit statuses."""

from __future__ import annotations

from trainwarden.failures.entries import FAILURES

TYPE_CHECKING = False
if TYPE_CHECKING:
    from trainwarden.failures.failure import Failure

_EXITS = {
    2: "config_error",
    16: "rerun_to_disambiguate",
    17: "sdc_suspect",
    93: "launcher_stop",
    126: "config_error",
    127: "config_error",
}
_CRASHES = frozenset(("SIGSEGV", "SIGBUS", "SIGABRT", "SIGFPE", "SIGILL", "SIGSYS", "SIGTRAP"))
_REQUESTS = frozenset(("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"))


def classify_exit(status: int) -> Failure | None:
    """Return the failure of an exit status alone; None for 0.

    Args:
        status: as `subprocess` gives it, minus the signal, or as a shell does, 128 plus the signal.
    """
    if status == 0:
        return None
    name = _signal(-status if status < 0 else status - 128)
    if name == "SIGKILL":
        return FAILURES["killed"]
    if name in _REQUESTS:
        return FAILURES["cancelled"]
    if name in _CRASHES:
        return FAILURES["crash_signal"]
    return FAILURES[_EXITS.get(status, "nonzero_exit" if status > 0 else "killed")]


def _signal(number: int) -> str | None:
    """Return the name of a signal; None if there is none."""
    if number <= 0:
        return None
    import signal  # noqa: PLC0415  # most shell commands that tell of a failure know of none

    try:
        return signal.Signals(number).name
    except ValueError:
        return None
