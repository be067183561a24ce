"""SLURM's and munge's programs: the machine's own, else unpacked from its distribution's packages."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainwarden.stack.binaries import default_folder
from trainwarden.stack.debian import unpack

# The plugins and the library of munge are named although they are dependencies: an installed one would be elsewhere.
PACKAGES = ("libmunge2", "munge", "slurm-client", "slurm-wlm-basic-plugins", "slurmctld", "slurmd")
CLIENTS = ("sbatch", "scancel", "scontrol", "sinfo", "squeue", "srun")
DAEMONS = ("munged", "slurmctld", "slurmd", "slurmstepd")


@dataclass(frozen=True)
class Programs:
    """Where the programs are: the root of a tree of unpacked packages, or of a machine that has them installed."""

    root: Path

    def path(self, name: str) -> Path:
        """A program's file; Debian calls a daemon `slurmd-wlm`. LookupError where there is none."""
        for folder in ("usr/sbin", "usr/bin"):
            for file in (f"{name}-wlm", name):
                if (self.root / folder / file).is_file():
                    return self.root / folder / file
        raise LookupError(f"{name} is not in {self.root}")

    @property
    def plugins(self) -> Path:
        """The folder of SLURM's plugins, which also holds its shared library. LookupError where there is none."""
        found = sorted(self.root.glob("usr/lib/*/slurm-wlm"))
        if not found:
            raise LookupError(f"no plugins of SLURM in {self.root}")
        return found[0]

    @property
    def libraries(self) -> str:
        """Value for LD_LIBRARY_PATH."""
        return f"{self.plugins.parent}:{self.plugins}"

    @property
    def complete(self) -> bool:
        """Whether all that a cluster needs is there."""
        try:
            return all(self.path(name) for name in (*CLIENTS, *DAEMONS)) and self.plugins.is_dir()
        except LookupError:
            return False


def find_programs() -> Programs:
    """The machine's own programs, else packages unpacked into the tools folder. Raises PackagesUnavailable."""
    installed = Programs(Path("/"))
    return installed if installed.complete else Programs(unpack(PACKAGES, default_folder() / "slurm"))
