"""`_error`: where it lies, what it holds, and what makes one."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.compat.s3_heartbeat_monitor.bucket import PREFIX, RUN, Bucket
from tests.compat.s3_heartbeat_monitor.conftest import PROGRAM, Command

pytestmark = pytest.mark.seed("Production Training Monitor", "Error Sentinels")

TRACE = """\
Traceback (most recent call last):
  File "train.py", line 41, in <module>
    main()
RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB
"""


def test_location_is_the_folder_of_the_run(bucket: Bucket, trainwarden: Command) -> None:
    bucket.client.put_object(Bucket=bucket.name, Key=f"{PREFIX}/{RUN}/_error", Body=b"lost")
    assert trainwarden("monitor", "--run-id", RUN, "--once", "--json").run["status"] == "FAILED"


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("CUDA out of memory\n", "Error: CUDA out of memory"),
        (f"CUDA out of memory\n{TRACE}", "Error: CUDA out of memory"),
        (TRACE, "Error: RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB"),
    ],
    ids=["message", "message and trace", "trace"],
)
def test_content_is_a_message_and_a_stack_trace(
    bucket: Bucket, trainwarden: Command, content: str, reason: str
) -> None:
    bucket.put(RUN, "_error", content)
    run = trainwarden("monitor", "--run-id", RUN, "--once", "--json").run
    assert run["reason"] == reason
    assert "Reduce" in run["action"], "the cause is known from either"


CRASHES = """
import trainwarden
with trainwarden.run({run!r}) as run:
    run.step(7, loss=1.0)
    raise RuntimeError("shard 7 is odd")
"""


@pytest.mark.process
def test_trigger_is_any_unhandled_exception_of_a_training_with_the_library(
    bucket: Bucket, process: Command, trainwarden: Command, place: Path
) -> None:
    (place / "train.py").write_text(CRASHES.format(run=RUN))
    ran = process(str(PROGRAM.with_name("python")), "train.py")
    assert ran.status == 1
    content = bucket.read(RUN, "_error")
    assert "shard 7 is odd" in content
    assert "Traceback" in content
    assert trainwarden("monitor", "--run-id", RUN, "--once", "--json").run["status"] == "FAILED"


@pytest.mark.process
def test_trigger_is_an_explicit_error_of_a_script(bucket: Bucket, process: Command) -> None:
    assert process(str(PROGRAM), "fail", "dataset is not there", TRAINWARDEN_RUN_ID=RUN).status == 0
    assert "dataset is not there" in bucket.read(RUN, "_error")
