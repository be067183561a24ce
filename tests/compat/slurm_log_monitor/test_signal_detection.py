"""A signal as the page shows one: pattern, state, actions, metadata, groups."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.compat.slurm_log_monitor.user import User

pytestmark = pytest.mark.seed("Monitoring and Automatic Restart", "Signal Detection")

SIGNALS = r"""
class_name: SlurmLogMonitor
log_signals:
  - name: cuda_oom
    pattern: 'out of memory on device (?P<device>\d+): wanted (?P<size>[\d.]+\s*[KMGT]iB)'
    pattern_type: regex
    state:
      class_name: CrashState
    actions:
      - class_name: ErrorNoteAction
        note: error
    metadata:
      severity: critical
      error_type: oom
    extract_groups:
      allocation_size: size
"""
LOG = " iteration     2001/  500000 | lm loss: 2.61E+00 |\nout of memory on device 2: wanted 4.50 GiB, had 1 GiB\n"


def test_the_pattern_is_found_with_its_metadata_and_the_group_that_is_extracted(user: User) -> None:
    found = user.scan(LOG, user.file("config/monitoring/mine.yaml", SIGNALS))
    assert user.said == ""
    assert (found["signal"], found["error_type"], found["severity"]) == ("cuda_oom", "oom", "critical")
    assert found["fields"] == {"allocation_size": "4.50 GiB"}
    assert found["evidence"][0]["line"] == 2


def test_a_line_that_the_pattern_does_not_match_is_no_failure(user: User) -> None:
    mine = user.file("config/monitoring/mine.yaml", SIGNALS)
    assert user.scan("memory on device 2 is fine\n", mine)["error_type"] == "none"


def test_the_error_type_of_the_metadata_is_what_the_advice_follows(user: User) -> None:
    advised = {}
    for kind in ("oom", "communication", "license"):
        mine = user.file(f"config/monitoring/{kind}.yaml", SIGNALS.replace("error_type: oom", f"error_type: {kind}"))
        found = user.scan(LOG, mine)
        advised[found["error_type"]] = found["action"]
    assert advised == {"oom": "stop", "communication": "restart", "license": "stop"}


@pytest.mark.process
def test_the_exporter_finds_it_in_the_log_of_a_run(user: User) -> None:
    page = user.exported(user.file("config/monitoring/mine.yaml", SIGNALS), LOG)
    assert page.signals("llama") == {"cuda_oom": "oom"}
