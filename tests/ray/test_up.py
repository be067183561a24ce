"""`trainwarden up` around a command that is a job of a real Ray."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.e2e.running import Up, state
from tests.ray.head import Head
from trainwarden.clients.ray import RayDashboardOverHttp
from trainwarden.clients.ray_jobs import RayJobs, RayReserved
from trainwarden.stack.binaries import Tools

pytestmark = [pytest.mark.ray, pytest.mark.tools, pytest.mark.e2e, pytest.mark.timeout(540)]

# Fails once; each start notes what it may see.
_TRAINING = """
import os, pathlib, sys, time
import trainwarden

starts = pathlib.Path(sys.argv[1])
with trainwarden.run(total_steps=60) as run:
    with starts.open("a") as file:
        file.write(os.environ.get("CUDA_VISIBLE_DEVICES", "unset") + "\\n")
    again = len(starts.read_text().splitlines()) > 1
    for step in range(1, 61):
        time.sleep(0.05)
        if step == 40 and not again:
            raise ConnectionResetError(104, "Connection reset by peer")
        run.step(step, loss=1.0 / step)
"""


@pytest.mark.nightly
def test_a_command_that_is_restarted_has_the_gpus_again_that_are_reserved_for_it(
    head: Head, tools: Tools, tmp_path: Path
) -> None:
    (tmp_path / "train.py").write_text(_TRAINING)
    token = tmp_path / "token"
    token.write_text(head.token)
    cluster = ["--driver", "ray", "--ray-address", head.url, "--ray-token-file", str(token), "--ray-num-gpus", "2"]
    job = Up(tmp_path, *cluster, "--", sys.executable, str(tmp_path / "train.py"), str(tmp_path / "starts"))
    try:
        assert job.end() == 0, job.text[-6000:]
    finally:
        job.process.kill()
    seen = [line.split(",") for line in (tmp_path / "starts").read_text().splitlines()]
    assert [len(set(each)) for each in seen] == [2, 2], seen
    assert {gpu for each in seen for gpu in each} <= {"0", "1", "2", "3"}
    assert state(job) == "succeeded"
    jobs = RayJobs(RayDashboardOverHttp(head.url, 30, token_file=token))
    submitted = sorted(each for each in jobs.all()[1] if each.startswith("r1-"))
    assert len(submitted) == 2
    assert [jobs.reserved(each) for each in submitted] == [RayReserved(num_gpus=2)] * 2
