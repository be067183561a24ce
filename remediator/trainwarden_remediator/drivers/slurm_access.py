"""The way to a SLURM cluster: its commands, and what it lets this process do."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from trainwarden.clients.slurm.client import CommandsMissing, SlurmClient, SlurmError, find_commands
from trainwarden.clients.slurm.rights import Rights
from trainwarden_remediator.errors import ConfigError, Unknown
from trainwarden_remediator.incidents.incident import clean

_RIGHTS_SECONDS = 3600.0


def find_slurm_commands(folder: Path | None, needed_by: str, names: Sequence[str]) -> dict[str, str]:
    """Return the paths of commands in `folder`, else on PATH; raises `ConfigError` naming what is missing."""
    try:
        return find_commands(folder, names)
    except CommandsMissing as error:
        raise ConfigError([f"{needed_by}: {error}; see --slurm-bin-dir"]) from None


def slurm_client(folder: Path | None, timeout: float) -> SlurmClient:
    """Return a client of the commands in `folder`, else on PATH; raises `ConfigError` naming what is missing."""
    commands = find_slurm_commands(folder, "--driver slurm", ("squeue", "scontrol"))
    for optional in ("sacct", "sacctmgr", "sinfo", "sbatch", "scancel", "sstat"):
        with suppress(CommandsMissing):
            commands |= find_commands(folder, (optional,))
    return SlurmClient(commands, timeout)


class OwnRights:
    """What SLURM lets the user of this process do, kept for an hour."""

    def __init__(self, client: SlurmClient) -> None:
        self._client = client
        self._rights: Rights | None = None
        self._read_at = 0.0

    def read(self) -> Rights | Unknown:
        """Return the rights, read anew where an hour has passed."""
        if self._rights is None or time.monotonic() - self._read_at > _RIGHTS_SECONDS:
            uid = os.geteuid()
            try:
                user = pwd.getpwuid(uid).pw_name
            except KeyError:
                return Unknown(f"uid {uid} has no name")
            try:
                self._rights, self._read_at = self._client.rights(user, uid), time.monotonic()
            except SlurmError as error:
                return Unknown(clean(error.message))
        return self._rights
