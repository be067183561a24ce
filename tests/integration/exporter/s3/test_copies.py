"""What is told of records that are in S3."""

from __future__ import annotations

import json
import time

import pytest

from tests.integration.exporter.s3.prefix import KEY, Prefix, metadata, of, progress
from trainwarden.record.clock import to_iso
from trainwarden.record.folder import write_json
from trainwarden_exporter.collectors.s3.local_copy import copy_folder

RUN = {"run_id": "r"}


def test_a_record_in_s3_has_the_series_of_the_same_record_in_a_folder(prefix: Prefix) -> None:
    said, moved = metadata("r"), progress()
    prefix.write("r/metadata.json", said)
    prefix.write("r/progress.json", moved)
    prefix.look()
    copied = prefix.page()
    (prefix.runs / "r").mkdir(parents=True)
    write_json(prefix.runs / "r" / "metadata.json", said)
    write_json(prefix.runs / "r" / "progress.json", moved)
    here = prefix.page()
    extra = {"training_run_observed_timestamp_seconds", "training_run_s3_info"}
    assert {name: set(found) for name, found in copied.items() if name not in extra} == {
        name: set(found) for name, found in here.items()
    }
    assert of(copied, "training_step", **RUN) == 7


def test_the_place_of_a_record_in_s3_is_named_and_its_console_only_where_it_is_that_of_aws(prefix: Prefix) -> None:
    prefix.run()
    prefix.look()
    url = f"{prefix.store.url}/r/"
    assert of(prefix.page(), "training_run_s3_info", **RUN, url=url, console="") == 1
    index = copy_folder(prefix.cache, prefix.store.url) / ".s3.json"
    write_json(index, {**json.loads(index.read_text()), "is_aws": True})
    place = url.removeprefix("s3://").replace("/", "?prefix=", 1)
    console = f"https://s3.console.aws.amazon.com/s3/buckets/{place}"
    assert of(prefix.page(), "training_run_s3_info", **RUN, url=url, console=console) == 1


def test_only_what_changed_is_fetched_again(prefix: Prefix) -> None:
    prefix.run()
    prefix.look()
    prefix.server.touched.clear()
    prefix.look()
    assert [each for each in prefix.server.touched if each.endswith(".json")] == []
    prefix.write("r/progress.json", progress(step=8))
    prefix.look()
    assert [each for each in prefix.server.touched if each.endswith(".json")] == ["GET training-runs/r/progress.json"]
    assert of(prefix.page(), "training_step", **RUN) == 8


@pytest.mark.parametrize("name", ["progress.json", "logs/training_log_latest.txt"])
def test_a_file_that_is_missing_in_the_copy_is_fetched_again(prefix: Prefix, name: str) -> None:
    prefix.run()
    prefix.write("r/logs/training_log_latest.txt", b"step 7\n")
    prefix.look()
    copied = copy_folder(prefix.cache, prefix.store.url) / "r" / name
    before = copied.read_bytes()
    copied.unlink()
    prefix.look()
    assert copied.read_bytes() == before


def test_a_record_is_found_behind_more_objects_than_one_answer_lists(
    prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainwarden.clients.s3.PAGE_NAMES", 2)
    for number in range(5):
        prefix.write(f"r/{number}.bin", b"x")
    prefix.run()
    prefix.look()
    assert of(prefix.page(), "training_step", **RUN) == 7


def test_where_not_all_objects_of_a_run_were_listed_nothing_of_its_copy_is_removed(
    prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix.run()
    prefix.look()
    monkeypatch.setattr("trainwarden.clients.s3.PAGE_NAMES", 2)
    monkeypatch.setattr("trainwarden_exporter.collectors.s3.prefix_sync.RUN_PAGES", 2)
    for number in range(5):
        prefix.write(f"r/{number}.bin", b"x")
    prefix.place._now = lambda: time.time() + 2 * 86400.0
    told = prefix.look()
    labels = {"bucket": prefix.store.bucket, "prefix": "training-runs"}
    assert of(told, "trainwarden_s3_runs", **labels, outcome="incomplete") == 1
    copied = copy_folder(prefix.cache, prefix.store.url) / "r"
    assert {path.name for path in copied.iterdir()} == {"metadata.json", "progress.json"}


def test_what_was_copied_before_a_restart_is_not_fetched_again(prefix: Prefix) -> None:
    prefix.run()
    prefix.look()
    prefix.place = prefix.new_place()
    prefix.server.touched.clear()
    prefix.look()
    assert [each for each in prefix.server.touched if each.endswith(".json")] == []
    assert of(prefix.page(), "training_step", **RUN) == 7


def test_a_failure_is_reported_with_the_last_line_of_the_log(prefix: Prefix) -> None:
    prefix.run()
    prefix.write("r/logs/training_log_latest.txt", b"step 7\nRuntimeError: it broke\n")
    prefix.write("r/_error", {"attempt_key": KEY, "time": to_iso(time.time()), "message": "it broke"})
    prefix.look()
    page = prefix.page()
    assert of(page, "training_run_state", **RUN, state="failed") == 1
    ((labels, _),) = page["training_failure_message_info"].items()
    assert dict(labels)["last_line"] == "RuntimeError: it broke"


@pytest.mark.parametrize(
    ("log", "error_type"),
    [
        (b"step 7\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n", "oom"),
        (
            b"x" * 2**17 + b"\nnode1 kernel: NVRM: Xid (PCI:0000:01:00): 79, GPU has fallen off the bus.\n",
            "gpu_hardware",
        ),
    ],
)
def test_a_failure_without_a_cause_gets_that_of_the_log_beside_it(prefix: Prefix, log: bytes, error_type: str) -> None:
    prefix.run()
    prefix.write("r/logs/training_log_latest.txt", log)
    prefix.write("r/_error", b"Training failed with exit code 1")
    prefix.look()
    (labels,) = prefix.page()["training_failure_info"]
    assert dict(labels)["error_type"] == error_type


def test_a_failure_keeps_its_own_cause_whatever_the_log_shows(prefix: Prefix) -> None:
    prefix.run()
    prefix.write("r/logs/training_log_latest.txt", b"CUDA out of memory\n")
    prefix.write("r/_error", b"OSError: [Errno 28] No space left on device")
    prefix.look()
    (labels,) = prefix.page()["training_failure_info"]
    assert dict(labels)["error_type"] == "storage"


def test_a_run_that_is_gone_from_s3_is_gone(prefix: Prefix) -> None:
    prefix.run()
    prefix.look()
    for name in ("r/metadata.json", "r/progress.json"):
        prefix.delete(name)
    prefix.look()
    assert of(prefix.page(), "training_step", **RUN) is None


@pytest.mark.parametrize("skew", [3600, -3600])
@pytest.mark.parametrize("writer", [3600.0, -3600.0, 0.0])
def test_no_clock_but_this_hosts_makes_a_heartbeat_old_or_young(prefix: Prefix, skew: int, writer: float) -> None:
    prefix.server.skew = skew
    prefix.run(clock=writer)
    told = prefix.look()
    assert next(iter(told["trainwarden_s3_clock_offset_seconds"].values())) == pytest.approx(skew, abs=60)
    page, now = prefix.page(), time.time()
    for source in ("metadata", "progress"):
        beat = of(page, "training_heartbeat_timestamp_seconds", **RUN, source=source)
        assert beat == pytest.approx(now, abs=60)
    for name, ago in (("training_attempt_start", 600), ("training_phase_start", 500), ("training_step", 0)):
        assert of(page, f"{name}_timestamp_seconds", **RUN) == pytest.approx(now - ago, abs=60)


def test_a_plain_error_counts_although_its_writers_clock_is_ahead(prefix: Prefix) -> None:
    prefix.run(clock=3600.0, attempt_start_time=to_iso(time.time() + 3599))
    prefix.write("r/_error", b"CUDA out of memory")
    prefix.look()
    assert of(prefix.page(), "training_run_state", **RUN, state="failed") == 1


def test_a_record_that_was_written_days_ago_and_copied_now_is_no_sign_of_life(prefix: Prefix) -> None:
    prefix.run(clock=-30 * 86400.0)
    prefix.look()
    assert of(prefix.page(), "training_run_state", **RUN, state="running") is None


def test_the_fresher_of_two_records_of_a_run_is_reported_once(prefix: Prefix) -> None:
    prefix.run()
    prefix.look()
    folder = prefix.runs / "r"
    folder.mkdir(parents=True)
    write_json(folder / "metadata.json", metadata("r", clock=-900.0))
    write_json(folder / "progress.json", progress(clock=-900.0, step=1))
    assert of(prefix.page(), "training_step", **RUN) == 7
    write_json(folder / "metadata.json", metadata("r"))
    write_json(folder / "progress.json", progress(step=9))
    page = prefix.page()
    assert of(page, "training_step", **RUN) == 9
    assert of(page, "training_run_observed_timestamp_seconds", **RUN) is None


def test_the_ranks_of_a_node_are_exported_beside_a_record_that_is_in_s3_alone(prefix: Prefix) -> None:
    prefix.run(host="node0")
    prefix.look()
    ranks = prefix.runs / "r" / "ranks"
    ranks.mkdir(parents=True)
    beat = {"rank": 3, "step": 7, "time": to_iso(time.time()), "host": "node1", "attempt_key": KEY}
    write_json(ranks / "3.json", beat)
    page = prefix.page()
    assert of(page, "training_rank_step", **RUN, rank="3") == 7
    assert of(page, "training_step", **RUN) is None


def test_only_the_host_that_a_record_names_exports_it(prefix: Prefix) -> None:
    prefix.run("here")
    prefix.run("there", host="node2")
    prefix.run("nameless", host=None)
    prefix.look()

    def told(host: str, *, all_hosts: bool = False) -> set[str]:
        page = prefix.page(prefix.collector_of(host, all_hosts=all_hosts))
        return {dict(labels)["run_id"] for labels in page.get("training_step", {})}

    assert told("node1") == {"here"}
    assert told("node2") == {"there"}
    assert told("head", all_hosts=True) == {"here", "there", "nameless"}


def test_the_time_at_which_s3_last_confirmed_a_run_stands_still_while_s3_does_not_answer(prefix: Prefix) -> None:
    prefix.run()
    prefix.look()
    before = of(prefix.page(), "training_run_observed_timestamp_seconds", **RUN)
    prefix.server.fault = "reset"
    prefix.look()
    page = prefix.page()
    assert before is not None
    assert of(page, "training_run_observed_timestamp_seconds", **RUN) == before
    assert of(page, "training_run_state", **RUN, state="running") == 1
    prefix.server.fault = ""
    prefix.look()
    after = of(prefix.page(), "training_run_observed_timestamp_seconds", **RUN)
    assert after is not None
    assert after > before


@pytest.mark.parametrize(("interval", "shown"), [(20.0, False), (300.0, True)])
def test_ages_are_shown_until_s3_has_not_confirmed_a_run_for_some_of_its_intervals(
    prefix: Prefix, interval: float, shown: bool
) -> None:
    prefix.run()
    prefix.look()
    later = prefix.collector_of(s3_interval=interval, now=lambda: time.time() + 310.0)
    assert ("training_heartbeat_age_seconds" in prefix.page(later)) is shown


def test_old_runs_are_listed_once_and_nothing_of_them_is_fetched(prefix: Prefix) -> None:
    for number in range(3):
        prefix.run(f"old-{number}")
    prefix.place._now = lambda: time.time() + 2 * 86400.0
    prefix.look()
    assert not [each for each in prefix.server.touched if each.endswith(".json")]
    before = len(prefix.server.touched)
    told = prefix.look()
    assert len(prefix.server.touched) == before + 1
    assert of(told, "trainwarden_s3_runs", bucket=prefix.store.bucket, prefix="training-runs", outcome="old") == 3


def test_no_more_runs_are_copied_than_allowed(prefix: Prefix) -> None:
    for number in range(4):
        prefix.run(f"r{number}")
    prefix.place = prefix.new_place(runs=2)
    told = prefix.look()
    labels = {"bucket": prefix.store.bucket, "prefix": "training-runs"}
    assert of(told, "trainwarden_s3_runs", **labels, outcome="copied") == 2
    assert of(told, "trainwarden_s3_runs", **labels, outcome="dropped") == 2


def test_a_key_that_leads_out_of_the_copy_is_not_followed(prefix: Prefix) -> None:
    prefix.write("../metadata.json", metadata("x"))
    prefix.write("..%2f..%2fx/metadata.json", metadata("x"))
    prefix.look()
    place = next(prefix.cache.iterdir())
    assert [path for path in place.rglob("*") if path.name != ".s3.json"] == []
    assert [path.name for path in prefix.cache.parent.iterdir()] == ["copies"]
