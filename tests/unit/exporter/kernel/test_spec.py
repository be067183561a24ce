"""Where the kernel's log is read."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from tests.unit.exporter.contexts import context
from trainwarden_exporter.collectors.kernel import collector as spec
from trainwarden_exporter.core.node import Node

if TYPE_CHECKING:
    from pathlib import Path

FLAGS = {"collector.kernel.interval": 5.0, "collector.kernel.timeout": 5.0}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    (tmp_path / "dev").mkdir()
    return Node("n", rootfs=tmp_path)


@pytest.fixture
def journal(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    path = node.rootfs / "run/log/journal/0123/system.journal"
    path.parent.mkdir(parents=True)
    path.touch()


def source(node: Node) -> str:
    sampler = spec.create(context(spec.SPEC, node, FLAGS))
    collector = sampler.task.read.__self__  # type: ignore[attr-defined]  # a bound method
    return str(collector._source)


def test_a_node_without_either_has_nothing_for_it(node: Node) -> None:
    assert not spec.enabled(context(spec.SPEC, node, FLAGS))


def test_kmsg_is_preferred_to_the_journal(node: Node, journal: None) -> None:
    assert spec.enabled(context(spec.SPEC, node, FLAGS))
    assert source(node) == "journal"
    (node.rootfs / "dev/kmsg").touch()
    assert source(node) == "kmsg"


def test_a_kmsg_that_may_not_be_read_leaves_the_journal(
    node: Node, journal: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    (node.rootfs / "dev/kmsg").touch()

    def refuse(*_: object) -> int:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(os, "open", refuse)
    assert source(node) == "journal"


def test_asked_for_without_either_it_fails_and_gives_the_reason(node: Node) -> None:
    sampler = spec.create(context(spec.SPEC, node, FLAGS))
    sampler.sample()
    assert "does not exist here" in str(sampler.status().error)
