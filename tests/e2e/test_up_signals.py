"""`trainwarden up` with a user's own signals: from a line of the log to the message and the restart."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import pytest

from tests.e2e.running import starts, state

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.running import Up

pytestmark = [pytest.mark.e2e, pytest.mark.tools, pytest.mark.timeout(540)]

# One file for both services. No policy that it extends restarts after a RuntimeError.
JOINT = """
defaults:
  - /monitoring: megatron_production
  - /restart: megatron_conservative
  - _self_
log_signals:
  - name: license_lost
    pattern: 'license server (?P<host>\\S+) refused: (?P<why>.+)'
    state: {class_name: CrashState}
    metadata: {error_type: license, severity: critical}
    extract_groups: {server: host, reason: why}
policies:
  - mode: crash
    implementation: {class_name: SelectiveRestartPolicy, max_retries: 1, restart_on_signals: [license_lost]}
"""

_TRAINING = """
import os, pathlib, sys, time
import trainwarden

here = pathlib.Path(sys.argv[1])
with trainwarden.run(total_steps=40) as run:
    with (here / "starts").open("a") as starts:
        starts.write("1\\n")
    for step in range(1, 41):
        time.sleep(0.02)
        run.step(step, loss=1.0 / step)
        if step == 20 and os.environ["TRAINWARDEN_ATTEMPT_KEY"].endswith(":0"):
            print("ERROR license server lic1 refused: no seats left", flush=True)
            raise RuntimeError("cannot go on")
"""


def test_a_users_signal_reaches_the_message_with_its_fields_and_restarts_by_its_name(
    up: Callable[..., Up], tmp_path: Path
) -> None:
    settings = tmp_path / "settings"
    settings.mkdir()
    (settings / "joint.yaml").write_text(JOINT)
    (tmp_path / "train.py").write_text(_TRAINING)
    job = up(
        *("--policy", os.path.relpath(settings / "joint.yaml")),
        *("--", sys.executable, str(tmp_path / "train.py"), str(tmp_path)),
        TRAINWARDEN_SIGNALS=str(settings / "joint.yaml"),
    )
    assert job.end() == 0, job.text[-6000:]
    assert (len(starts(tmp_path)), state(job)) == (2, "succeeded")
    message = job.text.partition("TrainRunFailed · r1")[2].partition("[Runbook]")[0]
    assert "server=lic1, reason=no seats left" in message
    assert "license" in message
    assert "license_lost" in job.text.partition("decision")[2].partition("\n")[0]
