"""What SLURM lets a user do to jobs, and the settings on which a restart depends. Asks; changes nothing."""

from __future__ import annotations

import re
from dataclasses import dataclass

_SETTING = re.compile(r"^(\w+)\s*=\s*(.*?)\s*$", re.MULTILINE)
_USER = re.compile(r"(.*)\((\d+)\)")
_POWERFUL = frozenset({"operator", "administrator", "admin"})


@dataclass(frozen=True)
class Rights:
    """The rights of one user.

    Attributes:
        user: name.
        uid: of the user.
        slurm_uid: of SlurmUser, who may do all, as root may; None where that is not known.
        level: AdminLevel by the accounting, such as None, Operator or Administrator; empty where it is not known.
        accounts: of which the user is a coordinator.
        min_job_age: seconds for which slurmctld remembers a job that has ended; None where that is not known.
        accounting: there is a slurmdbd.
        cancels_dependents: SLURM cancels a job whose dependency cannot be fulfilled any more.
    """

    user: str
    uid: int
    slurm_uid: int | None = None
    level: str = ""
    accounts: frozenset[str] = frozenset()
    min_job_age: float | None = None
    accounting: bool = False
    cancels_dependents: bool = False

    @property
    def may_change_all(self) -> bool | None:
        """Whether the user may hold, edit and requeue the jobs of everybody; None where that is not known."""
        if self.uid in (0, self.slurm_uid) or self.level.lower() in _POWERFUL:
            return True
        return False if self.level or not self.accounting else None

    def may_change(self, uid: int | None, account: str) -> bool | None:
        """Return whether the user may hold, edit and requeue a job; None where that is not known."""
        return True if uid == self.uid or account in self.accounts else self.may_change_all

    @property
    def may_drain(self) -> bool | None:
        """Whether the user may change nodes; None where that is not known."""
        return self.may_change_all and (self.level.lower() != "operator" or self.uid in (0, self.slurm_uid))


def read_settings(text: str) -> dict[str, str]:
    """Return the settings of `scontrol show config`."""
    return dict(_SETTING.findall(text))


def read_rights(user: str, uid: int, settings: dict[str, str], accounted: str) -> Rights:
    """Return the rights of a user.

    Args:
        user: name.
        uid: of the user.
        settings: of `read_settings`.
        accounted: of `sacctmgr --noheader --parsable2 show user NAME withcoord format=user,adminlevel,coordinators`.
    """
    slurm_user = _USER.fullmatch(settings.get("SlurmUser", ""))
    rows = [line.split("|") for line in accounted.splitlines()]
    found = next((row for row in rows if len(row) == 3 and row[0] == user), ["", "", ""])
    age = re.match(r"\d+", settings.get("MinJobAge", ""))
    return Rights(
        user=user,
        uid=uid,
        slurm_uid=int(slurm_user[2]) if slurm_user else None,
        level=found[1],
        accounts=frozenset(account for account in found[2].split(",") if account),
        min_job_age=float(age[0]) if age else None,
        accounting=settings.get("AccountingStorageType", "").endswith("/slurmdbd"),
        cancels_dependents="kill_invalid_depend" in settings.get("DependencyParameters", "").lower(),
    )
