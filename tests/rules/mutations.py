"""Breaks every rule on purpose and counts how many of the breaks the files in rules/tests notice.

usage: python -m tests.rules.mutations [--write PAGE] [--rule NAME ...] [FILE ...]

FILE is a rule file, such as rules/alerts/gpus.yml; all of them if none. NAME is an alert or a recording of it, all of
them if none. A break that changes nothing that could be seen stands, with the reason, in tests/rules/equivalent, under
the name of its file.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import sys
import tempfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from tests.rules import promql
from tests.rules.cases import apart, labels, metrics_of, read_documents, time_of
from tests.rules.mutants import Mutant, mutants
from tests.rules.promtool import evaluate
from tests.rules.side_by_side import copied_rule, failures, numbers_in, unreadable, with_copies
from trainwarden.duration import parse_duration
from trainwarden.rules.files import read_rule_files
from trainwarden.stack.binaries import find_tools

ROOT = Path(__file__).resolve().parents[2]
EQUIVALENT = Path(__file__).with_name("equivalent")
# Of the tests in which nothing is expected of what a rule changes; they notice what fires and should not.
OTHERS = 25
# Of the tests of other files, beside those of its own.
FOREIGN = 12
COPIES = 150  # mutants in one evaluation
Place = tuple[str, int, int]  # file, group, rule


@dataclass(frozen=True, eq=False)
class Broken:
    """One mutant of the rule at `place`."""

    place: Place
    name: str
    mutant: Mutant

    @property
    def title(self) -> str:
        return f"{self.name}: {self.mutant.what}"


@dataclass
class Score:
    """How many mutants of one file there are, and what became of them."""

    file: str
    mutants: int = 0
    equivalent: int = 0
    survivors: list[str] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        judged = self.mutants - self.equivalent
        return 1 - len(self.survivors) / judged if judged else 1.0

    def __str__(self) -> str:
        judged = self.mutants - self.equivalent
        caught = judged - len(self.survivors)
        return f"{self.file}: {caught} of {judged} noticed ({self.ratio:.1%}), {self.equivalent} equivalent"


@dataclass(frozen=True)
class Scope:
    """The rules that one test loads, and those of them that have a copy for each mutant."""

    loaded: set[Place]
    copied: set[Place]
    names: frozenset[str]


class Bundle:
    """All rules and how they depend on each other, and all tests."""

    def __init__(self, rules: Path) -> None:
        self.files = {file.name: file for file in read_rule_files(rules)}
        self._rules = {
            (file.name, group, number): rule
            for file in self.files.values()
            for group, each in enumerate(file.groups)
            for number, rule in enumerate(each["rules"])
        }
        made: dict[str, set[Place]] = {}
        for place, rule in self._rules.items():
            made.setdefault(rule.get("record", "ALERTS"), set()).add(place)
            # In ALERTS of one name.
            if "alert" in rule:
                made.setdefault(f"ALERTS {rule['alert']}", set()).add(place)
        self._made = made
        self._reads = {place: self._sources(str(rule["expr"])) for place, rule in self._rules.items()}
        self._below: dict[Place, set[Place]] = {}
        self._closures: dict[Place, set[Place]] = {}
        self._scopes: dict[tuple[Place, int, bool], Scope] = {}
        self._documents = read_documents(rules / "tests")
        self.cases = [(stem, test) for stem, each in self._documents.items() for test in each["tests"]]
        self._expected = [_names_in(test) for _, test in self.cases]
        self._shown = [_names_shown(test) for _, test in self.cases]
        # From the shortest on: most mutants are caught by the first few.
        self._ranked = sorted(range(len(self.cases)), key=self._size)

    def broken(self, file: str) -> list[Broken]:
        """Return all mutants of one file."""
        return [
            Broken(place, self._title(place), mutant)
            for place, rule in self._rules.items()
            if place[0] == file
            for mutant in mutants(rule)
        ]

    def has(self, file: str, name: str) -> bool:
        """Return whether a file has a rule of that name."""
        return any(place[0] == file and self._name(place) == name for place in self._rules)

    def in_order(self, numbers: Collection[int]) -> list[int]:
        """Return cases in the order in which they are run."""
        return [number for number in self._ranked if number in numbers]

    def below(self, place: Place) -> set[Place]:
        """Return the rule and all that change with it."""
        if place not in self._below:
            found = {place}
            while more := {each for each, reads in self._reads.items() if each not in found and reads & found}:
                found |= more
            self._below[place] = found
        return self._below[place]

    def reached(self, place: Place, stem: str) -> set[Place]:
        """Return what changes with a rule in its own file; for a recording of others, in the tested file too."""
        file = place[0]
        homes = {file} if file.startswith("alerts/") else {file, f"alerts/{stem}.yml", f"recording/{stem}.yml"}
        return {each for each in self.below(place) if each[0] in homes}

    def tests(self, broken: Broken) -> tuple[list[int], list[int], list[int]]:
        """Return which cases can notice a mutant, the likeliest first.

        Those in which something is there of what it changes, then those that expect nothing of it, then those in which
        something could fire besides.
        """
        # Where no series has a cluster, a list without it is the same list.
        is_cluster = re.search(r"without cluster(?: \(\d+\))?$", broken.mutant.what)
        wanted = 'cluster="' if is_cluster else ""
        own: list[int] = []
        foreign: list[int] = []
        others: list[int] = []
        shown: set[int] = set()
        for number in self._ranked:
            stem, test = self.cases[number]
            if not any(wanted in each["series"] for each in test["input_series"]):
                continue
            about = Path(broken.place[0]).stem
            is_own = stem == about or stem.startswith(f"{about}_")
            names = self._names(self.reached(broken.place, stem))
            if names & self._expected[number]:
                (own if is_own else foreign).append(number)
                if names & self._shown[number]:
                    shown.add(number)
            elif is_own:
                others.append(number)
        place = broken.place
        again = [each for each in own if self._scope(place, each, is_named=False) != self._scope(place, each)]
        # A file without tests of its own is proven by those of others.
        named = [*own, *(foreign[:FOREIGN] if own else foreign)]
        first = [each for each in named if each in shown]
        return first, [each for each in named if each not in shown], [*again[:OTHERS], *others[:OTHERS]]

    def rule_files(self, stem: str) -> list[str]:
        """Return the rule files that a file of tests needs."""
        return sorted({place[0] for place in self._needed(stem)})

    def _needed(self, stem: str, begin: str = "") -> set[Place]:
        """Return the rules that tests of a file are about, those that they name, and what all of them stand on."""
        named = set().union(
            *(
                self._expected[number]
                for number, (each, test) in enumerate(self.cases)
                if each == stem and test["name"].startswith(begin)
            )
        )
        about = {each for each in self._rules if Path(each[0]).stem == stem or self._name(each) in named}
        return self._with_sources(about or self._rules)  # where nothing is to fire, that is said of all

    def has_tests(self, stem: str, longest: float) -> bool:
        """Return whether a file has tests that take so many seconds at most."""
        return bool(self._chosen(stem, "", longest))

    def _chosen(self, stem: str, about: str, longest: float) -> list[dict[str, Any]]:
        named = [test for each, test in self.cases if each == stem and test["name"].startswith(about)]
        return [test for test in named if _last(test) <= longest]

    def write_file(self, stem: str, folder: Path, about: str = "", longest: float = math.inf) -> Path:
        """Write a file of tests, or of it those whose names begin so, with the rules that they need.

        `longest`: seconds of a test; longer ones are left out.
        """
        folder.mkdir(exist_ok=True)
        loaded = self._needed(stem, about)
        cases = self._chosen(stem, about, longest)
        assert cases, f"no test of {stem} begins with {about!r}"
        self._write_rules(loaded, lambda place: [self._stripped(place, cases)], folder)
        return self._write_document(stem, [self._restricted(test, loaded) for test in cases], folder)

    def write_file_with_all(self, stem: str, folder: Path) -> Path:
        """Write a file of tests with all rules, but for those that can have no result on its series."""
        cases = [test for each, test in self.cases if each == stem]
        loaded = self._with_results(set().union(*map(metrics_of, cases)))
        self._write_rules(loaded, lambda place: [self._stripped(place, cases)], folder)
        return self._write_document(stem, cases, folder)

    def _with_results(self, shown: set[str]) -> set[Place]:
        found: set[Place] = set()
        while more := {
            place
            for place, rule in self._rules.items()
            if place not in found and promql.may_answer(promql.parse(str(rule["expr"])), shown)
        }:
            found |= more
            shown |= self._names(more)
        return found

    def shortest(self, wanted: Callable[[dict[str, Any]], bool]) -> tuple[str, dict[str, Any]]:
        """Return the file and the shortest of the tests that are wanted, of those played side by side one by itself."""
        return next((stem, each) for stem, each in self.from_shortest() if wanted(each))

    def from_shortest(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield file and test of all, of those played side by side each by itself, from the shortest on."""
        for number in self._ranked:
            stem, test = self.cases[number]
            for each in apart(test):
                yield stem, each

    def write_for_alerts(self, names: Iterable[str], stem: str, test: dict[str, Any], folder: Path) -> Path:
        """Write one test, evaluated as those of a file, with alerts and what they and their texts stand on."""
        folder.mkdir(exist_ok=True)
        alerts = set().union(*(self._made[f"ALERTS {name}"] for name in names))
        texts = " ".join(text for place in alerts for text in self._rules[place]["annotations"].values())
        asked = set().union(*(self._made.get(each, set()) for each in re.findall(r"[\w:]+", texts)))
        loaded = self._with_sources(alerts | asked if _with_texts([test]) else alerts)
        self._write_rules(loaded, lambda place: [self._stripped(place, [test])], folder)
        return self._write_document(stem, [test], folder)

    def write(self, broken: Mapping[int, Broken], number: int, is_named: bool, folder: Path) -> Path:
        """Write one test with the rules that it needs, and beside them a copy for each mutant; return its file."""
        stem, test = self.cases[number]
        scopes = {each: self._scope(one.place, number, is_named) for each, one in broken.items()}
        loaded = set().union(*(scope.loaded for scope in scopes.values()))

        def rules(place: Place) -> list[dict[str, Any]]:
            copies = [
                copied_rule(
                    one.mutant.rule if place == one.place else self._rules[place],
                    scopes[each].names,
                    each,
                    has_texts=self._name(place) in _with_texts([test]),
                )
                for each, one in broken.items()
                if place in scopes[each].copied
            ]
            return [self._stripped(place, [test]), *copies]

        self._write_rules(loaded, rules, folder)
        names = {each: scope.names for each, scope in scopes.items()}
        copy = with_copies(test, self._restricted(test, loaded), names)
        return self._write_document(stem, [copy], folder)

    def _scope(self, place: Place, number: int, is_named: bool = True) -> Scope:
        """Return what a test needs where a rule is broken: all that changes with it, or what of that the test names."""
        if (place, number, is_named) not in self._scopes:
            stem = self.cases[number][0]
            reached = self.reached(place, stem)
            if is_named:
                named = {each for each in reached if self._name(each) in self._expected[number]}
                reached = {place, *(reached & self._with_sources(named))}
            loaded = self._with_sources(reached)
            copied = self.below(place) & loaded
            copied |= self._namesakes(copied)
            self._scopes[place, number, is_named] = Scope(loaded, copied, frozenset(self._names(copied)))
        return self._scopes[place, number, is_named]

    def _write_document(self, stem: str, tests: Sequence[dict[str, Any]], folder: Path) -> Path:
        path = folder / "test.yml"
        document = {**self._documents[stem], "rule_files": ["rules-*.yml"], "tests": tests}
        # The others would be evaluated in an order of chance.
        first = document.get("group_eval_order", [])
        groups = [str(group["name"]) for file in self.files.values() for group in file.groups]
        document["group_eval_order"] = [*first, *(each for each in groups if each not in first)]
        path.write_text(json.dumps(document), encoding="utf-8")
        return path

    def _write_rules(self, loaded: set[Place], rules: Callable[[Place], list[dict[str, Any]]], folder: Path) -> None:
        for number, file in enumerate(sorted({place[0] for place in loaded})):
            groups = []
            for index, group in enumerate(self.files[file].groups):
                places = [(file, index, each) for each in range(len(group["rules"]))]
                kept = [rule for each in places if each in loaded for rule in rules(each)]
                if kept:
                    groups.append({"name": group["name"], "rules": kept})
            (folder / f"rules-{number}.yml").write_text(json.dumps({"groups": groups}), encoding="utf-8")

    def _size(self, number: int) -> float:
        """Return how many evaluations a test takes, the longer with more series."""
        stem, test = self.cases[number]
        return (
            _last(test)
            / parse_duration(self._documents[stem]["evaluation_interval"])
            * (20 + len(test["input_series"]))
        )

    def _title(self, place: Place) -> str:
        """Return the name, numbered where several rules of the file have it."""
        name = self._name(place)
        same = [each for each in self._rules if each[0] == place[0] and self._name(each) == name]
        return name if len(same) == 1 else f"{name} [{same.index(place) + 1}]"

    def _name(self, place: Place) -> str:
        rule = self._rules[place]
        return str(rule.get("alert") or rule["record"])

    def _stripped(self, place: Place, tests: Iterable[dict[str, Any]]) -> dict[str, Any]:
        """Return the rule without texts of which the tests state none: they take longer than all else of it."""
        has_texts = self._name(place) in _with_texts(tests)
        return {key: value for key, value in self._rules[place].items() if has_texts or key != "annotations"}

    def _with_sources(self, places: Iterable[Place]) -> set[Place]:
        return set().union(*map(self._sources_of, places))

    def _sources_of(self, place: Place) -> set[Place]:
        """Return the rule and all that it stands on."""
        if place not in self._closures:
            found = {place}
            while more := (self._above(found) | self._namesakes(found)) - found:
                found |= more
            self._closures[place] = found
        return self._closures[place]

    def _above(self, places: Iterable[Place]) -> set[Place]:
        return {source for each in places for source in self._reads[each]}

    def _namesakes(self, places: Iterable[Place]) -> set[Place]:
        names = self._names(places)
        return {place for place in self._rules if self._name(place) in names}

    def _names(self, places: Iterable[Place]) -> set[str]:
        return {self._name(place) for place in places}

    def _sources(self, expression: str) -> set[Place]:
        found: set[Place] = set()
        for node in promql.parse(expression).walk():
            if node.kind != "selector":
                continue
            matchers = {label: value for label, operator, value in node.matchers if operator in {"=", "=~"}}
            name = node.name or matchers.get("__name__", "")
            if name == "ALERTS" and f"ALERTS {matchers.get('alertname')}" in self._made:
                found |= self._made[f"ALERTS {matchers['alertname']}"]
            elif name in self._made:
                found |= self._made[name]
            elif not node.name:
                found |= {place for made, places in self._made.items() if re.fullmatch(name, made) for place in places}
        return found

    def _restricted(self, test: dict[str, Any], loaded: set[Place]) -> dict[str, Any]:
        """Return the test with what it expects of the rules that are loaded."""
        alerts = self._names(loaded)
        asked = []
        for each in test.get("promql_expr_test", []):
            root = promql.parse(str(each["expr"]))
            if root.kind == "selector" and root.name == "ALERTS":
                samples = [one for one in each.get("exp_samples") or [] if labels(one)["alertname"] in alerts]
                asked.append({**each, "exp_samples": samples})
            elif self._sources(str(each["expr"])) <= loaded:
                asked.append(each)
        fired = [each for each in test.get("alert_rule_test", []) if each["alertname"] in alerts]
        return {**test, "promql_expr_test": asked, "alert_rule_test": fired}


def _with_texts(tests: Iterable[dict[str, Any]]) -> set[str]:
    """Return the alerts whose texts the tests state."""
    return {each["alertname"] for test in tests for each in test.get("alert_rule_test", [])}


def _last(test: dict[str, Any]) -> float:
    """Return the last moment of a test, in seconds."""
    return max(time_of(each) for each in [*test.get("promql_expr_test", []), *test.get("alert_rule_test", [])])


def _names_in(test: dict[str, Any]) -> set[str]:
    """Return the names that the expectations of a test have, alerts and recordings among them."""
    expected = json.dumps([test.get("promql_expr_test"), test.get("alert_rule_test")]).replace("\\n", " ")
    return set(re.findall(r"[\w:]+", expected))


def _names_shown(test: dict[str, Any]) -> set[str]:
    """Return the names of which a test expects that something is there."""
    asked = [each for each in test.get("promql_expr_test") or [] if each.get("exp_samples")]
    fired = [each for each in test.get("alert_rule_test") or [] if each.get("exp_alerts")]
    is_of_all = [each for each in asked if str(each["expr"]).startswith("ALERTS")]
    samples = [each["exp_samples"] for each in is_of_all]
    found = json.dumps([samples, [each for each in asked if each not in is_of_all], fired]).replace("\\n", " ")
    return set(re.findall(r"[\w:]+", found))


def judge(file: str, bundle: Bundle, promtool: Path, jobs: int, rules: Collection[str] = ()) -> Score:
    """Break each rule of a file, or of it those with the names in `rules`, in each way, and run the tests on it."""
    broken = [each for each in bundle.broken(file) if not rules or each.name.split(" [")[0] in rules]
    reasons = equivalents(file)
    score = Score(file, len(broken), sum(each.title in reasons for each in broken))
    left = {each for each in broken if each.title not in reasons}
    tests = {each: bundle.tests(each) for each in left}
    for which in range(3):

        def caught(number: int, which: int = which) -> None:
            """Take away what one test notices; whatever another has noticed by then is not broken for it."""
            chosen = [each for each in broken if each in left and number in tests[each][which]]
            for at in range(0, len(chosen), COPIES):
                left.difference_update(_caught(bundle, promtool, number, which < 2, chosen[at : at + COPIES]))

        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(caught, bundle.in_order({number for each in left for number in tests[each][which]})))
    score.survivors = [each.title for each in broken if each in left]
    return score


def equivalents(file: str) -> dict[str, str]:
    """Return the mutants of a file that change nothing that could be seen, each with the reason."""
    path = EQUIVALENT / file
    return (yaml.safe_load(path.read_text(encoding="utf-8")) or {}) if path.exists() else {}


def _caught(bundle: Bundle, promtool: Path, number: int, is_named: bool, broken: Sequence[Broken]) -> set[Broken]:
    """Return those of the mutants that a test notices."""
    left = dict(enumerate(broken))
    while left:
        with tempfile.TemporaryDirectory() as name:
            file = bundle.write(left, number, is_named, Path(name))
            done = evaluate(promtool, file)
        if done.returncode == 0:
            break
        # It names a mutant, and has judged none.
        if refused := unreadable(done.stdout):
            raise RuntimeError(f"promtool cannot read what was broken: {refused}")
        # What is whole must pass, or what is caught proves nothing.
        if whole := [each for each in failures(done.stdout) if not numbers_in(each)]:
            raise RuntimeError(f"{bundle.cases[number][1]['name']}: fails although nothing is broken: {whole[0]}")
        caught = numbers_in(done.stdout) & left.keys()
        if not caught:
            raise RuntimeError(f"promtool fails, and names no mutant: {done.stdout[:2000]}")
        left = {each: one for each, one in left.items() if each not in caught}
        # A rule that cannot be evaluated ends the test for the others too.
        if ", err: " not in done.stdout:
            break
    return {one for each, one in enumerate(broken) if each not in left}


def written(page: str, scores: Iterable[Score]) -> str:
    """Return the page with the scores between its markers, as a table; those of other files stay."""
    begin, end = "<!-- broken rules: measured -->\n", "<!-- end: broken rules -->"
    head, begun, rest = page.partition(begin)
    old, ended, tail = rest.partition(end)
    if not begun or not ended:
        raise ValueError(f"the page has no markers {begin.strip()} and {end}")
    rows = {
        row.split(" | ")[0].strip("| "): row
        for row in old.splitlines()
        if row.startswith(("| recording/", "| alerts/"))
    }
    for each in scores:
        noticed = each.mutants - each.equivalent - len(each.survivors)
        rows[each.file] = f"| {each.file} | {each.mutants} | {noticed} | {each.equivalent} | {each.ratio:.1%} |"
    lines = ["| rules | broken | noticed | equivalent | score |", "|---|---:|---:|---:|---:|", *rows.values()]
    return f"{head}{begin}\n{chr(10).join(lines)}\n\n{end}{tail}"


def main() -> int:
    """Print the score and the survivors of each file; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE")
    parser.add_argument("--write", type=Path, metavar="PAGE", help="write the scores into this page; for all files")
    parser.add_argument("--rule", action="append", default=[], metavar="NAME", help="break only the rules of this name")
    parser.add_argument("--jobs", type=int, default=1)
    arguments = parser.parse_args()
    if arguments.rule and arguments.write:
        parser.error("--write: expected whole files, got --rule")
    bundle = Bundle(ROOT / "rules")
    files = ["/".join(Path(file).parts[-2:]) for file in arguments.files] or list(bundle.files)
    if unknown := [file for file in files if file not in bundle.files]:
        parser.error(f"{unknown[0]}: expected one of {', '.join(bundle.files)}")
    if unnamed := [name for name in arguments.rule if not any(bundle.has(file, name) for file in files)]:
        parser.error(f"{unnamed[0]}: expected an alert or a recording of {', '.join(files)}")
    scores = []
    for file in files:
        score = judge(file, bundle, find_tools().promtool, arguments.jobs, arguments.rule)
        print(score, *(f"  survived: {each}" for each in score.survivors), sep="\n", flush=True)
        scores.append(score)
    if arguments.write:
        arguments.write.write_text(written(arguments.write.read_text(encoding="utf-8"), scores), encoding="utf-8")
    return 1 if any(score.survivors for score in scores) else 0


if __name__ == "__main__":
    sys.exit(main())
