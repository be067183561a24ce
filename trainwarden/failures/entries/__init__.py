"""The table of failures: one module for each part of a training that fails, joined here."""

from collections.abc import Mapping
from types import MappingProxyType

from trainwarden.failures.entries.distributed import COLLECTIVES, NETWORK
from trainwarden.failures.entries.gpu import GPU, MEMORY
from trainwarden.failures.entries.process import BEHAVIOUR, PROCESS, SCHEDULER
from trainwarden.failures.entries.program import MODEL, SETTINGS
from trainwarden.failures.entries.storage import CHECKPOINT, DATA, STORAGE
from trainwarden.failures.failure import Failure

_ENTRIES = (
    *MEMORY, *GPU, *COLLECTIVES, *NETWORK, *STORAGE, *CHECKPOINT, *DATA, *SETTINGS, *MODEL,
    *PROCESS, *SCHEDULER, *BEHAVIOUR,
)  # fmt: skip

FAILURES: Mapping[str, Failure] = MappingProxyType({failure.slug: failure for failure in _ENTRIES})
