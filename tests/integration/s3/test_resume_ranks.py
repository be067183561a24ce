"""Ranks on nodes that share no folder resume from the checkpoint that rank 0 chose: S3 carries its choice."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.integration.s3.records import KEY, Node, encoded, here, metadata
from tests.integration.s3.store import Store
from tests.unit.checkpoint import formats
from tests.unit.library.processes import Script, line
from tests.waiting import wait_until
from trainwarden.record.attempt import begin_attempt
from trainwarden.record.clock import to_iso

pytestmark = pytest.mark.process

_RESUME = """
    import sys, trainwarden
    with trainwarden.run("r", s3={url!r}) as run:
        print("begun", flush=True)
        print(run.resume_checkpoint(wait_seconds=100), flush=True)
        sys.stdin.readline()
"""


class Nodes:
    """Ranks of one attempt, each with an empty folder of its own."""

    def __init__(self, script: Script, store: Store) -> None:
        self._script = script
        self._code = _RESUME.format(url=store.url)

    def start(self, rank: int, **environment: str) -> subprocess.Popen[str]:
        """Start a rank, and wait until its run has begun."""
        runs = self._script.runs / f"node-{rank}"
        launcher = {"RANK": str(rank), "WORLD_SIZE": "2", "TRAINWARDEN_ATTEMPT_KEY": str(KEY)}
        process = self._script.start(self._code, **{**launcher, "TRAINWARDEN_RUNS_DIR": str(runs), **environment})
        assert line(process.stdout) == "begun\n"
        return process


@pytest.fixture
def nodes(script: Script, store: Store) -> Nodes:
    return Nodes(script, store)


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    path = tmp_path / "checkpoints" / "step_10"
    for name, data in formats.dcp().items():
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(data)
    return path


@pytest.mark.slow
def test_a_rank_on_another_node_obeys_rank_0(store: Store, nodes: Nodes, checkpoint: Path) -> None:
    # Of an earlier start within the attempt, by a launcher: it must not be obeyed.
    stale = {"attempt_key": str(KEY), "path": "/old", "time": to_iso(time.time() - 3600), **here(2**22 + 1)}
    store.write("resume.json", stale)
    store.write("metadata.json", metadata(KEY, 1, **here(2**22 + 1), last_update=stale["time"]))
    other = nodes.start(1)
    first = nodes.start(0, TRAINWARDEN_RESUME_CHECKPOINT=str(checkpoint))
    assert line(first.stdout) == f"{checkpoint}\n"
    assert line(other.stdout) == f"{checkpoint}\n"
    assert store.document("resume.json")["path"] == str(checkpoint)


@pytest.mark.slow
def test_nothing_to_resume_from_is_a_choice_too(nodes: Nodes) -> None:
    other = nodes.start(1)
    first = nodes.start(0)
    assert [line(process.stdout) for process in (first, other)] == ["None\n"] * 2


def test_the_next_start_of_rank_0_removes_the_choice_of_the_one_before(store: Store, tmp_path: Path) -> None:
    old = {"attempt_key": str(KEY), "path": "/old", "time": to_iso(time.time() - 60)}
    store.write("resume.json", old)
    node = Node(store, tmp_path / "r", KEY)
    node.startup.restore()
    begin_attempt(node.folder, KEY, time.time(), {})
    node.startup.begin()
    node.mirror.put("metadata.json", encoded(metadata(KEY)))
    wait_until(lambda: "metadata.json" in store.names())
    assert "resume.json" not in store.names()
    node.mirror.put("resume.json", encoded({**old, "time": to_iso(time.time() + 1)}))
    assert node.mirror.close(20)
    assert "resume.json" in store.names()
