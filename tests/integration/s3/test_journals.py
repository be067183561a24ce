"""Journals of a run that moves to another node: earlier attempts' lines stay."""

import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.s3.faulty_server import FaultyServer
from tests.integration.s3.records import KEY, Node, encoded, metadata
from tests.integration.s3.store import Store
from tests.unit.library.processes import Script
from trainwarden.record.attempt import begin_attempt
from trainwarden.s3 import startup

OLD = b'{"event":"attempt_started","attempt":0}\n'
NEW = b'{"event":"attempt_started","attempt":1}\n'


def start(node: Node) -> None:
    """What `run()` does, up to the first line of its journal."""
    node.startup.restore()
    begin_attempt(node.folder, KEY, time.time(), {})
    node.startup.begin()
    node.mirror.put("metadata.json", encoded(metadata(KEY)))
    with (node.folder / "events.jsonl").open("ab") as journal:
        journal.write(NEW)
    node.mirror.put_file("events.jsonl", node.folder / "events.jsonl")


def lines(data: bytes) -> list[dict[str, Any]]:
    return [json.loads(line) for line in data.splitlines()]


def test_a_run_that_moves_to_another_node_keeps_the_journals_of_all_its_attempts(
    store: Store, script: Script, tmp_path: Path
) -> None:
    """Whole processes, one after the other, each with an empty folder of its own."""
    code = f"""
import trainwarden
with trainwarden.run("r", s3={store.url!r}) as run:
    run.step(1)
    raise ValueError("lost")
"""
    for number in (0, 1, 2):
        script.runs = tmp_path / f"node-{number}"
        script.folder = script.runs / "r"
        assert script.run(code, TRAINWARDEN_ATTEMPT_KEY=f"slurm:7:{number}").returncode == 1
        assert [line["attempt"] for line in lines(store.read("errors.jsonl"))] == list(range(number + 1))
        told = [line["event_type"] for line in lines(store.read("events.jsonl"))]
        assert told.count("error") == number + 1
        for name in ("events.jsonl", "errors.jsonl"):
            assert (script.folder / name).read_bytes() == store.read(name)
    assert not [name for name in store.names() if ".before-" in name]


def test_the_older_part_of_a_journal_moves_too(store: Store, tmp_path: Path) -> None:
    store.write("events.jsonl", OLD)
    store.write("events.jsonl.1", b"older\n")
    node = Node(store, tmp_path / "r")
    start(node)
    assert node.mirror.close(20)
    assert (node.folder / "events.jsonl.1").read_bytes() == store.read("events.jsonl.1") == b"older\n"
    assert store.read("events.jsonl") == OLD + NEW


@pytest.mark.parametrize("here", [OLD, OLD + b'{"event":"error"}\n'], ids=["behind", "ahead"])
def test_a_run_that_returns_to_a_node_goes_on_from_the_longer_journal(
    store: Store, tmp_path: Path, here: bytes
) -> None:
    longer = OLD + b'{"event":"error"}\n'
    store.write("events.jsonl", OLD if here == longer else longer)
    node = Node(store, tmp_path / "r")
    (node.folder / "events.jsonl").write_bytes(here)
    start(node)
    assert node.mirror.close(20)
    assert store.read("events.jsonl") == longer + NEW
    assert store.names() == {"metadata.json", "events.jsonl"}


def test_a_journal_that_the_folder_does_not_go_on_from_is_set_aside(store: Store, tmp_path: Path) -> None:
    store.write("events.jsonl", OLD)
    node = Node(store, tmp_path / "r")
    (node.folder / "events.jsonl").write_bytes(b'{"event":"other"}\n')
    start(node)
    assert node.mirror.close(20)
    (kept,) = (name for name in store.names() if name.startswith("events.jsonl.before-"))
    assert (store.read(kept), store.read("events.jsonl")) == (OLD, b'{"event":"other"}\n' + NEW)


def test_s3_that_answers_late_keeps_the_journal_it_had(
    store: Store, s3: FaultyServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.write("events.jsonl", OLD)
    s3.fault = "black hole"
    monkeypatch.setattr(startup, "START_SECONDS", 0.1)
    node = Node(store, tmp_path / "r")
    start(node)
    s3.fault = ""
    s3.released.set()
    assert node.mirror.close(20)
    (kept,) = (name for name in store.names() if name.startswith("events.jsonl.before-"))
    assert (store.read(kept), store.read("events.jsonl")) == (OLD, NEW)


def test_a_journal_that_may_not_be_read_is_not_replaced(store: Store, s3: FaultyServer, tmp_path: Path) -> None:
    store.write("events.jsonl", OLD)
    s3.fault = "no reading"
    node = Node(store, tmp_path / "r")
    start(node)
    assert node.mirror.close(20)
    (beside,) = (name for name in store.names() if name.startswith("events.jsonl.since-"))
    assert (store.read("events.jsonl"), store.read(beside)) == (OLD, NEW)
