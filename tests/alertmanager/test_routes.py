"""Which alert reaches whom, as shipped and with each switch on."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator
from itertools import combinations, product
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.alertmanager.running import ROOT, SHIPPED, SWITCHES, switched_on
from tests.offenders import assert_none
from tests.rules.rule_files import ALERTS
from trainwarden.stack.binaries import Tools

pytestmark = pytest.mark.tools

MAIN = SHIPPED / "alertmanager.yml"
TEXT = MAIN.read_text(encoding="utf-8")
PAGE = (ROOT / "docs/alertmanager.md").read_text(encoding="utf-8")
# severity and remediate of each alert that is shipped
KINDS = sorted(
    {(rule["alert"], rule["labels"]["severity"], rule["labels"].get("remediate", "false")) for rule in ALERTS}
)


def amtool(tools: Tools, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([tools.amtool, *arguments], capture_output=True, text=True, check=False)


def check(tools: Tools, folder: Path, text: str) -> Path:
    """Lay out a configuration and have amtool check it with its templates."""
    shutil.copytree(SHIPPED, folder, dirs_exist_ok=True)
    main = folder / "alertmanager.yml"
    main.write_text(text, encoding="utf-8")
    done = amtool(tools, "check-config", str(main))
    assert done.returncode == 0, done.stdout + done.stderr
    return main


def receivers(tools: Tools, main: Path, **labels: str) -> list[str]:
    """Return who gets an alert, in the order of the routes."""
    given = [f"{name}={value}" for name, value in labels.items()]
    done = amtool(tools, "config", "routes", "test", f"--config.file={main}", *given)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.strip().split(",")


def expected(name: str, severity: str, remediate: str, switches: tuple[str, ...] = ()) -> list[str]:
    machine = ["remediator"] if remediate == "true" or name == "TrainWatchdog" else []
    if name == "TrainWatchdog" and "deadman" in switches:
        machine.append("deadman")
    if severity == "none":
        return [*machine, "nobody"]
    pagers = [each for each in ("pagerduty", "opsgenie") if each in switches and severity == "critical"]
    mail = [each for each in ("email", "sns") if each in switches and severity in {"critical", "warning"}]
    return [*machine, *pagers, *mail, "slack-info" if severity == "info" else "slack"]


def test_amtool_accepts_the_configuration_and_its_templates(tools: Tools) -> None:
    done = amtool(tools, "check-config", str(MAIN))
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_alert_reaches_its_receivers(tools: Tools) -> None:
    def astray() -> Iterator[str]:
        for name, severity, remediate in (*KINDS, ("TrainWatchdog", "none", "false")):
            found = receivers(tools, MAIN, alertname=name, severity=severity, remediate=remediate, run_id="r1")
            if found != (wanted := expected(name, severity, remediate)):
                yield f"{name}, {severity}, remediate={remediate}: {found}, expected {wanted}"

    assert_none(astray())


def test_an_alert_without_a_route_of_its_own_is_still_delivered(tools: Tools) -> None:
    assert receivers(tools, MAIN, alertname="Other") == ["slack"]


def below_theirs(ours: dict[str, Any]) -> str:
    """A team's own configuration with ours in it, as the page says."""
    route = {"matchers": ['alertname=~"Train.+"'], **ours["route"]}
    theirs = {"route": {"receiver": "yours", "routes": [route]}}
    return yaml.safe_dump({**ours, **theirs, "receivers": [{"name": "yours"}, *ours["receivers"]]})


def test_in_a_configuration_that_is_there_already_ours_takes_its_own_alerts(tools: Tools, tmp_path: Path) -> None:
    matcher = "matchers: ['alertname=~\"Train.+\"']"
    assert matcher in PAGE
    main = check(tools, tmp_path, below_theirs(yaml.safe_load(TEXT)))
    asked, answer = re.findall(r"routes test --config.file=alertmanager.yml (.+?)`\s+then\s+prints `(.+?)`", PAGE)[0]
    assert ",".join(receivers(tools, main, **dict(each.split("=") for each in asked.split()))) == answer
    assert receivers(tools, main, alertname="TrainWatchdog", severity="none") == ["remediator", "nobody"]
    assert receivers(tools, main, alertname="Other", severity="critical") == ["yours"]


def test_without_a_remediator_all_else_is_delivered(tools: Tools, tmp_path: Path) -> None:
    ours = yaml.safe_load(TEXT)
    ours["receivers"] = [each for each in ours["receivers"] if each["name"] != "remediator"]
    routes = ours["route"]["routes"]
    ours["route"]["routes"] = [each for each in routes if each["receiver"] != "remediator"]
    assert len(routes) - len(ours["route"]["routes"]) == 2, "as the page counts them"
    main = check(tools, tmp_path, yaml.safe_dump(ours))
    assert receivers(tools, main, alertname="TrainRunFailed", severity="critical", remediate="true") == ["slack"]


ALL_SWITCHES = [switches for size in range(1, len(SWITCHES) + 1) for switches in combinations(SWITCHES, size)]


def test_every_set_of_switches_makes_a_configuration() -> None:
    for switches in ALL_SWITCHES:
        built = yaml.load(switched_on(TEXT, *switches), yaml.CSafeLoader)
        assert {each["name"] for each in built["receivers"]} == {
            *("remediator", "slack", "slack-info", "nobody"),
            *switches,
        }


def test_a_switch_adds_its_receiver_and_takes_nothing_away(tools: Tools, tmp_path: Path) -> None:
    def astray() -> Iterator[str]:
        for switches in (*((each,) for each in SWITCHES), SWITCHES):
            main = check(tools, tmp_path / "+".join(switches), switched_on(TEXT, *switches))
            for (name, severity, remediate), place in product(OF_EACH_SEVERITY, PLACES):
                found = receivers(tools, main, alertname=name, severity=severity, remediate=remediate, **place)
                if found != (wanted := expected(name, severity, remediate, switches)):
                    yield f"{'+'.join(switches)}: {name} of {place}: {found}, expected {wanted}"

    assert_none(astray())


# An alert of each severity, of a run, of a node, and of neither.
OF_EACH_SEVERITY = [
    ("TrainRunFailed", "critical", "true"),
    ("TrainGpuLost", "critical", "false"),
    ("TrainRunDegraded", "warning", "false"),
    ("TrainRunSucceeded", "info", "false"),
    ("TrainWatchdog", "none", "false"),
]
PLACES = [{"run_id": "r1", "node": "n1"}, {"node": "n1"}, {"instance": "i"}]


def test_the_page_names_each_switch_with_its_secrets() -> None:
    for switch in SWITCHES:
        block = switched_on("\n".join(line for line in TEXT.splitlines() if line.startswith(f"#{switch}#")), switch)
        assert f"| `{switch}` |" in PAGE
        for secret in re.findall(r"secrets/\w+", block):
            assert secret in PAGE, f"{switch}: {secret}"
    assert f"Switches: {', '.join(SWITCHES)}." in TEXT


def test_the_page_gives_the_very_command_that_a_switch_needs() -> None:
    assert "sed -i 's/^#pagerduty# //'" in TEXT
    assert "sed -i 's/^#pagerduty# //'" in PAGE


def test_the_address_of_the_dead_mans_switch_may_lie_in_a_file(tools: Tools, tmp_path: Path) -> None:
    """From Alertmanager 0.26 on, as the comment has it."""
    if " 0.25." in amtool(tools, "--version").stdout + amtool(tools, "--version").stderr:
        text = TEXT
    else:
        text = TEXT.replace("url: https://deadman.example.com/ping", "url_file: secrets/deadman_url")
        assert text != TEXT
    check(tools, tmp_path, switched_on(text, "deadman"))


def test_where_an_incident_is_one_run_or_one_node_the_groups_are() -> None:
    routes = {
        each["receiver"]: each
        for each in yaml.safe_load(switched_on(TEXT, *SWITCHES))["route"]["routes"]
        if each["matchers"] != ['alertname="TrainWatchdog"']
    }
    assert routes["remediator"]["group_by"] == ["cluster", "run_id"]
    for pager in ("pagerduty", "opsgenie"):
        assert routes[pager]["routes"] == [
            {"matchers": ['run_id!=""'], "group_by": ["cluster", "run_id"]},
            {"matchers": ['node!=""'], "group_by": ["cluster", "node"]},
        ]
        assert routes[pager]["group_by"] == ["cluster", "alertname", "instance"]


def test_every_route_and_every_inhibition_tells_clusters_apart() -> None:
    built = yaml.safe_load(switched_on(TEXT, *SWITCHES))

    def routes(route: dict[str, Any]) -> list[dict[str, Any]]:
        return [route, *(each for child in route.get("routes", []) for each in routes(child))]

    assert all("cluster" in route["group_by"] for route in routes(built["route"]) if "group_by" in route)
    assert all(rule["equal"][0] == "cluster" for rule in built["inhibit_rules"])


def test_no_secret_is_in_the_configuration() -> None:
    assert not re.search(r"\b(credentials|api_url|api_key|routing_key|auth_password|secret_key):", TEXT)
    assert "hooks.slack.com" not in TEXT
