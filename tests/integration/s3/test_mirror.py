"""The copy of a record in S3, with S3 working, slow, refusing and absent."""

import os
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.integration.s3.faulty_server import FaultyServer
from tests.integration.s3.records import KEY, OLDER, Node, encoded, error, metadata
from tests.integration.s3.store import Store
from tests.waiting import wait_until
from trainwarden.clients import s3 as s3_client
from trainwarden.identity import AttemptKey
from trainwarden.s3 import mirror, upload_queue

Start = Callable[..., Node]


@pytest.fixture
def start(store: Store, tmp_path: Path) -> Iterator[Start]:
    started: list[Node] = []

    def begin(key: AttemptKey = KEY, *, whole: bool = True) -> Node:
        node = Node(store, tmp_path / f"node-{len(started)}" / "r", key, whole=whole)
        started.append(node)
        if whole:
            node.startup.restore()
        node.startup.begin()
        return node

    yield begin
    for node in started:
        node.mirror.close(0)


@pytest.mark.parametrize("fault", ["", "slow"])
def test_everything_that_was_put_is_there_after_the_end_the_latest_of_each(
    store: Store, s3: FaultyServer, start: Start, fault: str
) -> None:
    s3.fault = fault
    node = start()
    log = node.folder / "log"
    log.write_bytes(b"one\n")
    for step in range(200):
        node.mirror.put("progress.json", encoded({"step": step}))
        node.mirror.put("metadata.json", encoded(metadata(step=step)))
        node.mirror.put_file("logs/training_log_latest.txt", log)
    log.write_bytes(b"one\ntwo\n")
    node.mirror.put("ranks/0.json", b"stays here")
    node.mirror.put("_complete", b"{}")
    assert node.mirror.close(20)
    assert store.names() == {"progress.json", "metadata.json", "logs/training_log_latest.txt", "_complete"}
    assert (store.document("progress.json")["step"], store.document("metadata.json")["step"]) == (199, 199)
    assert store.read("logs/training_log_latest.txt") == b"one\ntwo\n"
    assert (node.state["errors"], node.state["waiting"], node.state["last_error"]) == (0, 0, None)
    assert node.state["last_success"] is not None and node.state["url"] == f"s3://{store.bucket}/training-runs/r"


def test_a_thousand_reports_take_a_handful_of_requests(store: Store, s3: FaultyServer, start: Start) -> None:
    node = start()
    begin = time.monotonic()
    for step in range(1000):
        node.mirror.put("progress.json", encoded({"step": step}))
        node.mirror.put("metadata.json", encoded(metadata()))
    assert node.mirror.close(20)
    puts = [request for request in s3.touched if request.startswith("PUT")]
    assert len(puts) <= 4 + 2 * ((time.monotonic() - begin) // 20)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", ["black hole", "reset", "slow down", "broken", "full", "lost answer"])
def test_once_s3_is_back_the_latest_gets_there(
    store: Store, s3: FaultyServer, start: Start, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if fault == "black hole":
        monkeypatch.setattr(s3_client, "READ_SECONDS", 1.0)
    node = start()
    s3.fault = fault
    node.mirror.put("metadata.json", encoded(metadata(step=1)))
    wait_until(lambda: node.state["errors"])
    assert node.state["waiting"] == 1
    node.mirror.put("metadata.json", encoded(metadata(step=2)))
    s3.fault = ""
    s3.released.set()
    assert node.mirror.close(20)
    assert store.document("metadata.json")["step"] == 2
    assert node.state["waiting"] == 0


def test_what_s3_refuses_keeps_nothing_else_and_no_end_waiting(store: Store, s3: FaultyServer, start: Start) -> None:
    node = start()
    s3.fault = "forbidden"
    node.mirror.put("metadata.json", encoded(metadata()))
    node.mirror.put("progress.json", b"{}")
    wait_until(lambda: node.state["errors"] >= 2)
    assert node.state["last_error"] == "AccessDenied"
    tried = len(s3.touched)
    assert not node.mirror.close(60), "it has not got there, and says so at once"
    assert len(s3.touched) <= tried + 4
    assert {"PUT training-runs/r/metadata.json", "PUT training-runs/r/progress.json"} <= set(s3.touched)


def test_a_failure_does_not_sit_out_a_pause_and_takes_along_what_waits(
    store: Store, s3: FaultyServer, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(upload_queue.PAUSE_SECONDS, "metadata.json", 3600.0)
    node = start()
    node.mirror.put("metadata.json", encoded(metadata(step=1)))
    wait_until(lambda: "metadata.json" in store.names())
    monkeypatch.setattr(random, "uniform", lambda _low, _high: 3600.0)  # a long pause after a failed request
    s3.fault = "reset"
    node.mirror.put("progress.json", b"{}")
    wait_until(lambda: node.state["errors"])
    s3.fault = ""
    node.mirror.put("metadata.json", encoded(metadata(step=2)))
    node.mirror.put("_error", encoded(error(KEY, 1)))
    wait_until(lambda: store.names() == {"_error", "metadata.json", "progress.json"})
    wait_until(lambda: store.document("metadata.json")["step"] == 2)


def test_an_end_in_a_black_hole_is_bounded(s3: FaultyServer, start: Start) -> None:
    node = start()
    s3.fault = "black hole"
    node.mirror.put("metadata.json", encoded(metadata()))
    assert not node.mirror.close(0.2)


@pytest.mark.parametrize("silent_seconds", [0.1, 60.0])
def test_an_end_that_waits_for_s3_logs_it_once_and_one_that_does_not_logs_nothing(
    s3: FaultyServer,
    start: Start,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    silent_seconds: float,
) -> None:
    monkeypatch.setattr(mirror, "SILENT_SECONDS", silent_seconds)
    node = start()
    s3.fault = "black hole" if silent_seconds < 1 else ""
    node.mirror.put("metadata.json", encoded(metadata()))
    assert node.mirror.close(silent_seconds + 0.5) is (silent_seconds > 1)
    assert caplog.text.count(f"waiting for S3 to take the end of {node.state['url']}") == (silent_seconds < 1)


def test_the_metadata_of_a_server_without_conditions_is_replaced(store: Store, s3: FaultyServer, start: Start) -> None:
    s3.fault = "unconditional"
    store.write("_error", error(OLDER, 0))
    node = start()
    for step in (1, 2):
        node.mirror.put("metadata.json", encoded(metadata(step=step, phase=f"phase {step}")))
        node.mirror.put("_error", encoded(error(KEY, 1)))
        wait_until(lambda: "metadata.json" in store.names())
    assert node.mirror.close(20)
    assert store.document("metadata.json")["step"] == 2
    assert store.document("_error")["attempt_key"] == str(KEY)
    assert store.document("_error.0")["attempt_key"] == str(OLDER)


def test_of_two_ranks_on_two_nodes_the_first_to_fail_is_heard(store: Store, start: Start) -> None:
    first, second = start(whole=False), start(whole=False)
    first.mirror.put("_error", encoded({**error(KEY, None), "rank": 5}))
    assert first.mirror.close(20)
    second.mirror.put("_error", encoded({**error(KEY, None), "rank": 3}))
    second.mirror.put("metadata.json", b"is rank 0's alone")
    assert second.mirror.close(20)
    assert store.document("_error")["rank"] == 5
    assert store.names() == {"_error"}


def test_the_failure_that_another_rank_left_in_the_folder_is_copied_too(store: Store, start: Start) -> None:
    node = start()
    (node.folder / "_error").write_bytes(encoded(error(KEY, 1)))
    node.mirror.put_file("_error", node.folder / "_error")
    assert node.mirror.close(20)
    assert store.document("_error")["attempt_key"] == str(KEY)


def test_a_failure_makes_room_for_that_of_a_newer_attempt(store: Store, start: Start) -> None:
    store.write("_error", error(OLDER, 0))
    node = start(whole=False)
    node.mirror.put("_error", encoded(error(KEY, None)))
    assert node.mirror.close(20)
    assert store.document("_error")["attempt_key"] == str(KEY)
    assert store.document("_error.0")["attempt_key"] == str(OLDER)


def test_a_dying_old_attempt_does_not_stain_its_successor(store: Store, start: Start) -> None:
    """Neither its rank 0, which has written before, nor another rank."""
    old, rank = start(OLDER), start(OLDER, whole=False)
    old.mirror.put("metadata.json", encoded(metadata(OLDER, 0)))
    wait_until(lambda: "metadata.json" in store.names())
    new = start(KEY)
    new.mirror.put("metadata.json", encoded(metadata(KEY, 1)))
    assert new.mirror.close(20)
    old.mirror.put("metadata.json", encoded(metadata(OLDER, 0, status="failed")))
    old.mirror.put("progress.json", b"{}")
    old.mirror.put("_error", encoded(error(OLDER, 0)))
    rank.mirror.put("_error", encoded(error(OLDER, None)))
    old.mirror.close(20)
    rank.mirror.close(20)
    assert store.document("metadata.json")["attempt_key"] == str(KEY)
    assert "_error" not in store.names() and store.document("_error.0")["attempt_key"] == str(OLDER)
    assert old.state["last_error"] == "AnotherAttempt"


def test_metadata_that_a_command_of_the_same_attempt_wrote_is_replaced(store: Store, start: Start) -> None:
    node = start()
    node.mirror.put("metadata.json", encoded(metadata(step=1)))
    wait_until(lambda: "metadata.json" in store.names())
    store.write("metadata.json", metadata(step=99))
    node.mirror.put("metadata.json", encoded(metadata(step=2)))
    assert node.mirror.close(20)
    assert (store.document("metadata.json")["step"], node.state["errors"]) == (2, 0)


def test_a_long_log_is_copied_from_its_end_and_only_when_it_changed(
    store: Store, s3: FaultyServer, start: Start
) -> None:
    node = start()
    log = node.folder / "log"
    log.write_bytes(b"beginning" + b"." * (4 * 2**20) + b"last line\n")
    node.mirror.put_file("logs/training_log_latest.txt", log)
    wait_until(lambda: "logs/training_log_latest.txt" in store.names())
    node.mirror.put_file("logs/training_log_latest.txt", log)
    assert node.mirror.close(20)
    copied = store.read("logs/training_log_latest.txt")
    assert len(copied) == 4 * 2**20 and copied.endswith(b"last line\n")
    assert sum(request.startswith("PUT") for request in s3.touched) == 1


def test_a_forked_child_leaves_the_copy_to_its_parent(store: Store, start: Start) -> None:
    node = start()
    child = os.fork()
    if child == 0:
        node.mirror.put("progress.json", b"child")
        os._exit(node.mirror.close(20))
    assert os.waitpid(child, 0)[1] == 0
    node.mirror.put("metadata.json", encoded(metadata()))
    assert node.mirror.close(20)
    assert store.names() == {"metadata.json"}


def test_a_sentinel_that_is_withdrawn_goes_and_that_of_another_attempt_stays(store: Store, start: Start) -> None:
    node = start()
    node.mirror.put("_complete", encoded({"attempt_key": str(KEY)}))
    node.mirror.put("_error", encoded(error(KEY, 1)))
    wait_until(lambda: {"_complete", "_error"} <= store.names())
    node.mirror.remove("_complete")
    wait_until(lambda: "_complete" not in store.names())
    store.write("_error", error(OLDER, 0))
    node.mirror.remove("_error")
    node.mirror.put("progress.json", b"{}")
    assert node.mirror.close(20)
    assert store.document("_error")["attempt_key"] == str(OLDER)


def test_a_sentinel_that_is_withdrawn_before_it_got_there_never_does(
    store: Store, s3: FaultyServer, start: Start
) -> None:
    node = start()
    s3.fault = "reset"
    node.mirror.put("_complete", encoded({"attempt_key": str(KEY)}))
    wait_until(lambda: node.state["errors"])
    node.mirror.remove("_complete")
    s3.fault = ""
    assert node.mirror.close(20)
    assert "_complete" not in store.names()


def test_an_end_of_unknown_cause_is_replaced_by_the_first_cause_alone(store: Store, start: Start) -> None:
    first, second = start(), start(whole=False)
    first.mirror.put("_error", encoded({**error(KEY, 1), "failure": "terminated"}))
    wait_until(lambda: "_error" in store.names())
    second.mirror.put("_error", encoded({**error(KEY, 1), "failure": "cuda_oom"}))
    assert second.mirror.close(20)
    assert store.document("_error")["failure"] == "cuda_oom"
    for failure in ("terminated", "user_exception"):
        first.mirror.put("_error", encoded({**error(KEY, 1), "failure": failure}))
    assert first.mirror.close(20)
    assert store.document("_error")["failure"] == "cuda_oom"
