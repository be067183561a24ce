"""Other flags change only the collectors that they concern."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from trainwarden_exporter import crew, members
from trainwarden_exporter.crew import Crew
from trainwarden_exporter.errors import UsageError
from trainwarden_exporter.node import Node


class Member:
    """Knows what became of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.said: list[str] = []

    def start(self) -> None:
        self.said.append("start")

    def stop(self) -> None:
        self.said.append("stop")

    def release(self) -> bool:
        self.said.append("release")
        return True


class Kind:
    """A collector of a test, and its own wiring."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.there = True
        self.made: list[Member] = []

    @property
    def wiring(self) -> Kind:
        return self

    def present(self, node: Node, flags: Mapping[str, Any]) -> bool:
        return self.there and flags[f"collector.{self.name}.place"] != "nowhere"

    def member(self, node: Node, flags: Mapping[str, Any], board: object) -> Member:
        if flags[f"collector.{self.name}.value"] == "wrong":
            raise UsageError(f"{self.name} is wrong")
        if flags[f"collector.{self.name}.value"] == "faulty":
            raise RuntimeError(f"{self.name} is faulty")
        self.made.append(Member(self.name))
        return self.made[-1]


Kinds = dict[str, Kind]


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> Kinds:
    made = {name: Kind(name) for name in "abc"}
    for module in (crew, members):
        monkeypatch.setattr(module, "KINDS", tuple(made.values()))
    return made


def node(host: str = "n") -> Node:
    return Node(host, Path("/sys"), Path("/proc"), Path("/"))


def flags(**given: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"collector.disable_defaults": False, "compat.finetuning": False}
    for name in "abc":
        found |= {f"collector.{name}": None, f"collector.{name}.value": 1, f"collector.{name}.place": ""}
    return found | {f"collector.{name.replace('_', '.')}": value for name, value in given.items()}


def names(of: Crew) -> list[str]:
    return [member.name for member in of.members]


def test_only_what_reads_a_flag_is_made_again_by_it(kinds: Kinds) -> None:
    running = Crew(node(), flags())
    before = running.members
    assert running.follow(node(), flags(b_value=2)) == "changed b"
    assert [new is old for new, old in zip(running.members, before, strict=True)] == [True, False, True]
    assert kinds["b"].made[0].said == ["release", "stop"]
    assert kinds["b"].made[1].said == ["start"]
    assert running.follow(node(), flags(b_value=2)) == ""
    assert running.follow(node("other"), flags(b_value=2)) == "changed a, b, c"


def test_collectors_come_and_go_and_keep_their_order(kinds: Kinds) -> None:
    running = Crew(node(), flags(b=False))
    assert names(running) == ["a", "c"]
    assert running.follow(node(), flags(a=False)) == "started b; stopped a"
    assert names(running) == ["b", "c"]
    assert kinds["a"].made[0].said == ["release", "stop"]


def test_what_is_no_longer_found_stays_in_sight_until_the_flags_say_otherwise(kinds: Kinds) -> None:
    running = Crew(node(), flags())
    kinds["a"].there = False
    running.follow(node(), flags(c_value=2))
    assert names(running) == ["a", "b", "c"]
    running.follow(node(), flags(a_place="nowhere"))
    assert names(running) == ["b", "c"]


def test_what_was_not_found_at_the_start_is_looked_for_again(kinds: Kinds) -> None:
    kinds["a"].there = False
    running = Crew(node(), flags())
    assert names(running) == ["b", "c"]
    kinds["a"].there = True
    assert running.follow(node(), flags()) == "started a"


def test_a_new_collector_that_cannot_be_had_leaves_the_others_untouched(kinds: Kinds) -> None:
    running = Crew(node(), flags(a=False))
    before = running.members
    with pytest.raises(UsageError, match="a is wrong"):
        running.follow(node(), flags(a_value="wrong", b_value=2))
    assert running.members == before
    assert [member.said for member in kinds["b"].made] == [[]]


def test_a_changed_collector_that_cannot_be_had_is_made_again_as_it_was(kinds: Kinds) -> None:
    running = Crew(node(), flags(c=False))
    with pytest.raises(UsageError, match="b is wrong"):
        running.follow(node(), flags(a_value=2, b_value="wrong"))
    assert names(running) == ["a", "b"]
    assert [kinds[name].made[-1].said for name in "ab"] == [["start"], ["start"]]
    assert running.follow(node(), flags(c=False)) == ""


def test_a_fault_of_one_that_is_made_leaves_all_as_it_was(kinds: Kinds) -> None:
    running = Crew(node(), flags(c=False))
    for wrong in (flags(a_value=2, b_value="faulty", c=False), flags(c_value="faulty", a_value=2)):
        with pytest.raises(RuntimeError, match="is faulty"):
            running.follow(node(), wrong)
        assert names(running) == ["a", "b"]
        assert [kinds[name].made[-1].said for name in "ab"] == [["start"], ["start"]]


def test_nothing_at_all_is_a_mistake(kinds: Kinds) -> None:
    running = Crew(node(), flags())
    with pytest.raises(UsageError, match="no collector is left"):
        running.follow(node(), flags(a=False, b=False, c=False))
    assert names(running) == ["a", "b", "c"]
