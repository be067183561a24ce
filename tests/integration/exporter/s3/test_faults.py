"""S3 that does not do what it should: each kind of trouble is told apart, and none is taken for a silent run."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.integration.exporter.s3.prefix import Prefix, of
from tests.unit.exporter.contexts import context
from trainwarden.clients.s3 import S3Bucket, S3Error, S3Object
from trainwarden_exporter.collectors.s3 import spec
from trainwarden_exporter.core.node import Node
from trainwarden_exporter.flags import build_parser

RUN = {"run_id": "r"}


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("black hole", "unreachable"),
        ("reset", "unreachable"),
        ("broken", "unreachable"),
        ("forbidden", "denied"),
        ("expired", "denied"),
        ("slow down", "throttled"),
        ("proxy", "invalid"),
    ],
)
def test_problems_are_counted_by_kind_and_what_was_copied_stays(prefix: Prefix, fault: str, reason: str) -> None:
    prefix.run()
    assert prefix.up() == 1
    if fault == "black hole":
        prefix.place = prefix.new_place(read_seconds=0.3)
    prefix.server.fault = fault
    assert prefix.up() == 0
    assert prefix.errors() == {reason: 1}
    assert of(prefix.page(), "training_step", **RUN) == 7
    prefix.server.fault = ""
    prefix.place = prefix.new_place()
    assert prefix.up() == 1


def test_after_trouble_s3_is_left_alone_for_a_while(prefix: Prefix) -> None:
    prefix.server.fault = "slow down"
    prefix.look()
    before = len(prefix.server.touched)
    prefix.place.sample()
    assert len(prefix.server.touched) == before


def test_a_slow_answer_is_an_answer(prefix: Prefix) -> None:
    prefix.run()
    prefix.server.fault = "slow"
    assert prefix.up() == 1
    assert of(prefix.page(), "training_step", **RUN) == 7


def test_a_server_that_is_not_there_is_unreachable(prefix: Prefix, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://127.0.0.1:9")
    prefix.place = prefix.new_place()
    assert prefix.up() == 0
    assert prefix.errors() == {"unreachable": 1}


def test_a_bucket_that_is_not_there_is_missing(prefix: Prefix) -> None:
    prefix.place = prefix.new_place(urls=["s3://no-such-bucket-here/training-runs"])
    assert prefix.up() == 0
    assert prefix.errors() == {"missing": 1}


def test_half_a_document_is_invalid_and_costs_its_run_alone(prefix: Prefix) -> None:
    prefix.run()
    prefix.write("bad/metadata.json", b'{"run_id": "bad", "sta')
    assert prefix.up() == 1
    assert prefix.errors() == {"invalid": 1}
    page = prefix.page()
    assert of(page, "training_step", **RUN) == 7
    assert of(page, "trainwarden_runs_unreadable", reason="unreadable") == 1
    assert prefix.up() == 1
    assert prefix.errors() == {"invalid": 1}, "one object is counted once"


def test_an_answer_that_breaks_off_is_asked_for_again(prefix: Prefix) -> None:
    prefix.run()
    prefix.server.fault = "half"
    assert prefix.up() == 0
    assert of(prefix.page(), "training_step", **RUN) is None
    prefix.server.fault = ""
    assert prefix.up() == 1
    assert of(prefix.page(), "training_step", **RUN) == 7


def test_an_object_that_vanishes_before_it_is_fetched_is_missing_and_the_rest_is_reported(
    prefix: Prefix, monkeypatch: pytest.MonkeyPatch
) -> None:
    prefix.run()
    prefix.run("other")
    real = S3Bucket.get_changed

    def vanishing(self: S3Bucket, name: str, *arguments: Any, **named: Any) -> S3Object | None:
        if name == "r/progress.json":
            prefix.delete(name)
        return real(self, name, *arguments, **named)

    monkeypatch.setattr(S3Bucket, "get_changed", vanishing)
    assert prefix.up() == 1
    assert prefix.errors() == {"missing": 1}
    page = prefix.page()
    assert of(page, "training_run_attempt", **RUN) == 0
    assert of(page, "training_run_observed_timestamp_seconds", **RUN) == pytest.approx(time.time(), abs=60)
    assert of(page, "training_step", run_id="other") == 7


def test_an_answer_without_end_takes_no_more_memory_than_the_child_may_have(
    prefix: Prefix, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    prefix.server.fault = "endless"
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))
    flags = vars(build_parser().parse_args([f"--collector.s3.url={prefix.store.url}"]))
    settings = dict(spec.create(context(spec.SPEC, Node("node1"), flags))._spec.settings)
    look = (
        "import json, sys; from trainwarden_exporter.collectors.s3.collector import build\n"
        "[(_, place)] = build(json.loads(sys.argv[1])).prefixes.items(); place.sample(); print(place._up)\n"
        "print(next(line.split()[1] for line in open('/proc/self/status') if line.startswith('VmHWM')))\n"
    )
    command = [sys.executable, "-c", look, json.dumps(settings)]
    up, most = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.split()
    assert up == "False"
    assert int(most) < 700 * 2**10


def test_a_problem_in_the_log_holds_no_secret(prefix: Prefix, caplog: pytest.LogCaptureFixture) -> None:
    prefix.server.fault = "forbidden"
    prefix.look()
    assert "AccessDenied" in caplog.text
    assert "AKIASECRET" not in caplog.text
    with pytest.raises(S3Error) as raised:
        prefix.bucket().get("r/metadata.json")
    assert "AKIASECRET" not in str(raised.value)
