"""What waits for its upload to S3, and for how long."""

import json
from pathlib import Path

import pytest

from trainwarden.s3.upload_queue import Content, UploadQueue


def metadata(status: str = "running", phase: str = "train", beat: int = 0) -> bytes:
    return json.dumps({"status": status, "phase": phase, "last_update": beat}).encode()


def send_due(outbox: UploadQueue, now: float) -> list[str]:
    due = outbox.due(now)
    for name, content in due:
        outbox.mark_uploaded(name, content, now)
    return [name for name, _ in due]


def test_the_first_of_each_file_goes_at_once_and_later_ones_in_their_turn() -> None:
    outbox = UploadQueue()
    sent: dict[str, list[float]] = {"metadata.json": [], "progress.json": [], "events.jsonl": []}
    for second in range(121):
        outbox.put("metadata.json", metadata(beat=second), second)
        outbox.put("progress.json", b"%d" % second, second)
        outbox.put("events.jsonl", Path("events.jsonl"), second)
        for name in send_due(outbox, second):
            sent[name].append(second)
    twenty = [0, 20, 40, 60, 80, 100, 120]
    assert sent == {"metadata.json": twenty, "progress.json": twenty, "events.jsonl": [0, 60, 120]}


def test_only_the_latest_content_of_a_name_is_kept() -> None:
    outbox = UploadQueue()
    for number in range(1000):
        outbox.put("progress.json", b"%d" % number, 0)
    assert outbox.due(0) == [("progress.json", b"999")]


def test_a_change_of_phase_or_status_does_not_wait_for_its_turn() -> None:
    outbox = UploadQueue()
    outbox.put("metadata.json", metadata(), 0)
    send_due(outbox, 0)
    outbox.put("metadata.json", metadata(phase="eval"), 6)
    assert send_due(outbox, 6) == ["metadata.json"]
    outbox.put("metadata.json", metadata(phase="train"), 7)
    outbox.put("metadata.json", metadata(phase="eval"), 8)
    assert send_due(outbox, 10) == [], "a phase that was left again takes no request of its own"
    outbox.put("metadata.json", metadata("failed"), 11)
    assert send_due(outbox, 11) == ["metadata.json"]


def test_a_sentinel_never_waits_and_the_completion_comes_after_all_else() -> None:
    outbox = UploadQueue()
    names = ["_complete", "logs/training_log_latest.txt", "summary.json", "metadata.json", "progress.json", "_error"]
    for _ in range(2):
        for name in names:
            outbox.put(name, metadata(), 0)
        send_due(outbox, 0)
    outbox.put("_error", b"again", 0.1)
    assert send_due(outbox, 0.1) == ["_error"]
    for name in names:
        outbox.put(name, metadata("failed"), 60)
    order = send_due(outbox, 60)
    assert [order[0], order[1], order[2], order[-1]] == ["_error", "progress.json", "metadata.json", "_complete"]
    assert sorted(order) == sorted(names)


def test_what_was_put_while_its_forerunner_was_on_the_way_waits_on() -> None:
    outbox = UploadQueue()
    outbox.put("progress.json", b"1", 0)
    (name, content), *_ = outbox.due(0)
    outbox.put("progress.json", b"2", 1)
    outbox.mark_uploaded(name, content, 3)
    assert (outbox.due(3), outbox.count(3), outbox.next_due()) == ([], 0, 23)
    assert outbox.due(23) == [("progress.json", b"2")]
    assert outbox.count(23) == 1


@pytest.mark.parametrize("content", [b"x" * (4 * 2**20 + 1)])
def test_content_without_bounds_is_not_kept(content: Content) -> None:
    outbox = UploadQueue()
    with pytest.raises(ValueError, match=r"progress\.json is larger"):
        outbox.put("progress.json", content, 0)
    assert outbox.next_due() is None
