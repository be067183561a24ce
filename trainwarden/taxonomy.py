"""The only list of failures: slug → error_type → category, and what each asks for.

A slug names one way to fail; its error_type is the label that alerts and policies use. `trainwarden.classify` finds the
entry for an exception, an exit status or a message; `trainwarden.failures` holds the entries.
"""

from trainwarden.failures.entries import FAILURES
from trainwarden.failures.failure import ACTIONS, CATEGORIES, FAULTS, SEVERITIES, Failure

__all__ = ["ACTIONS", "CATEGORIES", "ERROR_TYPES", "FAILURES", "FAULTS", "SEVERITIES", "SUBSYSTEMS", "Failure"]

ERROR_TYPES = frozenset(failure.error_type for failure in FAILURES.values())
SUBSYSTEMS = frozenset(failure.subsystem for failure in FAILURES.values())
