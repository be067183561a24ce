"""S3 and SNS by moto's server, Slack by a sink, and the command as a user of the S3 heartbeat monitor runs it."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto.backends import get_backend
from moto.core.models import DEFAULT_ACCOUNT_ID

from tests.compat.s3_heartbeat_monitor.bucket import Bucket
from tests.integration.s3.conftest import moto_url, plain_environment, read_models_once
from trainwarden import cli
from trainwarden.stack.slack_sink import SlackSink

__all__ = ["moto_url", "plain_environment", "read_models_once"]
PROGRAM = Path(sys.executable).with_name("trainwarden")
PROGRAMS = Path(__file__).parent / "programs"
_numbers = itertools.count()


@pytest.fixture(autouse=True, scope="session")
def topics_and_queues(read_models_once: None) -> None:
    """Let moto look up the regions of SNS and SQS now: clients of the product make botocore forget those."""
    for service in ("sns", "sqs"):
        get_backend(service)[DEFAULT_ACCOUNT_ID]["us-east-1"]


@pytest.fixture(autouse=True)
def place(plain_environment: None, moto_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """The working folder of a user whose home is empty."""
    for name in ("SLACK_WEBHOOK_URL", "SNS_TOPIC_ARN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_url)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("TRAINWARDEN_RUNS_DIR", str(tmp_path / "runs"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def bucket(place: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """The bucket that MONITORING_BUCKET names."""
    made = Bucket(f"llm-cache-{os.getpid()}-{next(_numbers)}", boto3.client("s3"))
    made.client.create_bucket(Bucket=made.name)
    monkeypatch.setenv("MONITORING_BUCKET", made.name)
    return made


@pytest.fixture
def slack() -> Iterator[SlackSink]:
    """The incoming webhook."""
    sink = SlackSink()
    yield sink
    sink.close()


@dataclass(frozen=True)
class Ran:
    """What a command did: its exit status, and what it printed."""

    status: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What it printed with --json."""
        document: dict[str, Any] = json.loads(self.out)
        return document

    @property
    def run(self) -> dict[str, Any]:
        """The only run in it."""
        (run,) = self.document["runs"]
        return dict(run)


Command = Callable[..., Ran]


@pytest.fixture
def trainwarden(capsys: pytest.CaptureFixture[str], place: Path) -> Command:
    """The command, in this process."""

    def run(*argv: str) -> Ran:
        capsys.readouterr()
        try:
            status = cli.main(list(argv))
        except SystemExit as end:
            status = int(end.code or 0)
        printed = capsys.readouterr()
        return Ran(status, printed.out, printed.err)

    return run


@pytest.fixture
def process(place: Path) -> Command:
    """A program in a process of its own, in the user's folder."""

    def run(*argv: str, **environment: str) -> Ran:
        done = subprocess.run(
            argv, capture_output=True, text=True, check=False, cwd=place, env={**os.environ, **environment}
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    return run
