"""Which collectors run, and what becomes of them where one cannot be had."""

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


def test_those_run_that_a_flag_switches_on_or_that_find_something_in_the_order_of_the_registry(fakes: Fakes) -> None:
    fakes["a"].there = fakes["b"].there = False
    assert names(running_set(fakes, flags())) == ["c"]
    assert names(running_set(fakes, flags(a=True))) == ["a", "c"]
    assert names(running_set(fakes, flags(a=True, c=False))) == ["a"]


def test_none_is_started_and_all_are_ended_where_one_cannot_be_had(fakes: Fakes) -> None:
    for value, error in (("wrong", UsageError), ("faulty", RuntimeError)):
        with pytest.raises(error, match=f"b is {value}"):
            running_set(fakes, flags(b_value=value))
        assert fakes["a"].made[-1].calls == ["stop"]
        assert fakes["c"].made == []


def test_nothing_at_all_is_a_mistake(fakes: Fakes) -> None:
    with pytest.raises(UsageError, match="no collector is left"):
        running_set(fakes, flags(a=False, b=False, c=False))
