"""A real server of S3, moto's, over HTTP through boto3's own client."""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
from botocore.loaders import create_loader
from moto.server import ThreadedMotoServer

from tests.integration.s3.faulty_server import FaultyServer, faulty_server
from tests.integration.s3.store import Store
from tests.job_variables import remove_job_variables
from tests.unit.library.processes import Script

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def plain_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """The machine that runs the tests may be a job of some scheduler, or have credentials of its own."""
    remove_job_variables(monkeypatch)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIASECRET")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "topsecret")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", os.devnull)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture(autouse=True, scope="session")
def read_models_once() -> Iterator[None]:
    """Each session of boto3 reads megabytes of JSON about S3, which takes half a second: share what does."""
    loader = create_loader()
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr("botocore.session.create_loader", lambda *_: loader)
        yield


@pytest.fixture(scope="session")
def moto_url() -> Iterator[str]:
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def s3(moto_url: str, plain_environment: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultyServer]:
    """S3 as the code under test reaches it: misbehaving where a test says so."""
    with faulty_server(moto_url) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_S3", server.url)
        yield server


@pytest.fixture
def store(moto_url: str, s3: FaultyServer) -> Store:
    """A bucket of the test's own, looked at behind the faults."""
    client = boto3.session.Session().client("s3", endpoint_url=moto_url)
    bucket = f"bucket-{next(_numbers)}"
    client.create_bucket(Bucket=bucket)
    return Store(client, bucket)


@pytest.fixture
def script(tmp_path: Path) -> Iterator[Script]:
    scripts = Script(tmp_path / "runs")
    yield scripts
    scripts.clean_up()
