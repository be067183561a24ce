"""Trainings in processes of their own whose record is copied to S3."""

import json
import os
import signal
from pathlib import Path

import pytest

from tests.integration.s3.faulty_server import FaultyServer
from tests.integration.s3.store import Store
from tests.unit.library.processes import Script
from tests.waiting import wait_until

TRAIN = """
import trainwarden
with trainwarden.run("r", s3={url!r}, total_steps=50) as run:
    for step in range(1, 51):
        run.step(step, loss=1.0)
    run.note("saved", where="here")
print("trained to the end")
"""
# What is in S3 was written a moment before the last word here, which also says how S3 fared.
MOMENTARY = ("last_update", "s3")


def same(store: Store, script: Script, name: str) -> bool:
    here = (script.folder / name).read_bytes()
    if name != "metadata.json":
        return here == store.read(name)
    documents = [json.loads(here), store.document(name)]
    return {k: v for k, v in documents[0].items() if k not in MOMENTARY} == {
        k: v for k, v in documents[1].items() if k not in MOMENTARY
    }


@pytest.mark.parametrize("prefix", ["training-runs", "größe und/日本 語 + 1%"])
def test_after_the_end_s3_holds_what_the_folder_holds(store: Store, script: Script, prefix: str) -> None:
    store = Store(store.client, store.bucket, prefix)
    done = script.run(TRAIN.format(url=store.url))
    assert (done.returncode, done.stderr) == (0, "")
    here = {path.name for path in script.folder.iterdir() if path.is_file() and not path.name.startswith(".")}
    assert store.names() == here >= {"metadata.json", "progress.json", "_complete", "events.jsonl", "summary.json"}
    assert [name for name in here if not same(store, script, name)] == []
    fares = script.read("metadata.json")["s3"]
    assert (fares["url"], fares["errors"], fares["waiting"]) == (f"{store.url}/r", 0, 0)


def test_a_monitor_of_today_finds_what_it_looks_for(
    store: Store, script: Script, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Named as it is named there: by MONITORING_BUCKET, below training-runs/."""
    monkeypatch.setenv("MONITORING_BUCKET", store.bucket)
    monkeypatch.setenv("MONITORING_REGION", "us-east-1")
    code = "import trainwarden\nwith trainwarden.run('r', total_steps=9) as run: run.step(3, loss=2.5); 1 / 0"
    log = script.folder / "logs/training_log_latest.txt"
    log.parent.mkdir(parents=True)
    log.write_text("the launcher keeps what the training prints\n")
    assert script.run(code).returncode == 1
    assert store.read("logs/training_log_latest.txt") == log.read_bytes()
    metadata, progress = store.document("metadata.json"), store.document("progress.json")
    assert {"run_id", "status", "phase", "last_update", "instance_id"} <= metadata.keys()
    assert (metadata["run_id"], metadata["status"], metadata["phase"]) == ("r", "failed", "train")
    assert (progress["step"], progress["total_steps"], progress["loss"]) == (3, 9, 2.5)
    assert "learning_rate" in progress and progress["last_updated"].endswith("Z")
    assert b"division by zero" in store.read("_error") and "_complete" not in store.names()


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        ("black hole", "ReadTimeoutError"),
        ("reset", "ConnectionClosedError"),
        ("forbidden", "AccessDenied"),
        ("slow down", "SlowDown"),
    ],
)
def test_a_training_without_s3_runs_to_its_end_and_its_record_gives_the_reason(
    store: Store, s3: FaultyServer, script: Script, fault: str, code: str
) -> None:
    s3.fault = fault
    hurried = "import trainwarden.clients.s3, trainwarden.training.run\n"
    if fault == "black hole":
        hurried += "trainwarden.clients.s3.READ_SECONDS = 0.5\n"
    hurried += "trainwarden.training.run._END_TIMEOUT_SECONDS = 2\n"
    done = script.run(hurried + TRAIN.format(url=store.url))
    assert (done.returncode, done.stdout) == (0, "trained to the end\n")
    metadata = script.read("metadata.json")
    assert (metadata["status"], script.read("progress.json")["steps_completed"]) == ("succeeded", 50)
    assert metadata["s3"]["errors"] >= 1 and metadata["s3"]["waiting"] >= 1
    assert (metadata["s3"]["last_error"], metadata["s3"].get("last_success")) == (code, None)
    assert "SECRET" not in done.stderr + json.dumps(metadata) and "topsecret" not in done.stderr
    assert code in done.stderr and store.names() == set()
    *_, last = done.stderr.splitlines()
    assert f"{store.url}/r could not be finished in time (last error: {code})" in last


def test_s3_that_goes_away_under_a_run_and_comes_back_has_the_latest(
    store: Store, s3: FaultyServer, script: Script, tmp_path: Path
) -> None:
    steps = tmp_path / "steps"
    os.mkfifo(steps)
    code = f"""
import trainwarden, trainwarden.clients.s3, trainwarden.s3.upload_queue, trainwarden.training.writer
trainwarden.clients.s3.READ_SECONDS = trainwarden.training.writer.LIVENESS_SECONDS = 1.0
trainwarden.s3.upload_queue.PAUSE_SECONDS.update({{"metadata.json": 0.3, "progress.json": 0.3}})
with trainwarden.run("r", s3={store.url!r}) as run:
    for step, _ in enumerate(open({str(steps)!r}), 1):
        run.step(step)
"""
    process = script.start(code)
    with steps.open("w", buffering=1) as feed:
        feed.write("\n")
        wait_until(lambda: {"metadata.json", "progress.json"} <= store.names())
        s3.fault = "black hole"
        feed.write("\n")
        wait_until(lambda: script.read("metadata.json")["s3"]["errors"] >= 1)
        s3.fault = ""
        feed.write("\n")
    assert process.wait(30) == 0
    assert (store.document("progress.json")["step"], store.document("metadata.json")["status"]) == (3, "succeeded")
    assert same(store, script, "metadata.json") and same(store, script, "summary.json")


def test_a_signal_that_ends_the_training_is_in_s3_too(store: Store, script: Script) -> None:
    code = f"import time, trainwarden\nrun = trainwarden.run('r', s3={store.url!r})\nrun.step(1)\ntime.sleep(60)"
    process = script.start(code)
    wait_until(lambda: "progress.json" in store.names())
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == -signal.SIGTERM
    assert store.document("metadata.json")["status"] == "cancelled"


def test_a_second_run_in_one_process_sets_aside_how_the_first_ended(store: Store, script: Script) -> None:
    code = TRAIN.format(url=store.url)
    assert script.run(code + code.replace("import trainwarden", "")).returncode == 0
    assert {"_complete", "_complete.0"} <= store.names() and same(store, script, "_complete.0")
    assert same(store, script, "_complete") and same(store, script, "progress.json")


@pytest.mark.parametrize("url", ["bucket/prefix", "s3://a b/x", "s3://x/y", "https://bucket/x"])
def test_a_wrong_url_is_refused_before_training(script: Script, url: str) -> None:
    done = script.run(TRAIN.format(url=url))
    assert done.returncode == 1 and done.stdout == ""
    assert "RunRefused: s3=" in done.stderr and "expected" in done.stderr
    assert not script.folder.exists()


def test_a_bucket_that_is_not_there_is_refused_at_the_first_start_only(store: Store, script: Script) -> None:
    nowhere = TRAIN.format(url="s3://nowhere-at-all/x")
    done = script.run(nowhere)
    assert done.returncode == 1 and "there is no bucket 'nowhere-at-all'" in done.stderr
    assert not (script.folder / "metadata.json").exists()
    assert script.run(TRAIN.format(url=store.url)).returncode == 0
    assert script.run(nowhere).returncode == 0
    assert script.read("metadata.json")["s3"]["last_error"] == "NoSuchBucket"


def test_without_boto3_s3_is_refused_and_a_folder_is_not(store: Store, script: Script) -> None:
    hidden = "import sys; sys.modules['boto3'] = None\n"
    done = script.run(hidden + TRAIN.format(url=store.url))
    assert done.returncode == 1 and "pip install 'trainwarden[s3]'" in done.stderr
    assert script.run(hidden + "import trainwarden\nwith trainwarden.run('r'): pass").returncode == 0


def test_a_command_writes_one_file_within_its_time(store: Store, s3: FaultyServer, script: Script) -> None:
    code = f"""
from trainwarden.identity import AttemptKey
from trainwarden.clients import s3, s3_location
from trainwarden.s3.uploader import upload_once
s3.READ_SECONDS = 60.0
record = s3_location.parse_s3_url({store.url!r}).below("r")
upload_once(record, "_error", b"out of memory", AttemptKey("slurm", "7", 0), timeout_seconds=TIMEOUT)
"""
    assert script.run(code.replace("TIMEOUT", "20")).returncode == 0
    assert store.read("_error") == b"out of memory"
    s3.fault = "black hole"
    done = script.run(code.replace("TIMEOUT", "0.5"))
    assert done.returncode == 1 and f"S3Error: {store.url}/r/_error: Timeout" in done.stderr


def test_a_rank_on_another_node_that_failed_is_why_rank_0_got_sigterm(store: Store, script: Script) -> None:
    """The nodes share nothing but S3; the launcher ends rank 0 by SIGTERM then."""
    code = f"import time, trainwarden\nrun = trainwarden.run('r', s3={store.url!r})\nrun.step(1)\n"
    job = {"TRAINWARDEN_ATTEMPT_KEY": "slurm:7:0", "WORLD_SIZE": "2"}
    first = script.start(code + "time.sleep(60)", RANK="0", **job)
    wait_until(lambda: "progress.json" in store.names())
    elsewhere = Script(script.runs.with_name("another-node"))
    assert elsewhere.run(code + "raise MemoryError('CUDA out of memory')", RANK="1", **job).returncode == 1
    assert store.document("_error")["rank"] == 1
    first.send_signal(signal.SIGTERM)
    first.wait(30)
    for read in (script.read, store.document):
        assert read("metadata.json")["status"] == "failed"
        assert "CUDA out of memory" in read("metadata.json")["reason"]
        assert read("_error")["rank"] == 1
