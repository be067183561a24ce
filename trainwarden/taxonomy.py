"""The only list of failures: slug → error_type → category, and what each asks for.

A slug names one way to fail; its error_type is the label that alerts and policies use. `trainwarden.classify` finds the
entry for an exception, an exit status or a message; `trainwarden.failures` holds the entries.
"""

from collections.abc import Mapping
from types import MappingProxyType

from trainwarden.failures.entries.distributed import COLLECTIVES, NETWORK
from trainwarden.failures.entries.gpu import GPU, MEMORY
from trainwarden.failures.entries.process import BEHAVIOUR, PROCESS, SCHEDULER
from trainwarden.failures.entries.program import MODEL, SETTINGS
from trainwarden.failures.entries.storage import CHECKPOINT, DATA, STORAGE
from trainwarden.failures.failure import ACTIONS, CATEGORIES, FAULTS, SEVERITIES, Failure

__all__ = ["ACTIONS", "CATEGORIES", "ERROR_TYPES", "FAILURES", "FAULTS", "SEVERITIES", "SUBSYSTEMS", "Failure"]

_ENTRIES = (
    *MEMORY, *GPU, *COLLECTIVES, *NETWORK, *STORAGE, *CHECKPOINT, *DATA, *SETTINGS, *MODEL,
    *PROCESS, *SCHEDULER, *BEHAVIOUR,
)  # fmt: skip

FAILURES: Mapping[str, Failure] = MappingProxyType({failure.slug: failure for failure in _ENTRIES})
ERROR_TYPES = frozenset(failure.error_type for failure in _ENTRIES)
SUBSYSTEMS = frozenset(failure.subsystem for failure in _ENTRIES)
