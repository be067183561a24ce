"""The network that the environment of a run asks for.

Only the variables that are listed here are read, and only the names of networks are made of them.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from trainwarden.capabilities import reading_any
from trainwarden.signals.nccl_lines import EFA, OFI, OTHER, SOCKET, transport_of
from trainwarden_exporter.collectors.runs.documents import NETWORK
from trainwarden_exporter.core.process_files import read_environment

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NOT_IB = "not_ib"
NETWORKS = (EFA, OFI, "ib", SOCKET, NOT_IB)
VARIABLES = tuple(name.upper() for name in NETWORK)
_RANK = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_OF_PROCESS = frozenset(name.encode() for name in (*VARIABLES, *_RANK))


def requested_network(environment: Mapping[str, str]) -> str | None:
    """Return the network that variables ask for, one of `NETWORKS`; None if they leave it to NCCL."""
    provider = environment.get("FI_PROVIDER", "").lower()
    through_efa = EFA in provider.replace(",", ";").split(";")
    for name in ("NCCL_NET", "NCCL_NET_PLUGIN"):
        if text := environment.get(name):
            found = transport_of(text)
            if found == OFI:
                return EFA if through_efa else OFI
            if found != OTHER:
                return found
    if through_efa:
        return EFA
    return NOT_IB if environment.get("NCCL_IB_DISABLE", "0").strip().lower() not in ("", "0", "false") else None


def of_record(environment: Mapping[str, str]) -> dict[str, str]:
    """Return those of the variables that a record's `environment` has, in lower case."""
    return {name: environment[name.lower()] for name in VARIABLES if name.lower() in environment}


def of_process(procfs: Path, pid: int, owner: int, rank: int) -> dict[str, str] | None:
    """Return those of the variables that a process has.

    None if it cannot be read, is not this user's (uid), or does not have this rank in its environment. Records are
    written by users: a record must not make the exporter read the environment of another user's process; and a process
    number from inside a container is the number of another process here.
    """
    with contextlib.suppress(OSError), reading_any():
        known = read_environment(f"{procfs}/{pid}", _OF_PROCESS, owner)
        if str(rank) in (known.get(name) for name in _RANK):
            return {name: known[name] for name in VARIABLES if name in known}
    return None
