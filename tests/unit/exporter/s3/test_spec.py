"""How the collector of records in S3 is set up."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.unit.exporter.contexts import context
from trainwarden.errors import UsageError
from trainwarden_exporter.collectors.s3 import spec
from trainwarden_exporter.core.node import Node
from trainwarden_exporter.core.state_folder import StateFolder, StateFolderLocked
from trainwarden_exporter.flags import build_parser

NODE = Node("node1")
IN_PARENT = """
import sys
from trainwarden_exporter.flags import build_parser
from trainwarden_exporter.core.shared_state import SharedState
from trainwarden_exporter.core.node import Node
from trainwarden_exporter.core.state_folder import StateFolder, StateFolderLocked
from trainwarden_exporter.core.spec import Context
from trainwarden_exporter.collectors.runs import spec as runs
from trainwarden_exporter.collectors.s3 import spec
flags = vars(build_parser().parse_args(sys.argv[1:]))
assert spec.enabled(Context("s3", Node("n"), flags, SharedState()))
spec.create(Context("s3", Node("n"), flags, SharedState()))
runs.create(Context("runs", Node("n"), flags, SharedState()))
sys.exit(sorted({"boto3", "botocore"} & sys.modules.keys()) or 0)
"""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("MONITORING_BUCKET", "MONITORING_REGION", "TRAINWARDEN_S3_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("STATE_DIRECTORY", str(tmp_path / "state"))


def flags(*arguments: str) -> dict[str, Any]:
    return vars(build_parser().parse_args(arguments))


def test_without_a_place_it_is_off() -> None:
    assert not spec.enabled(context(spec.SPEC, NODE, flags()))
    assert spec.copies(context(spec.SPEC, NODE, flags())) == []


def test_the_bucket_of_the_environment_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONITORING_BUCKET", "cache")
    # Where a training copies its own record to is no word on what the exporter watches.
    monkeypatch.setenv("TRAINWARDEN_S3_URL", "s3://elsewhere/x")
    assert spec.enabled(context(spec.SPEC, NODE, flags()))
    assert spec.urls(flags()) == ["s3://cache/training-runs"]
    assert spec.urls(flags("--collector.s3.url=s3://one/b", "--collector.s3.url=s3://two/d")) == [
        "s3://one/b",
        "s3://two/d",
    ]
    assert spec.copies(context(spec.SPEC, NODE, flags("--no-collector.s3"))) == []


def test_an_environment_that_cannot_be_used_stops_no_exporter(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MONITORING_BUCKET", "no/bucket")
    assert not spec.enabled(context(spec.SPEC, NODE, flags()))
    assert spec.copies(context(spec.SPEC, NODE, flags())) == []
    assert "MONITORING_BUCKET" in caplog.text
    monkeypatch.setenv("MONITORING_BUCKET", "cache")
    monkeypatch.setitem(sys.modules, "boto3", None)  # as if it were not installed
    assert not spec.enabled(context(spec.SPEC, NODE, flags()))
    with pytest.raises(UsageError, match="boto3"):
        spec.create(context(spec.SPEC, NODE, flags("--collector.s3.url=s3://one/b")))


def test_a_folder_of_copies_belongs_to_one_exporter(tmp_path: Path) -> None:
    own = flags("--collector.s3.url=s3://one/b", f"--collector.s3.cache={tmp_path / 'copies'}")
    (folder,) = spec.copies(context(spec.SPEC, NODE, own))
    assert folder.parent == tmp_path / "copies"
    assert spec.copies(context(spec.SPEC, NODE, own)) == [folder], "for this one it stays the same"
    with pytest.raises(StateFolderLocked):
        StateFolder(tmp_path / "copies")
    other = flags("--collector.s3.url=s3://one/b", f"--collector.s3.cache={tmp_path / 'taken'}")
    with contextlib.closing(StateFolder(tmp_path / "taken")), pytest.raises(UsageError, match="taken"):
        spec.create(context(spec.SPEC, NODE, other))


@pytest.mark.process
def test_the_process_of_the_page_does_not_load_boto3(tmp_path: Path) -> None:
    arguments = ["--collector.s3.url=s3://one/b", f"--collector.runs.path={tmp_path}"]
    ended = subprocess.run(
        [sys.executable, "-c", IN_PARENT, *arguments], check=False, capture_output=True, text=True, timeout=60
    )
    assert (ended.returncode, ended.stderr) == (0, "")


@cases("url", ["bucket/prefix", "s3://", "s3://a..b/c", "https://s3.example/x"])
def test_what_names_no_place_is_refused(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        flags(f"--collector.s3.url={url}")
    assert "--collector.s3.url" in capsys.readouterr().err
