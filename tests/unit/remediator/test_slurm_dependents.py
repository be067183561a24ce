"""Jobs that wait for one that comes back under a new id. With a real SLURM: tests/slurm/test_dependents.py."""

from __future__ import annotations

import os
from typing import Any, cast

import pytest

from tests.unit.remediator.test_slurm_driver import entry
from trainwarden.clients.slurm.client import ControlResult, SlurmClient
from trainwarden.clients.slurm.jobs import SlurmJob, read_job
from trainwarden_remediator.drivers.slurm_dependents import dependents_objection, point_dependents, repointed

OLD = read_job(entry(name="train", requeue=False))
NEW = read_job(entry(job_id=23, name="train", job_state="PENDING", priority=0))


def waiting(dependency: str, **changes: Any) -> SlurmJob:
    """Job 18, which waits."""
    record = {"job_id": 18, "name": "evaluate", "comment": "", "job_state": "PENDING", "priority": 7}
    return read_job(entry(**{**record, "dependency": dependency, **changes}))


@pytest.mark.parametrize(
    ("dependency", "changes", "kinds"),
    [
        ("afterany:17(unfulfilled)", {}, "afterany"),
        ("afternotok:17(unfulfilled)", {}, "afternotok"),
        ("afterok:9(unfulfilled)?afterany:17(unfulfilled)", {}, "afterany"),
        ("afterok:17(unfulfilled),singleton(unfulfilled)", {"name": "train"}, "singleton"),
    ],
)
def test_a_job_that_would_begin_with_the_end_of_another_forbids_it(
    dependency: str, changes: dict[str, Any], kinds: str
) -> None:
    found = dependents_objection(OLD, [OLD, waiting(dependency, **changes)], cancels=False)
    assert f"job 18 waits for the end of job 17 ({kinds}) and would begin" in (found or "")


@pytest.mark.parametrize(
    ("dependency", "changes"),
    [
        ("", {}),
        ("afterany:170(unfulfilled)", {}),
        ("after:17+30(unfulfilled)", {}),
        ("afterok:17(unfulfilled)", {}),
        ("singleton(unfulfilled)", {}),
        ("afterany:17(unfulfilled)", {"priority": 0}),
        ("afterany:17(unfulfilled)", {"user_id": os.getuid() + 1}),
        ("afterany:17", {"job_state": "RUNNING"}),
    ],
)
def test_others_do_not(dependency: str, changes: dict[str, Any]) -> None:
    assert dependents_objection(OLD, [OLD, waiting(dependency, **changes)], cancels=False) is None


@pytest.mark.parametrize(
    ("cancels", "flags", "forbids"),
    [
        (True, [], True),
        (True, ["NO_KILL_INV_DEP"], False),
        (False, ["KILL_INV_DEP"], True),
        (False, ["KILL_INVALID_DEPENDENCY"], True),
        (True, None, True),
    ],
)
def test_a_job_that_slurm_would_cancel_forbids_it(cancels: bool, flags: list[str] | None, forbids: bool) -> None:
    for priority in (7, 0):
        waits = waiting("afterok:17(unfulfilled)", flags=flags, priority=priority)
        found = dependents_objection(OLD, [OLD, waits], cancels=cancels)
        assert ("SLURM would cancel it with that one (kill_invalid_depend, " in (found or "")) == forbids


@pytest.mark.parametrize(
    ("shown", "given"),
    [
        ("afterok:17(failed)", "afterok:23"),
        ("afterok:17(unfulfilled),afterany:9(unfulfilled)", "afterok:23,afterany:9"),
        ("afterok:17(failed)?afterok:170_*(unfulfilled)", "afterok:23?afterok:170_*"),
        (
            "aftercorr:17(unfulfilled),after:17+5(unfulfilled),singleton(unfulfilled)",
            "aftercorr:23,after:17+5,singleton",
        ),
    ],
)
def test_the_conditions_that_need_success_name_the_new_job(shown: str, given: str) -> None:
    assert repointed(shown, "17", "23") == given


def test_jobs_of_the_same_user_are_pointed_at_the_new_job_and_all_are_named() -> None:
    updates: list[tuple[str, dict[str, str]]] = []

    class Client:
        def update(self, target: str, **fields: str) -> ControlResult:
            updates.append((target, fields))
            return ControlResult(accepted=False, refused=True, detail="status 1, Access/permission denied")

    jobs = [
        OLD,
        NEW,
        waiting("afterok:17(failed)"),
        waiting("afterok:17(failed)", job_id=19, user_id=os.getuid() + 1),
        waiting("afterok:9(unfulfilled)", job_id=20),
    ]
    told = point_dependents(cast("SlurmClient", Client()), "17", NEW, jobs)
    assert updates == [("18", {"Dependency": "afterok:23"})]
    assert told == [
        "job 18 waits for the success of job 17, and is pointed at job 23: status 1, Access/permission denied",
        f"job 19 waits for the success of job 17 and belongs to uid {os.getuid() + 1}: it is left",
    ]
