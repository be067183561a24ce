"""Every alert carries the labels that route it and the texts that a person needs."""

from __future__ import annotations

import re
from typing import Any

from tests.rules.rule_files import ALERTS, NAMES, RULES, of_alerts
from trainwarden.rules.files import SEVERITIES
from trainwarden.taxonomy import ERROR_TYPES, FAILURES, SUBSYSTEMS

REQUIRED = {"summary", "description", "action", "reason", "runbook_url", "dashboard"}
# What the message to people has a line for, besides.
OPTIONAL = {"phase", "duration", "last_log", "instance", "s3", "s3_console"}
OPTIONAL |= {"ranks", "lost_work", "remediation"}
LABELS = {"severity", "failure_mode", "error_type", "subsystem", "remediate"}
FAILURE_MODES = {"crash", "stall", "timeout", "success", "degraded", "blind"}
OWN_SUBSYSTEMS = {"remediator", "exporter", "monitoring"}
# Alerts without an error type, and why none of those of a failure fits.
WITHOUT_ERROR_TYPE = {
    **dict.fromkeys(
        (
            "TrainRunStepsUnreported", "TrainExporterDown", "TrainCollectorFailing", "TrainCollectorStuck",
            "TrainMonitoringBlind", "TrainRunsLeftOut", "TrainLogsBehind", "TrainWatchdog", "TrainDeadMansSwitch",
            "TrainNodeClockSkewed", "TrainNodeClockJumped", "TrainNodeKernelLogUnreadable", "TrainRemediatorBlind",
            "TrainCanaryNotHealed", "TrainRemediatorDown", "TrainRunUnobserved", "TrainRayUnreachable",
        ),
        "what watches a run does not work; what the run does is unknown",
    ),
    **dict.fromkeys(
        ("TrainRunSlow", "TrainRunStraggler", "TrainRunGpusIdle", "TrainJobGpusIdle", "TrainRunGoodputLow"),
        "the run works, and has no error",
    ),
    **dict.fromkeys(
        (
            "TrainRunDegraded", "TrainRunNeverStarted", "TrainRunTwoLiveAttempts", "TrainRankProcessStuck",
            "TrainNodeHungTask",
        ),
        "a state, of which several failures may be the cause",
    ),
    **dict.fromkeys(
        (
            "TrainRunLivelocked", "TrainRemediationIneffective", "TrainRunRestartExhausted", "TrainRemediationStuck",
            "TrainRunNotRecoverable",
        ),
        "about restarts; each failed attempt has an alert with the type of its error",
    ),
    "TrainRunSignalled": "it has that of the signal, which the expression brings",
    "TrainRayJobFailed": "Ray has types of its own, in ray_error_type",
    "TrainRunSucceeded": "a success",
}  # fmt: skip
# Each evaluation expands the annotations of all that fires: a storm of these costs one query or more for each alert.
WITH_QUERIES = {
    "TrainRunFailed",
    "TrainRunTimedOut",
    "TrainRunStalled",
    "TrainRunNeverStarted",
    "TrainRunDegraded",
    "TrainRunSucceeded",
    "TrainRankSilent",
    "TrainRunGpuTaken",
    "TrainRunUnobserved",
}
# Whether a run may be restarted is judged by these alone.
REMEDIABLE = {"TrainRunFailed", "TrainRunTimedOut", "TrainRunStalled", "TrainRunSignalled"}
CLUSTER = "{{ with $labels.cluster }}var-cluster={{ . | urlquery }}&{{ end }}"
ALL = "{{ with $labels.cluster }}?var-cluster={{ . | urlquery }}{{ end }}"
RUN = f"/d/train-run?{CLUSTER}var-run={{{{ $labels.run_id | urlquery }}}}"
NODE = f"/d/train-node?{CLUSTER}var-node={{{{ $labels.node | urlquery }}}}"
FLEET = f"/d/train-fleet{ALL}"
REMEDIATION = f"/d/train-remediation{ALL}"
ONE_RUN_OR_MANY = f"{{{{ if $labels.run_id }}}}{RUN}{{{{ else }}}}{FLEET}{{{{ end }}}}"
# Of the files of nodes all alerts lead to the node, and what is not named here to its run.
OF_NODES = {
    rule["alert"]: (NODE,)
    for file, rule in RULES
    if "alert" in rule and file.name in {"alerts/gpus.yml", "alerts/fabric.yml", "alerts/nodes.yml"}
}
DASHBOARDS = {
    **OF_NODES,
    **dict.fromkeys(
        (
            "TrainExporterDown", "TrainCollectorFailing", "TrainCollectorStuck", "TrainRunsLeftOut",
            "TrainExporterConfigInvalid",
        ),
        (NODE,),
    ),
    **dict.fromkeys(
        (
            "TrainDeadMansSwitch", "TrainRemediatorBlind", "TrainCanaryNotHealed", "TrainRemediatorDown",
            "TrainRemediatorConfigInvalid",
        ),
        (REMEDIATION,),
    ),
    **dict.fromkeys(
        ("TrainS3Unreachable", "TrainSlurmUnreachable", "TrainRayUnreachable", "TrainJobGpusIdle"), (FLEET,)
    ),
    **dict.fromkeys(("TrainLogsBehind", "TrainRunUnobserved"), (ONE_RUN_OR_MANY,)),
    "TrainMonitoringBlind": (RUN, FLEET),  # of one run, or of all exporters
    "TrainWatchdog": ("/d/train-fleet",),  # which has no cluster
}  # fmt: skip


@of_alerts
def test_it_has_every_annotation_and_none_that_no_message_shows(rule: dict[str, Any]) -> None:
    assert REQUIRED <= set(rule["annotations"]) <= REQUIRED | OPTIONAL
    assert all(text.strip() for text in rule["annotations"].values())


@of_alerts
def test_the_summary_is_one_sentence_that_is_always_the_same(rule: dict[str, Any]) -> None:
    assert re.fullmatch(r"[A-Z][^.{]+\.", rule["annotations"]["summary"])


@of_alerts
def test_a_count_reads_right_where_it_is_one(rule: dict[str, Any]) -> None:
    for key, text in rule["annotations"].items():
        of_one = re.sub(r"{{-? if gt \$value 1\.0 }}.*?{{ end }}", "", text)
        of_one = re.sub(r"{{ else -?}}\s*records of .*?{{ end }}", "", of_one)
        of_one = re.sub(r"""{{-? (?:printf "%.0f" )?\$value(?: \| printf "%.0f")? -?}}""", "1", of_one)
        of_one = re.sub(r"{{[^{}]*}}", " x ", of_one)
        assert not re.search(r"\b1\s+(?!of )(?:\w+\s+)?\w+s\b", of_one), key


@of_alerts
def test_a_command_takes_what_a_user_may_have_named_as_one_word(rule: dict[str, Any]) -> None:
    """The job id of a record and a submission id are texts of a user; SLURM's own ids are numbers."""
    text = rule["annotations"]["action"]
    named = set(re.findall(r"(?:scancel|ray job \w+) (?:{{ end }})?{{ (\S+) }}", text))
    assert named <= ({"$labels.job_id"} if rule["alert"] == "TrainJobGpusIdle" else {"."})  # that one is SLURM's
    if "." in named:
        assert 'with reReplaceAll "[^A-Za-z0-9_.-]" "_" $labels.' in text


@of_alerts
def test_its_labels_route_it(rule: dict[str, Any]) -> None:
    labels = rule["labels"]
    # An empty one takes a label off that only the texts need.
    assert {label for label, text in labels.items() if text} <= LABELS
    assert labels["severity"] in SEVERITIES
    assert labels["remediate"] in {"true", "false"}
    assert labels["remediate"] == "false" or rule["alert"] in REMEDIABLE
    # Or the expression brings them, as those of the failure that was found.
    assert labels.get("failure_mode", "") in FAILURE_MODES or "failure_mode" in rule["expr"]
    assert labels.get("subsystem", "monitoring") in SUBSYSTEMS | OWN_SUBSYSTEMS
    assert labels.get("error_type", "hang") in ERROR_TYPES


@of_alerts
def test_its_error_type_and_subsystem_are_those_of_one_failure(rule: dict[str, Any]) -> None:
    if "error_type" not in rule["labels"] or rule["labels"].get("subsystem", "") in OWN_SUBSYSTEMS:
        return
    stated = {key: rule["labels"][key] for key in ("error_type", "subsystem") if key in rule["labels"]}
    assert any(all(getattr(each, key) == text for key, text in stated.items()) for each in FAILURES.values())


@of_alerts
def test_it_has_an_error_type_or_a_reason_to_have_none(rule: dict[str, Any]) -> None:
    """A label of its own, or one that the expression takes from the failure that was found."""
    has = "error_type" in rule["labels"] or re.search(r"\berror_type\b", rule["expr"])
    assert has or rule["alert"] in WITHOUT_ERROR_TYPE


@of_alerts
def test_no_label_holds_a_template_or_an_address(rule: dict[str, Any]) -> None:
    text = " ".join(rule["labels"].values())
    assert "{{" not in text
    assert "://" not in text


@of_alerts
def test_no_text_reaches_a_query_unquoted(rule: dict[str, Any]) -> None:
    for text in rule["annotations"].values():
        assert not re.search(r'=~?"?%[sv]', text)
        for asked in re.findall(r"printf \"([^|]*?)\" \$labels", text):
            assert "%q" in asked


@of_alerts
def test_a_storm_of_it_stays_cheap(rule: dict[str, Any]) -> None:
    queries = re.findall(r"\|\s*query\b|\bquery \"", " ".join(rule["annotations"].values()))
    assert not queries or rule["alert"] in WITH_QUERIES


def test_no_alert_is_excused_in_vain() -> None:
    assert set(NAMES) >= WITH_QUERIES | REMEDIABLE | DASHBOARDS.keys()
    without = {rule["alert"] for rule in ALERTS if "error_type" not in rule["labels"]}
    assert without >= set(WITHOUT_ERROR_TYPE)


@of_alerts
def test_it_links_to_its_own_runbook_and_to_the_dashboard_of_what_it_is_about(rule: dict[str, Any]) -> None:
    assert rule["annotations"]["runbook_url"] == (
        f"https://github.com/trainwarden/trainwarden/blob/main/rules/runbooks/{rule['alert']}.md"
    )
    assert rule["annotations"]["dashboard"] in DASHBOARDS.get(rule["alert"], (RUN,))
