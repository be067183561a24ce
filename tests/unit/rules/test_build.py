"""The rule files with a team's own settings: what changes, what stays, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cases import cases
from trainwarden.errors import UsageError
from trainwarden.rules.build import Rules, write
from trainwarden.rules.command import main

RULES = """\
# A head.
groups:
  - name: gpus
    interval: 30s
    rules:
      - record: gpu:hot:bool
        expr: gpu_temperature_celsius > bool 85  # values: gpu.celsius
      - alert: TrainGpuHot
        expr: |
          avg_over_time(gpu:hot:bool[5m])  # values: gpu.window
            > 0.5  # values: gpu.share
        for: 2m  # values: gpu.wait
        labels: {severity: warning, remediate: "false"}
        annotations: {runbook_url: https://example.com/TrainGpuHot.md, dashboard: /d/train-node}
  - name: gpus_lost
    interval: 30s
    rules:
      - alert: TrainGpuLost
        expr: gpu_up == 0
        labels: {severity: critical, remediate: "false"}
        annotations: {runbook_url: https://example.com/TrainGpuLost.md, dashboard: /d/train-node}
"""
VALUES = """\
values:
  gpu.celsius: {default: 85, unit: celsius, least: 20, most: 120, meaning: hotter is hot}
  gpu.window: {default: 5m, unit: duration, meaning: looked at}
  gpu.share: {default: 0.5, unit: ratio, meaning: of the time}
  gpu.wait: {default: 2m, unit: duration, least: 30s, meaning: and for as long}
"""


def folder_in(tmp_path: Path) -> Path:
    alerts = tmp_path / "rules/alerts"
    alerts.mkdir(parents=True)
    (alerts / "gpus.yml").write_text(RULES)
    (tmp_path / "rules/values.yml").write_text(VALUES)
    return tmp_path / "rules"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return folder_in(tmp_path)


def built(folder: Path, settings: str, kind: str = "prometheus") -> dict[str, str]:
    file = folder.parent / "mine.yml"
    file.write_text(settings)
    return dict(Rules(file, folder).written(kind))


def groups(folder: Path, settings: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = yaml.safe_load(built(folder, settings)["alerts/gpus.yml"])["groups"]
    return found


def refusal(folder: Path, settings: str) -> str:
    with pytest.raises(UsageError) as refused:
        built(folder, settings)
    return str(refused.value).replace(f"{folder.parent}/", "")


def test_without_settings_the_files_are_those_of_the_bundle(folder: Path) -> None:
    assert dict(Rules(None, folder).written("prometheus")) == {"alerts/gpus.yml": RULES}
    assert built(folder, "values: {}\n") == {"alerts/gpus.yml": RULES}


def test_the_command_prints_what_is_changed_of_each_alert(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "mine.yml"
    file.write_text(
        "labels: {team: training}\n"
        "alerts: {TrainGpuLost: {enabled: false}, TrainGpuHot: {severity: critical, for: 10m, labels: {desk: night}}}\n"
    )
    assert main(["build", "--values", str(file), "--out", str(tmp_path / "out")]) == 0
    assert capsys.readouterr().out.splitlines()[:-1] == [
        "TrainGpuLost: left out",
        "TrainGpuHot: severity critical instead of warning",
        "TrainGpuHot: for 10m instead of 5m",
        "TrainGpuHot: label desk=night",
        "all alerts: label team=training",
    ]


def test_a_number_is_changed_where_its_name_stands_and_nothing_else(folder: Path) -> None:
    text = built(folder, "values: {gpu.celsius: 80, gpu.window: 10m, gpu.share: 0.9, gpu.wait: 1m30s}")[
        "alerts/gpus.yml"
    ]
    expected = RULES.replace("85  #", "80  #").replace("[5m]", "[10m]").replace("0.5  #", "0.9  #")
    assert text == expected.replace("for: 2m", "for: 1m30s")


def test_labels_and_links_are_added_to_every_alert(folder: Path) -> None:
    settings = "labels: {team: ml}\nrunbooks: https://wiki.example.com/r/\ndashboards: https://grafana.example.com\n"
    for name, group in zip(("TrainGpuHot", "TrainGpuLost"), groups(folder, settings), strict=True):
        alert = group["rules"][-1]
        assert alert["labels"]["team"] == "ml"
        assert alert["annotations"] == {
            "runbook_url": f"https://wiki.example.com/r/{name}.md",
            "dashboard": "https://grafana.example.com/d/train-node",
        }
    assert "labels" not in groups(folder, settings)[0]["rules"][0], "a recording has another meaning with a label"


def test_an_alert_is_changed_or_left_out_by_its_name(folder: Path) -> None:
    settings = """\
values: {gpu.celsius: 70}
alerts:
  TrainGpuHot: {severity: info, for: 10m, labels: {team: hardware}}
  TrainGpuLost: {enabled: false}
"""
    (left,) = groups(folder, settings)
    assert left["rules"][0]["expr"] == "gpu_temperature_celsius > bool 70"
    assert left["rules"][1]["for"] == "10m"
    assert left["rules"][1]["labels"] == {"severity": "info", "remediate": "false", "team": "hardware"}


def test_a_file_of_which_nothing_is_left_is_not_written(folder: Path) -> None:
    (folder / "alerts/lost.yml").write_text(
        'groups: [{name: lost, rules: [{alert: A, expr: "1", labels: {}, annotations: {dashboard: /d/a}}]}]'
    )
    assert built(folder, "alerts: {A: {enabled: false}}").keys() == {"alerts/gpus.yml"}


def test_an_object_of_the_operator_holds_the_groups(folder: Path) -> None:
    settings = "kubernetes: {namespace: monitoring, labels: {release: kube-prometheus-stack}}\n"
    ((path, text),) = built(folder, settings, "prometheusrule").items()
    assert path == "trainwarden-alerts-gpus.yaml"
    made = yaml.safe_load(text)
    assert (made["apiVersion"], made["kind"]) == ("monitoring.coreos.com/v1", "PrometheusRule")
    assert made["metadata"] == {
        "name": "trainwarden-alerts-gpus",
        "namespace": "monitoring",
        "labels": {"app.kubernetes.io/name": "trainwarden", "release": "kube-prometheus-stack"},
    }
    assert made["spec"]["groups"][0]["rules"][1]["alert"] == "TrainGpuHot"
    assert "# values: gpu.share" in text, "a comment within an expression stays"


def test_mimir_gets_a_namespace_for_each_file(folder: Path) -> None:
    ((_, text),) = built(folder, "labels: {team: ml}", "mimir").items()
    made = yaml.safe_load(text)
    assert made["namespace"] == "trainwarden-alerts-gpus"
    assert [group["name"] for group in made["groups"]] == ["gpus", "gpus_lost"]


@cases(
    ("settings", "expected"),
    [
        ("valeus: {}", "mine.yml: line 1: key valeus: there is no such key, expected values?"),
        ("values: {gpu.celsus: 80}", "key values.gpu.celsus: there is no such key, expected gpu.celsius?"),
        ("values: {gpu.celsius: hot}", "key values.gpu.celsius: 'hot', expected degrees Celsius from 20 to 120"),
        ("values: {gpu.celsius: 200}", "key values.gpu.celsius: '200', expected degrees Celsius from 20 to 120"),
        ("values: {gpu.celsius: -1}", "key values.gpu.celsius: '-1', expected degrees Celsius from 20 to 120"),
        ("values: {gpu.share: 50}", "key values.gpu.share: '50', expected a number from 0 to 1"),
        ("values: {gpu.window: 300}", "key values.gpu.window: '300', expected a duration such as 5m"),
        ("values: {gpu.wait: 5s}", "key values.gpu.wait: '5s', expected a duration such as 5m of at least 30"),
        ("values: {gpu.wait: 0s}", "key values.gpu.wait: '0s', expected a duration such as 5m of at least 30"),
        ("values: {gpu.celsius: [80]}", "key values.gpu.celsius: a list, expected degrees Celsius"),
        ("labels: {severity: info}", "key labels.severity: 'info', expected another name than 'severity'"),
        ("labels: {device: a}", "key labels.device: 'a', expected another name than 'device'"),
        ("labels: {run_id: a}", "key labels.run_id: 'a', expected another name than 'run_id'"),
        ("labels: {a-b: c}", "key labels.a-b: 'c', expected letters, digits and _ in a label's name"),
        ("labels: {a: '{{ $value }}'}", "expected a text that is always the same"),
        ("alerts: {TrainGpuHott: {}}", "key alerts.TrainGpuHott: there is no such key, expected TrainGpuHot?"),
        ("alerts: {TrainGpuHot: {severity: bad}}", "'bad', expected one of critical, warning, info, none"),
        ("alerts: {TrainGpuHot: {for: 5}}", "key alerts.TrainGpuHot.for: '5', expected a duration such as 5m"),
        # Prometheus refuses a file with one of centuries, and reads 080 as octal.
        ("alerts: {TrainGpuHot: {for: 300y}}", "TrainGpuHot.for: '300y', expected a duration such as 5m, of a year at"),
        ("values: {gpu.wait: 999999999y}", "gpu.wait: '999999999y', expected a duration such as 5m of at least 30, of"),
        ("values: {gpu.celsius: 080}", "key values.gpu.celsius: '080', expected degrees Celsius from 20 to 120"),
        ("alerts: {TrainGpuHot: {for: 30m1h}}", "'30m1h', expected a duration such as 5m"),
        ("values: {gpu.wait: 30s1m}", "'30s1m', expected a duration such as 5m"),
        ("alerts: {TrainGpuHot: {enable: no}}", "there is no such key, expected enabled?"),
        ("runbooks: wiki", "key runbooks: 'wiki', expected an address such as https://wiki.example.com/runbooks"),
        ("runbooks: 'https://wiki.example.com/?page='", "key runbooks: 'https://wiki.example.com/?page=', expected an"),
        (
            "runbooks: 'https://me:hunter2@wiki.example.com'",
            "key runbooks: an address with @, expected one without user",
        ),
        ("dashboards: 'me:hunter2@wiki.example.com'", "key dashboards: an address with @, expected one"),
        ("dashboards: 'https://grafana.example.com/#x'", "key dashboards: 'https://grafana.example.com/#x', expected"),
        ("kubernetes: {namespace: A B}", "key kubernetes.namespace: 'A B', expected the name of a namespace"),
        ("kubernetes: {namespace: a.b}", "key kubernetes.namespace: 'a.b', expected the name of a namespace"),
        ("kubernetes: {labels: {release: a/b}}", "key kubernetes.labels.release: 'a/b', expected a label's value"),
        ("kubernetes: {labels: {a b: c}}", "key kubernetes.labels.a b: 'c', expected a label's name as Kubernetes"),
    ],
    folder=folder_in,
)
def test_what_is_wrong_is_named_with_what_was_expected(folder: Path, settings: str, expected: str) -> None:
    refused = refusal(folder, settings)
    assert expected in refused
    assert "hunter2" not in refused


@cases(
    ("values", "expected"),
    [
        (
            "goodput.target: 0.8",
            "goodput.target: '0.8', expected goodput.burn_fast beside it, below 5, or no run loses",
        ),
        ("goodput.burn_fast: 10", "goodput.burn_fast: '10', expected below 10, or no run loses"),
        (
            "goodput.target: 0.5, goodput.burn_fast: 1.5, goodput.burn_slow: 2",
            "goodput.burn_slow: '2', expected below 2",
        ),
    ],
)
def test_numbers_by_which_an_alert_can_never_fire_are_refused(tmp_path: Path, values: str, expected: str) -> None:
    assert expected in refused_by_the_bundle(tmp_path, f"values: {{{values}}}")


def refused_by_the_bundle(folder: Path, settings: str) -> str:
    file = folder / "mine.yml"
    file.write_text(settings)
    with pytest.raises(UsageError) as refused:
        Rules(file)
    return str(refused.value)


@cases(
    ("settings", "expected"),
    [
        (
            "alerts: {TrainNodeHungTask: {for: 15m}}",
            "TrainNodeHungTask.for: '15m', expected less than the 900 s for which it is shown (node.hung_task_",
        ),
        (
            "{values: {scheduler.ended_shown_seconds: 10m}, alerts: {TrainRayJobFailed: {for: 10m}}}",
            "'10m', expected less than the 600 s",
        ),
        (
            "alerts: {TrainRunSucceeded: {for: 2h}}",
            "TrainRunSucceeded.for: '2h', expected less than the 3600 s for which it is shown (run.succeeded_shown_",
        ),
        # Its condition selects from a recording that ends.
        (
            "alerts: {TrainRunFailed: {for: 6h}}",
            "TrainRunFailed.for: '6h', expected less than the 21600 s for which it is shown (run.failed_shown_",
        ),
        # The job ends then.
        (
            "alerts: {TrainSlurmTimeLimitNear: {for: 1h}}",
            "expected less than the 3600 s for which it is shown (scheduler.time_limit_seconds)",
        ),
        (
            "alerts: {TrainGpuXidFatal: {for: 30m}}",
            "expected less than the 1800 s for which it is shown (gpu.xid_shown_",
        ),
        ("values: {pace.gpus_idle_share: 1}", "pace.gpus_idle_share: '1', expected a number from 0.001 to 0.99"),
        ("values: {scheduler.time_limit_ratio: 0}", "'0', expected a number from 0.01 to 1"),
        ("values: {goodput.target: 0.995}", "'0.995', expected a number from 0.1 to 0.99"),
    ],
)
def test_a_wait_or_a_share_by_which_an_alert_can_never_fire_is_refused(
    tmp_path: Path, settings: str, expected: str
) -> None:
    assert expected in refused_by_the_bundle(tmp_path, settings)


@cases(
    "settings",
    [
        "{TrainNodeHungTask: {for: 14m}}",
        "{TrainNodeHungTask: {for: 0s}}",
        "{TrainRunSucceeded: {for: 30m}}",
        "{TrainRunFailed: {for: 5h}}",
        # Of the conditions these have no end.
        "{TrainRunTimedOut: {for: 7h}}",
        "{TrainRunStalled: {for: 7h}}",
        # What lasts has no end.
        "{TrainGpuRecoveryWanted: {for: 3h}}",
        # A part of its rules has no such end.
        "{TrainRunNonFinite: {for: 7h}}",
        # Its value is for how long after its end the alert goes on.
        "{TrainRunLivelocked: {for: 1h}}",
    ],
)
def test_a_wait_by_which_an_alert_can_fire_is_taken(tmp_path: Path, settings: str) -> None:
    (tmp_path / "mine.yml").write_text(f"alerts: {settings}")
    assert Rules(tmp_path / "mine.yml").settings.alerts


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (
            "gpu.xid_shown_seconds: 2h",
            "gpu.xid_shown_seconds: '2h', expected below identity.fault_seconds (2100), or the alert loses its run",
        ),
        (
            "identity.fault_seconds: 15m",
            "identity.fault_seconds: '15m', expected above gpu.xid_shown_seconds (1800)",
        ),
    ],
)
def test_a_fault_that_is_shown_for_longer_than_its_run_is_known_is_refused(
    tmp_path: Path, values: str, expected: str
) -> None:
    assert expected in refused_by_the_bundle(tmp_path, f"values: {{{values}}}")
    (tmp_path / "mine.yml").write_text("values: {gpu.xid_shown_seconds: 2h, identity.fault_seconds: 125m}")
    assert Rules(tmp_path / "mine.yml").settings.values["identity.fault_seconds"] == "7500"


@cases(
    ("values", "expected"),
    [
        ("hang.gpu_idle_utilization: 0.9", "'0.9', expected hang.gpu_busy_utilization (0.8) at most"),
        ("hang.gpu_busy_utilization: 0.1, hang.gpu_idle_utilization: 0.2", "'0.2', expected hang.gpu_busy_utilization"),
        ("hang.gpu_idle_utilization: 0.8", None),
    ],
)
def test_no_gpu_is_idle_and_busy_at_once(tmp_path: Path, values: str, expected: str | None) -> None:
    if expected is not None:
        assert expected in refused_by_the_bundle(tmp_path, f"values: {{{values}}}")
    else:
        (tmp_path / "mine.yml").write_text(f"values: {{{values}}}")
        assert Rules(tmp_path / "mine.yml").settings.values["hang.gpu_idle_utilization"] == "0.8"


def test_a_lower_target_is_taken_with_what_it_may_lose(tmp_path: Path) -> None:
    file = tmp_path / "mine.yml"
    file.write_text("values: {goodput.target: 0.8, goodput.burn_fast: 3}")
    assert Rules(file).settings.values == {"goodput.target": "0.8", "goodput.burn_fast": "3"}


@cases(
    ("values", "expected"),
    [
        (
            VALUES.replace("default: 85", "default: 86"),
            "gpus.yml: line 7: 85, expected 86, the default of",
        ),
        (VALUES + "  b: {default: 1, unit: count, meaning: none}\n", "values.yml: b: no rule holds it"),
        (VALUES.replace("  gpu.share", "  gpu.part"), "alerts/gpus.yml: line 11: values.yml has no gpu.share"),
        (VALUES.replace("unit: ratio", "unit: part"), "there is no such key"),
        (VALUES.replace(", meaning: of the time", ""), "key values.gpu.share: no meaning, expected one"),
    ],
    folder=folder_in,
)
def test_a_bundle_whose_values_and_rules_differ_is_refused(folder: Path, values: str, expected: str) -> None:
    (folder / "values.yml").write_text(values)
    assert expected in refusal(folder, "")


def test_a_marker_that_follows_no_number_is_refused(folder: Path) -> None:
    (folder / "alerts/gpus.yml").write_text(RULES.replace("85  #", "85 + x  #"))
    assert "alerts/gpus.yml: line 7: 'expr: gpu_temperature_celsius > bool 85 + x" in refusal(folder, "")


def test_a_folder_with_other_rules_is_refused_and_one_of_an_earlier_build_is_not(folder: Path, tmp_path: Path) -> None:
    rules = Rules(None, folder)
    out = tmp_path / "out"
    assert write(rules, "prometheus", out) == write(rules, "prometheus", out)
    (out / "alerts/old.yml").write_text("groups: []")
    with pytest.raises(UsageError, match=r"old\.yml: not made by this build and loaded beside it"):
        write(rules, "prometheus", out)


def test_the_command_prints_what_it_changed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "mine.yml"
    mine.write_text("values: {run.failed_shown_seconds: 2h}\nalerts: {TrainRunDegraded: {enabled: false}}\n")
    assert main(["build", "--values", str(mine), "--out", str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "run.failed_shown_seconds: 7200 instead of 21600\nTrainRunDegraded: left out\n" in printed
    mine.write_text("values: {run.failed_shown_seconds: x}\n")
    assert main(["build", "--values", str(mine), "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith(f"trainwarden rules: {mine}: line 1: key values.run.failed_shown_seconds")


WATCHDOG = """\
groups:
  - name: monitoring
    rules:
      - alert: TrainWatchdog
        expr: vector(1)
        labels: {severity: none, remediate: "false"}
        annotations: {dashboard: /d/train-run}
      - alert: TrainDeadMansSwitch
        expr: trainwarden_remediator_watchdog_age_seconds > 900
        labels: {severity: critical, remediate: "false"}
        annotations: {dashboard: /d/train-run}
      - alert: TrainRunStalled
        expr: run:training_still_seconds:current
        labels: {severity: warning, remediate: "true"}
        annotations: {dashboard: /d/train-run}
"""


def test_a_watchdog_is_left_out_only_with_its_switch(folder: Path) -> None:
    (folder / "alerts/monitoring.yml").write_text(WATCHDOG)
    assert refusal(folder, "alerts:\n  TrainWatchdog: {enabled: false}\n") == (
        "mine.yml: line 2: key alerts.TrainWatchdog.enabled: 'false', expected true, or TrainDeadMansSwitch: "
        "{enabled: false} beside it, which fires where TrainWatchdog is missing"
    )
    for kept in ("TrainDeadMansSwitch: {severity: warning}", "TrainDeadMansSwitch: {enabled: true}"):
        assert "key alerts.TrainWatchdog.enabled" in refusal(
            folder, f"alerts: {{TrainWatchdog: {{enabled: false}}, {kept}}}"
        )
    both = "alerts: {TrainWatchdog: {enabled: false}, TrainDeadMansSwitch: {enabled: false}}"
    assert "Watchdog" not in built(folder, both)["alerts/monitoring.yml"]
    assert "TrainWatchdog" in built(folder, "alerts: {TrainDeadMansSwitch: {enabled: false}}")["alerts/monitoring.yml"]


@cases("name", ["TrainRunStalled", "TrainDeadMansSwitch", "TrainGpuLost"], folder=folder_in)
def test_what_somebody_must_get_keeps_a_severity(folder: Path, name: str) -> None:
    (folder / "alerts/monitoring.yml").write_text(WATCHDOG)
    assert refusal(folder, f"alerts:\n  {name}:\n    severity: none\n") == (
        f"mine.yml: line 3: key alerts.{name}.severity: 'none', expected critical, warning or info: "
        "without severity it reaches nobody (to leave it out: enabled: false)"
    )


def test_what_always_fires_gets_no_severity(folder: Path) -> None:
    (folder / "alerts/monitoring.yml").write_text(WATCHDOG)
    assert refusal(folder, "alerts: {TrainWatchdog: {severity: warning}}") == (
        "mine.yml: line 1: key alerts.TrainWatchdog.severity: 'warning', expected none: it always fires"
    )
    assert built(folder, "alerts: {TrainGpuHot: {severity: none}, TrainWatchdog: {severity: none}}")
