"""What `trainwarden rules build` writes is loaded by those that it is for."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from tests.rules.cases import firing, read_tests
from tests.rules.rule_files import FILES, NAMES, ROOT
from trainwarden.rules.build import FORMATS, Rules, write
from trainwarden.rules.settings import RESERVED
from trainwarden.stack.binaries import Tools

SETTINGS = """\
labels: {team: training}
runbooks: https://wiki.example.com/runbooks
alerts: {TrainRunDegraded: {enabled: false}, TrainRunSucceeded: {severity: none, for: 1m}}
kubernetes: {namespace: monitoring, labels: {release: kube-prometheus-stack}}
"""
GROUP_KEYS = {"name", "interval", "limit", "rules"}
RULE_KEYS = {"record", "alert", "expr", "for", "keep_firing_for", "labels", "annotations"}


@pytest.fixture(params=["", SETTINGS], ids=["defaults", "settings"])
def rules(request: pytest.FixtureRequest, tmp_path: Path) -> Rules:
    file = tmp_path / "mine.yml"
    file.write_text(request.param)
    return Rules(file)


def test_the_defaults_are_the_committed_files_byte_for_byte(tmp_path: Path) -> None:
    write(Rules(), "prometheus", tmp_path)
    written = {path.relative_to(tmp_path): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert written == {Path(file.name): (ROOT / "rules" / file.name).read_bytes() for file in FILES}


@pytest.mark.tools
@pytest.mark.parametrize("kind", FORMATS)
def test_promtool_accepts_the_groups_of_every_format(tools: Tools, tmp_path: Path, rules: Rules, kind: str) -> None:
    paths = write(rules, kind, tmp_path / "out")
    if kind != "prometheus":
        for number, path in enumerate(paths):
            document = yaml.load(path.read_text(encoding="utf-8"), yaml.CSafeLoader)
            paths[number] = path.with_suffix(".plain")
            # JSON is YAML.
            paths[number].write_text(json.dumps({"groups": document.get("spec", document)["groups"]}), encoding="utf-8")
    done = subprocess.run([tools.promtool, "check", "rules", *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == len(paths) > 0


def test_an_object_is_one_that_the_operator_knows(rules: Rules) -> None:
    names = set()
    for _, text in rules.written("prometheusrule"):
        made = yaml.load(text, yaml.CSafeLoader)
        assert set(made) == {"apiVersion", "kind", "metadata", "spec"}
        assert re.fullmatch(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?", made["metadata"]["name"])
        names.add(made["metadata"]["name"])
        assert set(made["spec"]) == {"groups"}
        for group in made["spec"]["groups"]:
            assert set(group) <= GROUP_KEYS
            assert all(set(rule) <= RULE_KEYS for rule in group["rules"])
            assert all(isinstance(rule["expr"], str) for rule in group["rules"])
        assert len(text) < 500_000, "etcd takes no object above 1.5 MB, and kubectl apply keeps a copy within it"
    assert len(names) == len(rules.files)


def test_settings_reach_every_alert_but_those_left_out(tmp_path: Path) -> None:
    file = tmp_path / "mine.yml"
    file.write_text(SETTINGS)
    alerts = [rule for each in Rules(file).files for rule in each.alerts]
    assert {rule["alert"] for rule in alerts} == set(NAMES) - {"TrainRunDegraded"}
    assert {rule["labels"]["team"] for rule in alerts} == {"training"}
    assert {rule["annotations"]["runbook_url"] for rule in alerts} == {
        f"https://wiki.example.com/runbooks/{rule['alert']}.md" for rule in alerts
    }


def test_no_label_that_tells_alerts_apart_can_be_given_to_all() -> None:
    moments = [moment for _, test in read_tests(ROOT / "rules/tests") for moment in firing(test)]
    carried = {label for moment in moments for alert in moment for label in alert}
    assert carried > {"run_id", "device"}
    routed = set(
        re.findall(r"""(\w+)(?:=~|!=|=)\"""", (ROOT / "alertmanager/alertmanager.yml").read_text(encoding="utf-8"))
    )
    assert routed > {"remediate", "use"}
    assert sorted((carried | routed) - RESERVED) == []
