"""The scrape configurations of deploy/prometheus/scrape are what Prometheus takes, and find what the rules need."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.offenders import assert_none
from tests.rules.rule_files import FILES as RULE_FILES
from tests.rules.rule_files import ROOT, RULES
from trainwarden.rules.settings import RESERVED
from trainwarden.stack.binaries import Tools
from trainwarden_exporter.cli import EVERYWHERE

FOLDER = ROOT / "deploy/prometheus/scrape"
FILES = sorted(FOLDER.glob("*.yml"))
PORT = str(EVERYWHERE[0][1])
# By the name of its file, the jobs of each by their names.
JOBS: dict[str, dict[str, dict[str, Any]]] = {
    path.name: {job["job_name"]: job for job in yaml.safe_load(path.read_text(encoding="utf-8"))["scrape_configs"]}
    for path in FILES
}


@pytest.mark.tools
def test_promtool_takes_each_file(tools: Tools, tmp_path: Path) -> None:
    paths = []
    for path in FILES:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
        for job in content["scrape_configs"]:
            if job.pop("kubernetes_sd_configs", None):  # Debian builds Prometheus without it
                job["dns_sd_configs"] = [{"names": ["a"]}]
        paths.append(tmp_path / path.name)
        paths[-1].write_text(yaml.safe_dump(content), encoding="utf-8")
    done = subprocess.run([tools.promtool, "check", "config", *paths], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("SUCCESS") == len(FILES) > 3


def test_runs_are_scraped_often_and_the_rest_of_the_same_targets_less_often() -> None:
    for file, jobs in JOBS.items():
        runs, rest = jobs["trainwarden-exporter-runs"], jobs["trainwarden-exporter"]
        assert (runs["scrape_interval"], runs["params"]) == ("5s", {"collect[]": ["runs"]}), file
        assert (rest["scrape_interval"], rest["params"]) == ("30s", {"exclude[]": ["runs"]}), file
        # A head node may have a job of its own for the rest.
        head = jobs.get("trainwarden-exporter-head", {"params": rest["params"]})
        assert head["params"] == rest["params"], file
        targets = [key for key in runs if key.endswith("_sd_configs") or key in {"static_configs", "relabel_configs"}]
        assert targets, file
        assert all(runs[key] == rest.get(key, head.get(key)) for key in targets), file
        assert all(each in runs["static_configs"] for each in head.get("static_configs", ())), file


def test_the_targets_are_the_exporter_s_port_and_carry_a_cluster() -> None:
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert "cluster" in text, path.name
        assert set(re.findall(r"(?:node-\d|head|\$1):(\d+)", text)) <= {PORT, "9746"}, path.name


def test_all_targets_that_a_file_names_are_of_one_cluster() -> None:
    """The remediator's series are joined with those of its runs, by cluster."""
    for file, jobs in JOBS.items():
        named = [target for job in jobs.values() for target in job.get("static_configs", ())]
        assert all("cluster" in target.get("labels", {}) for target in named), file
        assert len({target["labels"]["cluster"] for target in named}) <= 1, file


def test_the_rules_find_the_jobs_by_their_names() -> None:
    asked = {name for _, rule in RULES for name in re.findall(r'job=~?"([^"]+)"', str(rule["expr"]))}
    patterns = [pattern for pattern in asked if "exporter" in pattern]
    assert patterns
    assert_none(
        f"{file}: {name} is not found by {pattern}"
        for file, jobs in JOBS.items()
        for name in jobs
        for pattern in patterns
        if "exporter" in name and not re.fullmatch(pattern, name)
    )


def test_the_one_configuration_of_prometheus_loads_every_rule_file_and_no_test() -> None:
    patterns = yaml.safe_load((ROOT / "deploy/prometheus/prometheus.yml").read_text(encoding="utf-8"))["rule_files"]
    loaded = {path.relative_to(ROOT / "rules").as_posix() for pattern in patterns for path in ROOT.glob(pattern)}
    assert loaded == {file.name for file in RULE_FILES}


@pytest.mark.tools
def test_what_runs_have_in_common_is_attached_to_alerts_by_the_names_of_nodes(tools: Tools) -> None:
    path = ROOT / "deploy/prometheus/alert-relabel.yml"
    done = subprocess.run([tools.promtool, "check", "config", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    attached = {}
    for each in yaml.safe_load(path.read_text(encoding="utf-8"))["alerting"]["alert_relabel_configs"]:
        assert each["source_labels"] == ["node"]
        if found := re.fullmatch(each["regex"], "r07-s2-n11"):
            attached[each["target_label"]] = each.get("replacement", "$1").replace("$1", (*found.groups(), "")[0])
    # The remediator reads these: tests/unit/remediator/test_storm.py.
    assert attached == {"rack": "r07", "switch": "r07-s2", "fabric": "fabric-a"}
    assert {"rack", "switch", "filesystem", "fabric"} <= RESERVED


def slurm_targets(tmp_path: Path, printed: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    sinfo = tmp_path / "bin/sinfo"
    sinfo.parent.mkdir(exist_ok=True)
    sinfo.write_text(f"#!/bin/sh\ncat <<'END'\n{printed}\nEND\n")
    sinfo.chmod(0o755)
    return subprocess.run(
        [FOLDER / "slurm-targets.sh", *arguments],
        env={"PATH": f"{sinfo.parent}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_nodes_of_slurm_become_targets_once_each(tmp_path: Path) -> None:
    file = tmp_path / "slurm-nodes.json"
    printed = "n1 allocated\nn1 allocated\nn2 down*\nn3 idle~\nn4 powered_down\nn5 draining\nn6 idle%\nn7;rm idle"
    done = slurm_targets(tmp_path, printed, "east", str(file))
    assert done.returncode == 0, done.stderr
    assert json.loads(file.read_text()) == [
        {"targets": [f"n1:{PORT}", f"n2:{PORT}", f"n5:{PORT}"], "labels": {"cluster": "east"}}
    ]
    assert [path.name for path in tmp_path.glob("slurm-nodes*")] == ["slurm-nodes.json"]


def test_targets_stay_as_they_are_while_slurm_does_not_answer(tmp_path: Path) -> None:
    file = tmp_path / "slurm-nodes.json"
    file.write_text("before")
    done = slurm_targets(tmp_path, "", "east", str(file))
    assert done.returncode == 1
    assert "stays as it is" in done.stderr
    assert file.read_text() == "before"


def test_a_cluster_s_name_cannot_break_the_file(tmp_path: Path) -> None:
    done = slurm_targets(tmp_path, "n1 idle", 'a","b', str(tmp_path / "slurm-nodes.json"))
    assert done.returncode == 2
    assert "expected letters, digits" in done.stderr
