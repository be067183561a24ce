"""The folder of a run in S3, and the `aws` commands that users look at it with."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

import trainwarden as library
from tests.compat.s3_heartbeat_monitor.aws_cli import write_aws
from tests.compat.s3_heartbeat_monitor.bucket import LAST_LINE, LOG, RUN, Bucket
from tests.compat.s3_heartbeat_monitor.conftest import PROGRAM, Command

TITLE = "Production Training Monitor"
structure = pytest.mark.seed(TITLE, "S3 Structure for Monitoring")
commands = pytest.mark.seed(TITLE, "Quick S3 Commands")
PAGE = Path(__file__).parents[3] / "docs/from-s3-monitor.md"
TRAINS = (
    f"import trainwarden; run = trainwarden.run(); print('starting'); run.step(1, loss=2.0); print({LAST_LINE!r}); "
)

Shell = Callable[[str], str]


@pytest.fixture
def shell(bucket: Bucket, process: Command, place: Path) -> Shell:
    """What a line of a shell prints, with `aws` and the name of the bucket in $BUCKET."""
    path = f"{write_aws(place / 'bin')}:{os.environ['PATH']}"

    def run(line: str) -> str:
        return process("bash", "-c", line, PATH=path, BUCKET=bucket.name).out

    return run


@structure
@pytest.mark.process
@pytest.mark.parametrize(
    ("end", "status", "sentinel", "not_there"),
    [("", 0, "_complete", "_error"), ("raise RuntimeError('lost')", 1, "_error", "_complete")],
    ids=["succeeded", "failed"],
)
def test_a_run_of_the_library_has_the_files_of_the_structure(
    bucket: Bucket, process: Command, end: str, status: int, sentinel: str, not_there: str
) -> None:
    """With its output, which `exec` copies."""
    argv = (str(PROGRAM), "exec", "--run-id", RUN, "--", str(PROGRAM.with_name("python")), "-c", TRAINS + end)
    assert process(*argv).status == status
    names = bucket.names(RUN)
    assert {"metadata.json", "progress.json", LOG, sentinel} <= names
    assert not_there not in names
    assert LAST_LINE in bucket.read(RUN, LOG)


@structure
@pytest.mark.parametrize("missing", ["metadata.json", "progress.json", LOG])
def test_each_file_but_one_heartbeat_may_be_missing(bucket: Bucket, trainwarden: Command, missing: str) -> None:
    bucket.beat()
    bucket.put(RUN, LOG, "a line\n")
    bucket.remove(RUN, missing)
    assert trainwarden("monitor", "--run-id", RUN, "--once", "--json").run["status"] == "RUNNING"


@commands
@pytest.mark.process
def test_aws_s3_ls_and_cp_show_a_run_of_the_library(bucket: Bucket, shell: Shell, place: Path) -> None:
    with (
        pytest.raises(RuntimeError),
        library.run(RUN, dir=place / "runs", s3=f"s3://{bucket.name}/training-runs") as run,
    ):
        run.step(1500, loss=2.134)
        raise RuntimeError("CUDA out of memory")
    assert shell("aws s3 ls s3://$BUCKET/training-runs/ | grep mistral | tail -5").split() == ["PRE", f"{RUN}/"]
    listed = shell(f"aws s3 ls s3://$BUCKET/training-runs/{RUN}/")
    assert {"metadata.json", "progress.json", "_error"} <= {line.split()[-1] for line in listed.splitlines()}
    metadata = json.loads(shell(f"aws s3 cp s3://$BUCKET/training-runs/{RUN}/metadata.json -"))
    assert (metadata["run_id"], metadata["status"]) == (RUN, "failed")
    assert "CUDA out of memory" in shell(f"aws s3 cp s3://$BUCKET/training-runs/{RUN}/_error -")


@commands
@pytest.mark.process
def test_runs_finds_the_id_of_a_run(bucket: Bucket, trainwarden: Command, process: Command) -> None:
    bucket.beat()
    bucket.put("llama-20250701-080000", "_complete", "")
    argv = ("runs", "--s3")
    ran = trainwarden(*argv)
    assert ran.status == 0
    rows = {line.split()[0]: line.split()[1:] for line in ran.out.splitlines()[1:]}
    assert rows[RUN][:4] == ["running", "train", "-", "1500/5000"]
    assert rows["llama-20250701-080000"][0] == "succeeded"
    assert process(str(PROGRAM), *argv).out.splitlines()[0] == ran.out.splitlines()[0]


@commands
@pytest.mark.process
def test_status_shows_the_metadata_of_a_run_and_json_for_scripts(
    bucket: Bucket, trainwarden: Command, process: Command
) -> None:
    bucket.beat(metadata=700, progress=700)
    bucket.put(RUN, LOG, f"{LAST_LINE}\n")
    place = f"s3://{bucket.name}/training-runs"
    ran = process(str(PROGRAM), "status", RUN, "--s3", place)
    assert ran.status == 1
    assert ran.out.splitlines()[0].split() == [RUN, "TIMED_OUT", "training"]
    assert LAST_LINE in ran.out
    document = trainwarden("status", RUN, "--s3", place, "--json").document
    assert (document["run_id"], document["status"], document["step"]) == (RUN, "TIMED_OUT", 1500)
    looked = trainwarden("monitor", "--run-id", RUN, "--once", "--json").run
    assert (looked["status"], looked["reason"]) == (document["status"], document["reason"])


@commands
def test_a_run_that_does_not_exist_is_named_with_those_like_it(bucket: Bucket, trainwarden: Command) -> None:
    bucket.beat()
    for command in (("status", "mistral-2025", "--s3"), ("monitor", "--once", "--run-id", "mistral-2025")):
        ran = trainwarden(*command)
        assert ran.status == 2
        assert f"near names: {RUN}" in ran.err


@commands
@pytest.mark.xfail(strict=True, raises=AssertionError, reason="runs calls a run running that monitor calls timed out")
def test_runs_and_monitor_agree(bucket: Bucket, trainwarden: Command) -> None:
    bucket.beat(metadata=700, progress=700)
    assert trainwarden("monitor", "--run-id", RUN, "--once", "--json").run["status"] == "TIMED_OUT"
    (line,) = trainwarden("runs", "--s3").out.splitlines()[1:]
    assert re.match(r"timed.?out$", line.split()[1], re.IGNORECASE)


@commands
@pytest.mark.xfail(
    strict=True,
    raises=AssertionError,
    reason="no command shows the last lines of a run's log: the page that migrating users read has none",
)
def test_one_command_shows_the_last_twenty_lines_of_a_log(bucket: Bucket, trainwarden: Command) -> None:
    """The command is the one that the page for migrating users has beside `tail -20`."""
    bucket.put(RUN, LOG, "".join(f"line {number}\n" for number in range(100)))
    rows = [row for row in PAGE.read_text(encoding="utf-8").splitlines() if row.startswith("|") and "tail -20" in row]
    assert len(rows) == 1
    found = re.search(r"`trainwarden ([^`]*)`", rows[0])
    assert found
    words = found[1].replace("s3://my-bucket", f"s3://{bucket.name}").split()
    out = trainwarden(*(RUN if word == "RUN" else word for word in words)).out
    assert [f"line {number}" in out.splitlines() for number in (79, 80, 99)] == [False, True, True]
