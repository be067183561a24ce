"""Which alert hides which: the table on the page, the configuration, the rules and a real Alertmanager agree."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from graphlib import TopologicalSorter
from itertools import combinations, count, product
from pathlib import Path

import pytest
import yaml

from tests.alertmanager.running import ROOT, SHIPPED, Alertmanager, alertmanager, firing
from tests.offenders import assert_none
from tests.rules.rule_files import ALERTS, NAMES
from tests.waiting import wait_until
from trainwarden.clients.alertmanager import AlertmanagerClient
from trainwarden.stack.binaries import Tools

CONFIGURATION = yaml.safe_load((SHIPPED / "alertmanager.yml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs/alertmanager.md").read_text(encoding="utf-8")
SEVERITIES = ["none", "info", "warning", "critical"]
ACTED_ON = 'remediate="true"'
MATCHER = re.compile(r'(\w+)(=~|!=|=)"([^"]*)"')

# Each inhibition by what it names as its cause and its symptom.
TITLED = [
    (f"{', '.join(rule['source_matchers'])} hides {', '.join(rule['target_matchers'])}", rule)
    for rule in CONFIGURATION["inhibit_rules"]
]


@dataclass(frozen=True)
class Edge:
    """A cause, its symptom, and the labels that both must share; whether the cause is one that is acted on."""

    cause: str
    symptom: str
    equal: tuple[str, ...]
    acted_on: bool = False


# Labels whose values only the symptom states, by cause and symptom, and why nothing is lost with
# them. "": any symptom.
LOST = {
    ("TrainRunFailed", "TrainRunStalled"): (
        {"basis", "budget"},
        "how a standstill was judged is over with the attempt",
    ),
    ("TrainRunTimedOut", "TrainRunStalled"): (
        {"basis", "budget"},
        "no step is expected where there is no sign of life",
    ),
    ("TrainRunTimedOut", ""): ({"ranks", "world_size", "source", "silent"}, "all ranks and all heartbeats are silent"),
    ("TrainExporterDown", ""): (
        {"collector", "call", "device", "reason", "run_id", "file", "bucket", "prefix"},
        "of an exporter that is down no collector gives anything, and none is known to be well",
    ),
    ("TrainGpuDriverFailed", "TrainGpuLost"): ({"gpu", "uuid"}, "without its driver no GPU of the node answers"),
    ("TrainSlurmNodeFailed", "TrainSlurmNodeDraining"): ({"user"}, "SLURM itself drains a node that failed"),
    ("TrainSlurmNodeFailed", "TrainExporterDown"): ({"instance"}, "the exporter is that of the node, which is named"),
}
# What every alert of a run carries as a label, whether its texts name it or not.
CARRIED = {"cluster", "run_id", "job_id", "attempt", "scheduler", "node"}


def shown(name: str) -> set[str]:
    """The labels whose values the texts of an alert state: its own, and those of what it asks for."""
    rules = [rule["annotations"] for rule in ALERTS if rule["alert"] == name]
    texts = [text for each in rules for key, text in each.items() if key != "dashboard"]
    return {label for text in texts for label in re.findall(r"(?:\$labels\.|\.Labels\.|\blabel \")(\w+)", text)}


def declared() -> list[Edge]:
    """The table on the page."""
    table = PAGE.partition("<!-- inhibition")[2].partition("<!-- end: inhibition")[0]
    lines = [line for line in table.splitlines() if line.startswith("| T")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    return [
        Edge(cause.split()[0], symptom, tuple(equal.split(", ")), ACTED_ON in cause)
        for cause, symptoms, equal, _ in rows
        for symptom in symptoms.split(", ")
    ]


def matches(matchers: list[str], labels: Mapping[str, str]) -> bool:
    """Return whether Alertmanager's matchers select these labels."""
    for text in matchers:
        parsed = MATCHER.fullmatch(text)
        assert parsed, text
        name, operator, value = parsed.groups()
        found = labels.get(name, "")
        is_selected = re.fullmatch(value, found) is not None if operator == "=~" else found == value
        if is_selected == (operator == "!="):
            return False
    return True


def names(matchers: list[str]) -> list[str]:
    """The shipped alerts that the matcher on alertname selects."""
    return [
        name
        for name in NAMES
        if matches([each for each in matchers if each.startswith("alertname")], {"alertname": name})
    ]


@cache
def kinds() -> list[dict[str, str]]:
    """The fixed labels of each shipped rule that alerts, once."""
    unique = {tuple(sorted({"alertname": rule["alert"], **rule["labels"]}.items())) for rule in ALERTS}
    return [dict(each) for each in sorted(unique)]


def hides(cause: Mapping[str, str], symptom: Mapping[str, str]) -> bool:
    """Return whether the page has it so, for alerts that share all labels of a place."""
    if symptom.get("remediate") == "true" and cause.get("remediate") != "true":
        return False
    return any(
        (edge.cause, edge.symptom) == (cause["alertname"], symptom["alertname"])
        and (cause.get("remediate") == "true" or not edge.acted_on)
        for edge in declared()
    )


def test_the_page_and_the_configuration_hold_the_same_edges() -> None:
    configured = [
        Edge(cause, symptom, tuple(rule["equal"]), ACTED_ON in rule["source_matchers"])
        for rule in CONFIGURATION["inhibit_rules"]
        for cause in names(rule["source_matchers"])
        for symptom in names(rule["target_matchers"])
    ]
    # An edge of any cause has a second rule for what is acted on.
    always = {(each.cause, each.symptom) for each in configured if not each.acted_on}
    expected = {each for each in configured if not (each.acted_on and (each.cause, each.symptom) in always)}
    assert expected == set(declared())


def test_what_a_symptom_states_its_cause_states_too() -> None:
    """A message that is hidden takes no fact with it, but those of `LOST`."""
    lost = {}
    for edge in declared():
        missing = shown(edge.symptom) - shown(edge.cause) - set(edge.equal) - CARRIED
        for key in ((edge.cause, edge.symptom), (edge.cause, "")):
            missing -= LOST.get(key, (set(), ""))[0]
        if missing:
            lost[edge.cause, edge.symptom] = missing
    assert not lost


def test_no_fact_is_given_up_in_vain() -> None:
    def in_vain() -> Iterator[str]:
        for (cause, symptom), (labels, _) in LOST.items():
            hidden = [edge.symptom for edge in declared() if edge.cause == cause and symptom in ("", edge.symptom)]
            stated = set().union(*(shown(each) for each in hidden))
            for label in sorted(labels - (stated - shown(cause))):
                yield f"{cause} hides {symptom or 'any symptom'}: {label} is not lost"

    assert_none(in_vain())


def test_every_alert_of_a_rule_exists() -> None:
    for rule in CONFIGURATION["inhibit_rules"]:
        for side in ("source_matchers", "target_matchers"):
            (pattern,) = [matcher for matcher in rule[side] if matcher.startswith("alertname")]
            listed = re.sub(r"^alertname=~?", "", pattern).strip('"')
            written = [
                (prefix or "") + each
                for prefix, several, one in re.findall(r"(\w*)\(([^)]*)\)|(\w+)", listed)
                for each in (several or one).split("|")
            ]
            assert names(rule[side]) == sorted(written)


def test_there_is_no_circle() -> None:
    graph: dict[str, set[str]] = {}
    for edge in declared():
        graph.setdefault(edge.symptom, set()).add(edge.cause)
    assert list(TopologicalSorter(graph).static_order())


def test_what_hides_a_symptom_hides_what_that_hides() -> None:
    """A hidden cause still hides: what its message would show must be in the message that is seen."""
    edges = {(edge.cause, edge.symptom): edge.equal for edge in declared()}
    for (cause, middle), equal in edges.items():
        for (other, symptom), further in edges.items():
            if other == middle and equal == further:
                assert (cause, symptom) in edges, f"{cause} hides {middle}, which hides {symptom}"


def test_both_sides_name_what_is_to_be_equal_and_no_alert_is_on_both() -> None:
    def wrong() -> Iterator[str]:
        for title, rule in TITLED:
            first, *others = rule["equal"]
            if first != "cluster" or not others:
                yield f"{title}: equal are {rule['equal']}, expected cluster and more"
            for label, side in product(others, ("source_matchers", "target_matchers")):
                if f'{label}!=""' not in rule[side]:
                    yield f'{title}: without {label}!="" alerts that lack it are equal'
            for name in set(names(rule["source_matchers"])) & set(names(rule["target_matchers"])):
                yield f"{title}: {name} is on both sides"

    assert_none(wrong())


def test_what_the_remediator_acts_on_is_hidden_only_by_what_it_acts_on() -> None:
    assert_none(
        title
        for title, rule in TITLED
        if 'remediate!="true"' not in rule["target_matchers"] and 'remediate="true"' not in rule["source_matchers"]
    )


def test_a_cause_is_as_severe_as_what_it_hides() -> None:
    def milder() -> Iterator[str]:
        for title, rule in TITLED:
            causes = [kind for kind in kinds() if kind["alertname"] in names(rule["source_matchers"])]
            symptoms = [kind for kind in kinds() if kind["alertname"] in names(rule["target_matchers"])]
            least = min(SEVERITIES.index(kind["severity"]) for kind in causes)
            most = max(SEVERITIES.index(kind["severity"]) for kind in symptoms)
            if least < most:
                yield f"{title}: {SEVERITIES[least]} hides {SEVERITIES[most]}"

    assert_none(milder())


def test_a_cause_arrives_before_its_symptom_is_sent() -> None:
    """The later of two rules that see the same moment, by `for`, interval and their order, against group_wait."""
    places = dict(_places())
    for edge in declared():
        for symptom in (kind for kind in kinds() if kind["alertname"] == edge.symptom):
            for cause in (kind for kind in kinds() if kind["alertname"] == edge.cause and hides(kind, symptom)):
                late = _lateness(places[_key(cause)], places[_key(symptom)])
                assert late <= _group_wait(symptom), f"{edge.cause} may come {late} s after {edge.symptom}"


@dataclass(frozen=True)
class Place:
    """Where a rule is evaluated: its group, its number there, the group's interval and the rule's `for` in seconds."""

    group: tuple[str, str]
    number: int
    interval: float
    wait: float


def _places() -> Iterator[tuple[tuple[tuple[str, str], ...], Place]]:
    for path in sorted((ROOT / "rules/alerts").glob("*.yml")):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            for number, rule in enumerate(group["rules"]):
                if "alert" in rule:
                    place = Place(
                        (path.name, group["name"]), number, _seconds(group["interval"]), _seconds(rule.get("for", "0s"))
                    )
                    yield _key({"alertname": rule["alert"], **rule["labels"]}), place


def _key(labels: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(labels.items()))


def _lateness(cause: Place, symptom: Place) -> float:
    if cause.group == symptom.group:
        # Prometheus sends what a rule finds before it evaluates the next; a `for` is rounded up to whole rounds.
        rounds = -(-cause.wait // cause.interval) - -(-symptom.wait // symptom.interval)
        return rounds * cause.interval + (0.1 if cause.number > symptom.number else 0)
    return cause.wait + cause.interval - symptom.wait


def _group_wait(labels: Mapping[str, str]) -> float:
    """The shortest wait of the routes that an alert takes."""
    root = CONFIGURATION["route"]
    waits = []
    for route in root["routes"]:
        if matches(route["matchers"], labels):
            waits.append(_seconds(route.get("group_wait", root["group_wait"])))
            if not route.get("continue"):
                break
    return min(waits)


def _seconds(duration: str) -> float:
    parts = re.findall(r"(\d+)([smh])", duration)
    return float(sum(int(number) * {"s": 1, "m": 60, "h": 3600}[unit] for number, unit in parts))


NOTHING_IS_SENT = {"  group_wait: 2s\n  group_interval: 5s": "  group_wait: 1h\n  group_interval: 1h"}
# An Alertmanager compares each alert with all that may hide it: several small ones are quicker than a large one.
PAIRS_AT_ONCE = 500


@pytest.fixture(scope="module")
def quiet(tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Alertmanager]:
    """The shipped configuration; nothing is delivered within the test: the states are the subject."""
    with alertmanager(tools, tmp_path_factory.mktemp("quiet"), edits=NOTHING_IS_SENT) as running:
        yield running


_POSTS = count()
EVERYWHERE = dict.fromkeys(("run_id", "node", "instance", "use", "collector", "gpu", "device", "port"), "here")


def states(running: Alertmanager, sent: Mapping[str, Mapping[str, str]]) -> dict[str, bool]:
    """Report alerts, each with a label `id` of its own; return which of them are suppressed once all are considered."""
    posted = [
        firing(labels["alertname"], **{k: v for k, v in labels.items() if k != "alertname"}, id=each)
        for each, labels in sent.items()
    ]
    running.post(posted)
    # The inhibitor reads alerts in their order, after the API shows them: once the last is hidden, it has read all.
    last = {"run_id": f"last-{next(_POSTS)}", "remediate": "true"}
    running.post([firing("TrainRunFailed", **last), firing("TrainRunStalled", **last)])
    wait_until(lambda: running.states(f'run_id="{last["run_id"]}"').get("TrainRunStalled") == "suppressed")
    found = {
        each.labels["id"]: each.is_suppressed
        for each in AlertmanagerClient(running.url).alerts()
        if each.labels.get("id") in sent
    }
    assert len(found) == len(sent)
    return found


@pytest.mark.tools
@pytest.mark.slow
def test_every_ordered_pair_of_alerts_in_a_real_alertmanager(tools: Tools, tmp_path: Path) -> None:
    """Each two kinds of alert in a cluster of their own, with all labels of a place in common."""
    pairs = list(combinations(kinds(), 2))
    wrong = []
    for start in range(0, len(pairs), PAIRS_AT_ONCE):
        sent, expected = {}, {}
        for number, (one, two) in enumerate(pairs[start : start + PAIRS_AT_ONCE]):
            for each, other, side in ((one, two, "a"), (two, one, "b")):
                sent[f"{number}{side}"] = {**each, **EVERYWHERE, "cluster": f"pair-{number}"}
                expected[f"{number}{side}"] = (hides(other, each), other["alertname"])
        with alertmanager(tools, tmp_path / str(start), edits=NOTHING_IS_SENT) as running:
            found = states(running, sent)
        wrong += [
            f"{cause} beside {sent[each]['alertname']}"
            for each, (is_hidden, cause) in expected.items()
            if found[each] != is_hidden
        ]
    assert not wrong


ELSEWHERE: dict[str, dict[str, str]] = {
    "another cluster": {"cluster": "another than"},
    "another run and node": dict.fromkeys(EVERYWHERE, "there"),
    "no place": dict.fromkeys(EVERYWHERE, ""),
}


@pytest.mark.tools
def test_a_cause_elsewhere_hides_nothing(quiet: Alertmanager) -> None:
    for case, change in ELSEWHERE.items():
        sent = {}
        for number, edge in enumerate(declared()):
            for kind in kinds():
                if kind["alertname"] == edge.symptom:
                    here = dict.fromkeys(EVERYWHERE, "") if "" in change.values() else EVERYWHERE
                    sent[f"{case} {number} symptom {kind}"] = {**kind, **here, "cluster": f"{case} {number}"}
                if kind["alertname"] == edge.cause:
                    where = {**EVERYWHERE, "cluster": case, **change}
                    where["cluster"] += f" {number}"
                    sent[f"{case} {number} cause {kind}"] = {**kind, **where}
        assert_none(each for each, suppressed in states(quiet, sent).items() if suppressed)


@pytest.mark.tools
def test_without_a_cluster_label_the_run_decides(quiet: Alertmanager) -> None:
    sent = {}
    for run in ("x", "y"):
        sent[f"{run} cause"] = {"alertname": "TrainRunFailed", "remediate": "true", "run_id": f"one-cluster-{run}"}
    sent["x symptom"] = {"alertname": "TrainRunStalled", "remediate": "true", "run_id": "one-cluster-x"}
    sent["z symptom"] = {"alertname": "TrainRunStalled", "remediate": "true", "run_id": "one-cluster-z"}
    assert {each for each, suppressed in states(quiet, sent).items() if suppressed} == {"x symptom"}


@pytest.mark.tools
def test_a_given_up_run_is_shown_beside_everything_else(quiet: Alertmanager) -> None:
    names_ = ["TrainRunFailed", "TrainRunTimedOut", "TrainRunStalled", "TrainRunDegraded", "TrainRunRestartExhausted"]
    acted = {"run_id": "given-up", "severity": "critical", "remediate": "true"}
    sent = {f"given up {name}": {"alertname": name, **acted} for name in names_}
    shown = {each.rpartition(" ")[2] for each, suppressed in states(quiet, sent).items() if not suppressed}
    assert shown == {"TrainRunFailed", "TrainRunRestartExhausted"}


@pytest.mark.tools
def test_what_is_known_of_a_run_whose_steps_go_on_is_shown_beside_its_recorded_failure(quiet: Alertmanager) -> None:
    run = {"run_id": "goes-on", "severity": "critical", "remediate": "false"}
    names_ = ["TrainRunFailed", "TrainRunDegraded", "TrainLogSilent", "TrainRankSilent"]
    sent = {f"goes on {name}": {"alertname": name, **run} for name in names_}
    assert not [each for each, suppressed in states(quiet, sent).items() if suppressed]
