"""A run that continues on a node where only S3 has its record."""

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.s3.faulty_server import FaultyServer
from tests.integration.s3.records import KEY, OLDER, Node, encoded, error, here, metadata
from tests.integration.s3.store import Store
from tests.unit.library.processes import Script
from tests.waiting import wait_until
from trainwarden.identity import AttemptKey
from trainwarden.record.attempt import AttemptStart, begin_attempt
from trainwarden.record.clock import to_iso
from trainwarden.record.ownership import RunRefused
from trainwarden.s3 import startup

STRANGER = AttemptKey("slurm", "6", 0)


@pytest.fixture
def node(store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    """A node that never saw the run."""
    monkeypatch.setattr(startup, "POLL_SECONDS", 0.05)
    made = Node(store, tmp_path / "r", KEY)
    yield made
    made.startup.abandon()


def arrive(node: Node) -> AttemptStart:
    """What `run()` does."""
    node.startup.restore()
    beginning = begin_attempt(node.folder, KEY, time.time(), {})
    node.startup.begin()
    node.mirror.put("metadata.json", encoded(metadata(KEY, beginning.this.attempt)))
    return beginning


def test_a_run_moved_to_a_new_node_goes_on_as_the_next_attempt(store: Store, script: Script, tmp_path: Path) -> None:
    """Whole processes, one after the other, each with an empty folder of its own."""
    code = f"""
import os, trainwarden
with trainwarden.run("r", s3={store.url!r}) as run:
    for step in range(int(os.environ["FROM"]), 1 + int(os.environ["TO"])):
        run.step(step)
        run.checkpoint_saved(os.environ["SAVED"])
    print(run.resume_checkpoint())
    1 / (5 - step)
"""
    saved = tmp_path / "step_5"
    saved.write_bytes(b"weights")
    lost = script.run(code, FROM="1", TO="5", SAVED=str(saved), TRAINWARDEN_ATTEMPT_KEY="slurm:7:0")
    assert lost.returncode == 1 and {"_error", "checkpoint.json"} <= store.names()
    script.runs = tmp_path / "another-node"
    script.folder = script.runs / "r"
    moved = script.run(code, FROM="4", TO="6", SAVED=str(saved), TRAINWARDEN_ATTEMPT_KEY="slurm:7:1")
    assert (moved.returncode, moved.stdout) == (0, f"{saved}\n")
    said, progress = store.document("metadata.json"), store.document("progress.json")
    assert [(one["attempt"], one["key"]) for one in said["attempts"]] == [(0, "slurm:7:0"), (1, "slurm:7:1")]
    assert (progress["high_water"], progress["steps_completed"], progress["checkpoint"]["count"]) == (6, 8, 8)
    assert "_error" not in store.names() and "_complete" in store.names()
    assert store.document("_error.0")["attempt_key"] == "slurm:7:0"
    assert (script.folder / "_error.0").read_bytes() == store.read("_error.0")


def test_plain_text_of_another_tool_is_set_aside_and_keeps_its_time(store: Store, node: Node) -> None:
    store.write("metadata.json", {"run_id": "r", "status": "failed", "phase": "training"})
    store.write("_error", b"CUDA out of memory\n")
    written = store.client.head_object(Bucket=store.bucket, Key=store.record.key("_error"))["LastModified"].timestamp()
    beginning = arrive(node)
    assert beginning.this.attempt == 0
    kept = node.folder / "_error.0"
    assert (kept.read_bytes(), kept.stat().st_mtime) == (b"CUDA out of memory\n", written)
    assert node.mirror.close(20)
    assert store.names() == {"metadata.json", "_error.0"} and store.read("_error.0") == b"CUDA out of memory\n"


def test_a_rank_that_failed_before_rank_0_began_is_not_set_aside(store: Store, node: Node) -> None:
    store.write("_error", error(KEY, None))
    arrive(node)
    assert (node.folder / "_error").exists() and node.mirror.close(20)
    assert "_error" in store.names()


@pytest.mark.parametrize("newer", ["folder", "s3"])
def test_the_newer_record_counts_wherever_it_is(store: Store, node: Node, newer: str) -> None:
    """A run that comes back to a node finds what it left there then; S3 may have been away meanwhile."""
    old = metadata(AttemptKey("slurm", "7", 0), 0, status="failed")
    new = metadata(AttemptKey("slurm", "7", 4), 4, status="failed")
    behind = {"last_updated": "2026-01-01T00:00:00Z", "step": 5, "high_water": 5}
    ahead = {"last_updated": "2026-01-02T00:00:00Z", "step": 70, "high_water": 70}
    (node.folder / "metadata.json").write_bytes(encoded(new if newer == "folder" else old))
    (node.folder / "progress.json").write_bytes(encoded(ahead if newer == "folder" else behind))
    store.write("metadata.json", old if newer == "folder" else new)
    store.write("progress.json", behind if newer == "folder" else ahead)
    beginning = arrive(node)
    assert (beginning.this.attempt, beginning.steps.high_water) == (5, 70)


def test_an_attempt_that_a_launcher_announced_here_does_not_hide_those_elsewhere(store: Store, node: Node) -> None:
    store.write("metadata.json", metadata(OLDER, 0, status="failed"))
    (node.folder / "metadata.json").write_bytes(encoded(metadata(KEY, 0, status="pending", **here(os.getpid()))))
    assert arrive(node).this.attempt == 1


def test_what_cannot_be_read_in_s3_does_not_count(store: Store, node: Node) -> None:
    store.write("metadata.json", b"\x00not json")
    store.write("progress.json", b"[]")
    (node.folder / "metadata.json").write_bytes(encoded(metadata(OLDER, 2)))
    assert arrive(node).this.attempt == 3
    assert {path.name for path in node.folder.iterdir()} == {"metadata.json"}


def test_a_run_that_lives_elsewhere_refuses_a_second_one(store: Store, node: Node) -> None:
    store.write("metadata.json", metadata(STRANGER, 0))
    beats: list[dict[str, Any]] = []
    fetch = node.mirror.fetch_record

    def beat_and_fetch(timeout_seconds: float) -> Any:
        if len(beats) == 2:
            store.write("metadata.json", metadata(STRANGER, 0, last_update=to_iso(time.time() + 5)))
        beats.append({})
        return fetch(20)

    node.mirror.fetch_record = beat_and_fetch  # type: ignore[method-assign]  # the other run beats while this one waits
    with pytest.raises(RunRefused, match=r"belongs to a live run: process 1 on host elsewhere, attempt slurm:6:0"):
        arrive(node)
    node.startup.abandon()
    assert store.document("metadata.json")["attempt_key"] == str(STRANGER)
    assert list(node.folder.iterdir()) == []


@pytest.mark.parametrize(
    "said",
    [
        metadata(STRANGER, 0, last_update="2020-01-01T00:00:00Z"),
        metadata(STRANGER, 0, status="failed"),
        metadata(OLDER, 0),
        metadata(STRANGER, 0, **here(2**22 + 1)),
    ],
    ids=["silent", "ended", "the same job's start before", "a process of this host that is gone"],
)
def test_a_run_that_lives_no_more_is_taken_over_at_once(
    store: Store, node: Node, said: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    store.write("metadata.json", said)
    assert arrive(node).this.attempt == 1
    assert "waiting" not in caplog.text


def test_a_run_that_was_lost_a_moment_ago_is_taken_over_when_it_stays_silent(
    store: Store, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden.record.ownership.FRESH_SECONDS", 0.5)
    store.write("metadata.json", metadata(STRANGER, 0))
    assert arrive(node).this.attempt == 1


def test_s3_that_answers_late_loses_nothing_of_what_it_held(
    store: Store, s3: FaultyServer, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The attempt began without it, and is number 0; what it did not know is kept beside."""
    before = metadata(AttemptKey("slurm", "7", 0), 3, status="failed")
    store.write("metadata.json", before)
    store.write("progress.json", {"step": 70, "attempt": 3})
    store.write("_error", error(AttemptKey("slurm", "7", 0), 3, seconds_ago=500))
    s3.fault = "black hole"
    monkeypatch.setattr(startup, "START_SECONDS", 0.1)
    beginning = arrive(node)
    assert beginning.this.attempt == 0 and node.state["last_error"] is not None
    s3.fault = ""
    s3.released.set()
    assert node.mirror.close(20)
    names = store.names()
    kept = [name for name in names if name.startswith("metadata.json.before-")]
    assert len(kept) == 1 and store.document(kept[0]) == before
    assert "_error" not in names and "_error.3" in names
    assert store.document("metadata.json")["attempt_key"] == str(KEY)


def test_s3_that_answers_late_and_belongs_to_a_live_run_is_left_alone(
    store: Store, s3: FaultyServer, node: Node
) -> None:
    store.write("metadata.json", metadata(STRANGER, 0))
    s3.fault = "reset"
    arrive(node)
    s3.fault = ""
    wait_until(lambda: node.state["last_error"] == "AnotherAttempt")
    node.mirror.put("progress.json", b"{}")
    node.mirror.close(20)
    assert store.names() == {"metadata.json"}
    assert store.document("metadata.json")["attempt_key"] == str(STRANGER)


def test_a_policy_that_forbids_to_look_does_not_forbid_to_write(store: Store, s3: FaultyServer, node: Node) -> None:
    """Without s3:ListBucket, S3 answers a question for what is not there with AccessDenied."""
    s3.fault = "no reading"
    arrive(node)
    node.mirror.put("_error", encoded(error(KEY, 0)))
    assert node.mirror.close(20)
    assert store.names() == {"metadata.json", "_error"}
    assert node.state["last_error"] == "AccessDenied"
