"""Whom SLURM lets change whose jobs."""

from __future__ import annotations

from tests.cases import cases
from trainwarden.clients.slurm.rights import read_rights, read_settings

CONFIGURATION = """\
Configuration data as of 2026-11-23T09:00:00
AccountingStorageType   = accounting_storage/slurmdbd
MinJobAge               = 300 sec
SlurmUser               = slurm(64030)
SlurmdUser              = root(0)

Cgroup Support Configuration:
(null)
"""


@cases(
    ("uid", "accounted", "own", "of_account", "all_jobs", "drain"),
    [
        (1000, "ops|None|", True, False, False, False),
        (1000, "ops|None|llm,vision", True, True, False, False),
        (1000, "ops|Operator|", True, True, True, False),
        (1000, "ops|Administrator|", True, True, True, True),
        (1000, "", True, None, None, None),
        (1000, "other|Operator|", True, None, None, None),
        (0, "", True, True, True, True),
        (64030, "", True, True, True, True),
    ],
)
def test_rights_follow_from_the_level_and_the_accounts(
    uid: int, accounted: str, own: bool, of_account: bool | None, all_jobs: bool | None, drain: bool | None
) -> None:
    rights = read_rights("ops", uid, read_settings(CONFIGURATION), accounted)
    assert rights.may_change(uid, "llm") is own
    assert rights.may_change(4711, "llm") is of_account
    assert rights.may_change_all is all_jobs
    assert rights.may_drain is drain
    assert rights.min_job_age == 300


def test_without_accounting_everybody_has_his_own_jobs_alone() -> None:
    rights = read_rights("ops", 1000, {"SlurmUser": "slurm(64030)"}, "")
    assert (rights.may_change(1000, ""), rights.may_change(1001, "")) == (True, False)
    assert rights.min_job_age is None
