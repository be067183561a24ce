"""rules/tests/healthy.yml has every metric that an alert reads, so that no alert is silent there for want of data."""

from __future__ import annotations

import re
from collections import defaultdict

from tests.rules import promql
from tests.rules.cases import metrics_of, read_tests
from tests.rules.rule_files import ALERTS, ROOT, RULES
from trainwarden_exporter.docs import METRICS

# Shown only while something is wrong, or is over.
ABSENT = {
    "gpu_error_info": "of a GPU that is down",
    "gpu_driver_error_info": "of a driver that fails",
    "kernel_oom_kill_timestamp_seconds": "of a process that was killed",
    "clock_jump_last_timestamp_seconds": "of a clock that was set",
    "training_failure_info": "of a failed run",
    "training_failure_message_info": "of a failed run",
    "training_failure_timestamp_seconds": "of a failed run",
    "training_run_end_timestamp_seconds": "of a run that has ended",
    "training_run_s3_info": "of a record that is in S3 alone",
    "training_silent_ranks_timestamp_seconds": "of ranks that are silent",
    "training_missing_ranks": "of ranks that have not begun",
    "training_superseded_attempt_info": "of an older attempt that still lives",
    "training_rank_gpu_taken_bytes": "of a GPU that others used before training",
    "training_log_state_timestamp_seconds": "of a run whose log states a failure",
    "training_phase_inferred": "of a run whose command reports no phase",
    "trainwarden_remediator_escalation_info": "of a run that the remediator has given up",
    "trainwarden_remediator_refusal_info": "of a failure that a policy does not restart",
    "trainwarden_remediator_incident_timestamp_seconds": "of a restart under way",
    "trainwarden_remediator_alert_pending_timestamp_seconds": "of an alert without a decision",
    "trainwarden_collector_stuck": "of a call that does not return",
}


def read_by_alerts() -> set[str]:
    """The metrics at the bottom of all alerts, through every recording."""
    recorded: dict[str, list[str]] = defaultdict(list)
    for _, rule in RULES:
        if "record" in rule:
            recorded[rule["record"]].append(str(rule["expr"]))
    left, found = [str(rule["expr"]) for rule in ALERTS], set()
    while left:
        for name in promql.metrics(promql.parse(left.pop())):
            if name not in found:
                found.add(name)
                left += recorded.get(name, [])
    names = {name for name in found if re.fullmatch(r"\w+", name)}
    patterns = {name for name in found if not re.fullmatch(r"[\w:]+", name)}
    return names | {name for name in METRICS if any(re.fullmatch(pattern, name) for pattern in patterns)}


def test_the_healthy_cluster_has_every_metric_that_an_alert_reads() -> None:
    ((_, test),) = [(file, test) for file, test in read_tests(ROOT / "rules/tests") if file == "healthy"]
    shown = metrics_of(test)
    missing = read_by_alerts() - shown - ABSENT.keys() - {"ALERTS"}
    assert sorted(missing) == [], "add them to rules/tests/healthy.yml, with healthy values"
    assert not shown & ABSENT.keys()


def test_what_may_be_absent_is_read_by_an_alert() -> None:
    assert sorted(ABSENT.keys() - read_by_alerts()) == []
