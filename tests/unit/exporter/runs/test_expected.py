"""Runs that should be there and have left no record."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from tests.unit.exporter.runs_tree import NOW, RunsTree
from trainwarden_exporter.core.shared_state import ExpectedRuns
from trainwarden_exporter.flags import build_parser


@pytest.fixture
def expected(tree: RunsTree) -> ExpectedRuns:
    return tree.shared.expected


@pytest.fixture
def tree(tmp_path: Path) -> RunsTree:
    return RunsTree(tmp_path / "runs")


def test_an_expected_run_is_pending_since_it_was_first_expected(tree: RunsTree, expected: ExpectedRuns) -> None:
    expected.put("flag", {"wanted": NOW - 50})
    expected.put("slurm", {"wanted": NOW - 900})
    assert tree.state("wanted") == "pending"
    assert tree.value("training_attempt_start_timestamp_seconds", run_id="wanted") == NOW - 900
    assert tree.value("training_stale_threshold_seconds", run_id="wanted") == 600
    # The alert that such a run never started stands on this one.
    assert tree.labels("training_run_info", "wanted")["run_id"] == "wanted"
    for source in ("flag", "slurm"):
        assert tree.value("training_run_expected", run_id="wanted", source=source) == 1
    assert tree.heartbeat("wanted", "metadata") is None


def test_a_run_with_a_record_of_any_host_is_no_longer_expected(tree: RunsTree, expected: ExpectedRuns) -> None:
    expected.put("flag", {"here": NOW - 900, "there": NOW - 900})
    tree.metadata("here")
    tree.metadata("there", host="node2")
    assert tree.state("here") == "running"
    assert tree.state("there") is None
    assert "training_run_expected" not in tree.samples()


def test_a_source_that_expects_a_run_no_longer_takes_it_back(tree: RunsTree, expected: ExpectedRuns) -> None:
    expected.put("slurm", {"wanted": NOW})
    assert tree.state("wanted") == "pending"
    expected.put("slurm", {})
    assert tree.state("wanted") is None


def test_a_configuration_that_is_read_again_does_not_begin_the_waiting_anew(expected: ExpectedRuns) -> None:
    expected.keep("flag", ["a"], NOW)
    expected.keep("flag", ["a", "b"], NOW + 60)
    assert expected.runs() == {"a": {"flag": NOW}, "b": {"flag": NOW + 60}}


def test_a_name_that_is_no_run_id_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    flags = vars(build_parser().parse_args(["--expect.run=a", "--expect.run=b"]))
    assert flags["expect.run"] == ["a", "b"]
    with pytest.raises((SystemExit, argparse.ArgumentTypeError)):
        build_parser().parse_args(["--expect.run=../x"])
    assert "--expect.run" in capsys.readouterr().err
