"""Trainings that were written for the S3 heartbeat monitor: a shell script and a Python script, unchanged."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.compat.s3_heartbeat_monitor.aws_cli import write_aws
from tests.compat.s3_heartbeat_monitor.bucket import PREFIX, RUN, Bucket
from tests.compat.s3_heartbeat_monitor.conftest import PROGRAM, PROGRAMS, Command

TITLE = "Production Training Monitor"
LOOK = ("monitor", "--run-id", RUN, "--once", "--json")


@pytest.mark.seed(TITLE, "Shell Scripts")
@pytest.mark.process
def test_a_shell_script_that_writes_its_error(
    bucket: Bucket, process: Command, trainwarden: Command, place: Path
) -> None:
    path = f"{write_aws(place / 'bin')}:{os.environ['PATH']}"
    variables = {"BUCKET": bucket.name, "PREFIX": PREFIX, "RUN_ID": RUN, "PATH": path}
    failed = process(str(PROGRAMS / "train.sh"), "/no/such/dataset", **variables)
    assert (failed.status, failed.out) == (1, "ERROR: dataset /no/such/dataset is not on this disk\n")
    run = trainwarden(*LOOK).run
    assert (run["status"], run["phase"]) == ("FAILED", "load")
    assert run["reason"] == "Error: dataset /no/such/dataset is not on this disk"
    bucket.remove(RUN, "_error")
    assert process(str(PROGRAMS / "train.sh"), str(place), **variables).status == 0
    assert trainwarden(*LOOK).run["status"] == "SUCCEEDED"


@pytest.mark.seed(TITLE, "Python Scripts")
@pytest.mark.process
def test_a_python_script_that_handles_its_error_or_completes(
    bucket: Bucket, process: Command, trainwarden: Command
) -> None:
    """Its completion marker is written at every exit, after an error too."""
    argv = (str(PROGRAM.with_name("python")), str(PROGRAMS / "train.py"), RUN, bucket.name)
    assert process(*argv, "CUDA out of memory").status == 1
    assert bucket.names(RUN) == {"metadata.json", "progress.json", "_error", "_complete"}
    run = trainwarden(*LOOK).run
    assert (run["status"], run["reason"], run["step"]) == ("FAILED", "Error: CUDA out of memory", 2)
    bucket.remove(RUN, "_error")
    assert process(*argv, "").status == 0
    run = trainwarden(*LOOK).run
    assert (run["status"], run["reason"], run["step"]) == ("SUCCEEDED", "Training complete", 3)
