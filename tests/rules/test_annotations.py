"""Every alert carries the labels that route it and the texts that a person needs."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.offenders import assert_none
from tests.rules.rule_files import ALERTS, NAMES, RULES, TITLED_ALERTS
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


# Each text of each alert, with the place of the alert and the annotation that it is.
TEXTS = [(f"{title}: {key}", text) for title, rule in TITLED_ALERTS for key, text in rule["annotations"].items()]


def test_it_has_every_annotation_and_none_that_no_message_shows() -> None:
    assert_none(
        f"{title}: {key} is {'missing' if key in REQUIRED else 'shown by no message'}"
        for title, rule in TITLED_ALERTS
        for key in (REQUIRED - rule["annotations"].keys()) | (rule["annotations"].keys() - REQUIRED - OPTIONAL)
    )
    assert_none(f"{place} is empty" for place, text in TEXTS if not text.strip())


def test_the_summary_is_one_sentence_that_is_always_the_same() -> None:
    assert_none(
        f"{title}: {rule['annotations']['summary']}"
        for title, rule in TITLED_ALERTS
        if not re.fullmatch(r"[A-Z][^.{]+\.", rule["annotations"]["summary"])
    )


def of_one(text: str) -> str:
    """Return a text as it is where what it counts is one."""
    text = re.sub(r"{{-? if gt \$value 1\.0 }}.*?{{ end }}", "", text)
    text = re.sub(r"{{ else -?}}\s*records of .*?{{ end }}", "", text)
    text = re.sub(r"""{{-? (?:printf "%.0f" )?\$value(?: \| printf "%.0f")? -?}}""", "1", text)
    return re.sub(r"{{[^{}]*}}", " x ", text)


def test_a_count_reads_right_where_it_is_one() -> None:
    assert_none(
        f"{place}: {found[0]}"
        for place, text in TEXTS
        if (found := re.search(r"\b1\s+(?!of )(?:\w+\s+)?\w+s\b", of_one(text)))
    )


def test_a_command_takes_what_a_user_may_have_named_as_one_word() -> None:
    """The job id of a record and a submission id are texts of a user; SLURM's own ids are numbers."""

    def unsafe() -> Iterator[str]:
        for title, rule in TITLED_ALERTS:
            text = rule["annotations"].get("action", "")
            named = set(re.findall(r"(?:scancel|ray job \w+) (?:{{ end }})?{{ (\S+) }}", text))
            # That one is SLURM's.
            allowed = {"$labels.job_id"} if rule["alert"] == "TrainJobGpusIdle" else {"."}
            yield from (f"{title}: a command takes {each} as it is" for each in named - allowed)
            if "." in named and 'with reReplaceAll "[^A-Za-z0-9_.-]" "_" $labels.' not in text:
                yield f"{title}: a command takes a label as it is"

    assert_none(unsafe())


def test_its_labels_route_it() -> None:
    def misrouted() -> Iterator[str]:
        for title, rule in TITLED_ALERTS:
            labels = rule["labels"]
            # An empty one takes a label off that only the texts need.
            for label in {label for label, text in labels.items() if text} - LABELS:
                yield f"{title}: label {label} is none of {sorted(LABELS)}"
            if labels["severity"] not in SEVERITIES:
                yield f"{title}: severity {labels['severity']}"
            if labels["remediate"] not in {"true", "false"}:
                yield f"{title}: remediate {labels['remediate']}"
            if labels["remediate"] == "true" and rule["alert"] not in REMEDIABLE:
                yield f"{title}: it restarts runs, which only {sorted(REMEDIABLE)} may"
            # Or the expression brings them, as those of the failure that was found.
            if labels.get("failure_mode", "") not in FAILURE_MODES and "failure_mode" not in rule["expr"]:
                yield f"{title}: failure_mode {labels.get('failure_mode')}"
            if labels.get("subsystem", "monitoring") not in SUBSYSTEMS | OWN_SUBSYSTEMS:
                yield f"{title}: subsystem {labels['subsystem']}"
            if labels.get("error_type", "hang") not in ERROR_TYPES:
                yield f"{title}: error_type {labels['error_type']}"

    assert_none(misrouted())


def test_its_error_type_and_subsystem_are_those_of_one_failure() -> None:
    for_all = {(each.error_type, each.subsystem) for each in FAILURES.values()}
    assert_none(
        f"{title}: no failure has error_type {labels['error_type']} and subsystem {labels.get('subsystem', '(any)')}"
        for title, labels in ((title, rule["labels"]) for title, rule in TITLED_ALERTS)
        if "error_type" in labels and labels.get("subsystem", "") not in OWN_SUBSYSTEMS
        if not any(
            error_type == labels["error_type"] and labels.get("subsystem", subsystem) == subsystem
            for error_type, subsystem in for_all
        )
    )


def test_it_has_an_error_type_or_a_reason_to_have_none() -> None:
    """A label of its own, or one that the expression takes from the failure that was found."""
    assert_none(
        f"{title}: no error_type"
        for title, rule in TITLED_ALERTS
        if "error_type" not in rule["labels"] and not re.search(r"\berror_type\b", rule["expr"])
        if rule["alert"] not in WITHOUT_ERROR_TYPE
    )


def test_no_label_holds_a_template_or_an_address() -> None:
    assert_none(
        f"{title}: {label} {text}"
        for title, rule in TITLED_ALERTS
        for label, text in rule["labels"].items()
        if "{{" in text or "://" in text
    )


def test_no_text_reaches_a_query_unquoted() -> None:
    assert_none(f"{place}: a pattern takes %s or %v" for place, text in TEXTS if re.search(r'=~?"?%[sv]', text))
    assert_none(
        f"{place}: {asked} without %q"
        for place, text in TEXTS
        for asked in re.findall(r"printf \"([^|]*?)\" \$labels", text)
        if "%q" not in asked
    )


def test_a_storm_of_it_stays_cheap() -> None:
    assert_none(
        f"{title}: its texts ask Prometheus, each time that it is evaluated"
        for title, rule in TITLED_ALERTS
        if rule["alert"] not in WITH_QUERIES
        if re.search(r"\|\s*query\b|\bquery \"", " ".join(rule["annotations"].values()))
    )


def test_no_alert_is_excused_in_vain() -> None:
    excused = WITH_QUERIES | REMEDIABLE | DASHBOARDS.keys()
    assert sorted(excused - set(NAMES)) == []
    without = {rule["alert"] for rule in ALERTS if "error_type" not in rule["labels"]}
    assert sorted(WITHOUT_ERROR_TYPE.keys() - without) == []


def test_it_links_to_its_own_runbook_and_to_the_dashboard_of_what_it_is_about() -> None:
    def astray() -> Iterator[str]:
        for title, rule in TITLED_ALERTS:
            runbook, dashboard = (rule["annotations"][key] for key in ("runbook_url", "dashboard"))
            page = f"rules/runbooks/{rule['alert']}.md"
            if runbook != f"https://github.com/trainwarden/trainwarden/blob/main/{page}":
                yield f"{title}: {runbook} is not {page}"
            if dashboard not in (expected := DASHBOARDS.get(rule["alert"], (RUN,))):
                yield f"{title}: {dashboard}, expected one of {expected}"

    assert_none(astray())
