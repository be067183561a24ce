"""Which job has which AMD GPU: by the same label and uuid as the GPU's own series."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.devices.amd import AmdMachine, uuid

pytestmark = pytest.mark.process


def test_the_job_of_a_gpu_is_joined_to_it_by_its_uuid(tmp_path: Path) -> None:
    machine = AmdMachine(tmp_path / "node", gpus=2)
    files = tmp_path / "jobs"
    files.mkdir()
    (files / "1").write_text("1001 user=alice\n")
    (tmp_path / "proc").mkdir()
    where = (f"--collector.gpu-jobs.path={files}", f"--path.procfs={tmp_path / 'proc'}")
    page = machine.page("--collector.gpu-jobs", *where)
    own = f'gpu="1",uuid="{uuid(1)}"'
    assert re.search(rf'^slurm_gpu_job_info{{{own},job_id="1001",.*user="alice"', page, re.MULTILINE)
    assert f"gpu_power_watts{{{own}}} " in page
