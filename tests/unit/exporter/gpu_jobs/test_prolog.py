"""The prolog and epilog that is shipped: what it writes the exporter reads, and it never fails a job."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.unit.exporter.gpu_jobs.node_tree import MINORS, NodeTree, job, jobs_of, uuid

pytestmark = pytest.mark.process

SCRIPT = Path(__file__).resolve().parents[4] / "deploy/slurm/gpu-jobs.sh"


def _run(node: NodeTree, context: str, job_id: str, gpus: str, **environment: str) -> None:
    said = {
        "PATH": os.environ["PATH"],
        "TRAINWARDEN_GPU_JOBS": str(node.files),
        "TRAINWARDEN_PROCFS": str(node.procfs),
        "SLURM_SCRIPT_CONTEXT": context,
        "SLURM_JOB_ID": job_id,
        "SLURM_JOB_GPUS": gpus,
        **environment,
    }
    # Where a file is named as a GPU: no `*` means it.
    (node.procfs / "5").touch()
    done = subprocess.run(
        [str(SCRIPT)], env=said, cwd=node.procfs, capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def _names(node: NodeTree) -> set[str]:
    return {path.name for path in node.files.iterdir() if path.name != ".lock"}


def test_the_prolog_names_gpus_by_uuid_and_the_epilog_removes_what_it_wrote(node: NodeTree) -> None:
    _run(
        node,
        "prolog_slurmd",
        "4711",
        "0,3",
        SLURM_JOB_USER="alice",
        SLURM_JOB_PARTITION="main",
        SLURM_JOB_COMMENT="keep, trainwarden:r1",
    )
    mine = [MINORS.index(0), MINORS.index(3)]
    assert _names(node) == {uuid(index) for index in mine}
    assert jobs_of(node.page()) == {job(index, "4711", "", "alice", partition="main", run="r1") for index in mine}
    _run(node, "epilog_slurmd", "4711", "0,3")
    assert _names(node) == set()


def test_jobs_that_share_a_gpu_have_a_line_each_and_a_second_prolog_changes_nothing(node: NodeTree) -> None:
    index = MINORS.index(1)
    for job_id in ("1", "2", "2"):
        _run(node, "prolog_slurmd", job_id, "1")
    assert jobs_of(node.page()) == {job(index, "1"), job(index, "2")}
    _run(node, "epilog_slurmd", "1", "1")
    assert jobs_of(node.page()) == {job(index, "2")}


def test_files_for_dcgm_exporter_are_named_by_number_and_hold_ids_alone(node: NodeTree) -> None:
    _run(node, "prolog_slurmd", "4711", "0,1", TRAINWARDEN_GPU_FILES="index", SLURM_JOB_USER="alice")
    assert {path.name: path.read_text() for path in node.files.iterdir() if path.name != ".lock"} == {
        "0": "4711\n",
        "1": "4711\n",
    }


@pytest.mark.parametrize(
    ("job_id", "gpus", "names"),
    [("4711", "", set()), ("", "0", set()), ("4711", "../x,*,-1", set()), ("4711", "77", {"77"})],
)
def test_what_it_does_not_understand_it_leaves_alone(node: NodeTree, job_id: str, gpus: str, names: set[str]) -> None:
    _run(node, "prolog_slurmd", job_id, gpus)
    assert _names(node) == names


def test_what_users_name_things_adds_no_line_and_no_word(node: NodeTree) -> None:
    _run(node, "prolog_slurmd", "4711", "0", SLURM_JOB_USER="a\nb c$(id)", SLURM_JOB_COMMENT="trainwarden:$(touch x)")
    text = (node.files / uuid(MINORS.index(0))).read_text()
    assert text == "4711 user=abcid run_id=touch\n"


def test_a_folder_that_cannot_be_made_fails_no_job(node: NodeTree) -> None:
    node.files.rmdir()
    node.files.write_text("in the way")
    _run(node, "prolog_slurmd", "4711", "0")
