"""Other flags change only the collectors that they concern."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest

from trainwarden.errors import UsageError
from trainwarden_exporter.collector_set import CollectorSet
from trainwarden_exporter.core.node import Node
from trainwarden_exporter.core.spec import CollectorSpec, Context
from trainwarden_exporter.sampling.task import CollectorRunner


class FakeRunner:
    """Records the calls it gets."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.calls: list[str] = []

    def start(self) -> None:
        self.calls.append("start")

    def stop(self) -> None:
        self.calls.append("stop")

    def release(self) -> bool:
        self.calls.append("release")
        return True


class Fake:
    """A collector whose flags decide whether it can be created; keeps the runners that it created."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.there = True
        self.made: list[FakeRunner] = []
        self.spec = CollectorSpec(name, name, "1s", "1s", create=self.create, enabled=self.enabled)

    def enabled(self, context: Context) -> bool:
        return self.there and context.flags[f"collector.{self.name}.place"] != "nowhere"

    def create(self, context: Context) -> CollectorRunner:
        value = context.flags[f"collector.{self.name}.value"]
        if value == "wrong":
            raise UsageError(f"{self.name} is wrong")
        if value == "faulty":
            raise RuntimeError(f"{self.name} is faulty")
        self.made.append(FakeRunner(self.name))
        return cast("CollectorRunner", self.made[-1])


Fakes = dict[str, Fake]


@pytest.fixture
def fakes() -> Fakes:
    return {name: Fake(name) for name in "abc"}


def running_set(fakes: Fakes, flags: dict[str, Any]) -> CollectorSet:
    return CollectorSet(node(), flags, [fake.spec for fake in fakes.values()])


def node(host: str = "n") -> Node:
    return Node(host, Path("/sys"), Path("/proc"), Path("/"))


def flags(**given: Any) -> dict[str, Any]:
    found: dict[str, Any] = {"collector.disable_defaults": False, "compat.finetuning": False}
    for name in "abc":
        found |= {f"collector.{name}": None, f"collector.{name}.value": 1, f"collector.{name}.place": ""}
    return found | {f"collector.{name.replace('_', '.')}": value for name, value in given.items()}


def names(of: CollectorSet) -> list[str]:
    return [member.name for member in of.runners]


def test_only_what_reads_a_flag_is_made_again_by_it(fakes: Fakes) -> None:
    running = running_set(fakes, flags())
    before = running.runners
    assert running.reconfigure(node(), flags(b_value=2)) == "changed b"
    assert [new is old for new, old in zip(running.runners, before, strict=True)] == [True, False, True]
    assert fakes["b"].made[0].calls == ["release", "stop"]
    assert fakes["b"].made[1].calls == ["start"]
    assert running.reconfigure(node(), flags(b_value=2)) == ""
    assert running.reconfigure(node("other"), flags(b_value=2)) == "changed a, b, c"


def test_collectors_come_and_go_and_keep_their_order(fakes: Fakes) -> None:
    running = running_set(fakes, flags(b=False))
    assert names(running) == ["a", "c"]
    assert running.reconfigure(node(), flags(a=False)) == "started b; stopped a"
    assert names(running) == ["b", "c"]
    assert fakes["a"].made[0].calls == ["release", "stop"]


def test_what_is_no_longer_found_stays_in_sight_until_the_flags_say_otherwise(fakes: Fakes) -> None:
    running = running_set(fakes, flags())
    fakes["a"].there = False
    running.reconfigure(node(), flags(c_value=2))
    assert names(running) == ["a", "b", "c"]
    running.reconfigure(node(), flags(a_place="nowhere"))
    assert names(running) == ["b", "c"]


def test_what_was_not_found_at_the_start_is_looked_for_again(fakes: Fakes) -> None:
    fakes["a"].there = False
    running = running_set(fakes, flags())
    assert names(running) == ["b", "c"]
    fakes["a"].there = True
    assert running.reconfigure(node(), flags()) == "started a"


def test_a_new_collector_that_cannot_be_had_leaves_the_others_untouched(fakes: Fakes) -> None:
    running = running_set(fakes, flags(a=False))
    before = running.runners
    with pytest.raises(UsageError, match="a is wrong"):
        running.reconfigure(node(), flags(a_value="wrong", b_value=2))
    assert running.runners == before
    assert [member.calls for member in fakes["b"].made] == [[]]


def test_a_changed_collector_that_cannot_be_had_is_made_again_as_it_was(fakes: Fakes) -> None:
    running = running_set(fakes, flags(c=False))
    with pytest.raises(UsageError, match="b is wrong"):
        running.reconfigure(node(), flags(a_value=2, b_value="wrong"))
    assert names(running) == ["a", "b"]
    assert [fakes[name].made[-1].calls for name in "ab"] == [["start"], ["start"]]
    assert running.reconfigure(node(), flags(c=False)) == ""


def test_a_fault_of_one_that_is_made_leaves_all_as_it_was(fakes: Fakes) -> None:
    running = running_set(fakes, flags(c=False))
    for wrong in (flags(a_value=2, b_value="faulty", c=False), flags(c_value="faulty", a_value=2)):
        with pytest.raises(RuntimeError, match="is faulty"):
            running.reconfigure(node(), wrong)
        assert names(running) == ["a", "b"]
        assert [fakes[name].made[-1].calls for name in "ab"] == [["start"], ["start"]]


def test_nothing_at_all_is_a_mistake(fakes: Fakes) -> None:
    running = running_set(fakes, flags())
    with pytest.raises(UsageError, match="no collector is left"):
        running.reconfigure(node(), flags(a=False, b=False, c=False))
    assert names(running) == ["a", "b", "c"]
