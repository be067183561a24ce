"""The flags of the collector: what cannot be done is said before anything is served."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cases import cases
from tests.unit.clients.slurm.commands import FakeSlurm, job_22_05
from tests.unit.exporter.contexts import context
from trainwarden.errors import UsageError
from trainwarden_exporter.collector_set import select_on
from trainwarden_exporter.collectors.slurm import spec
from trainwarden_exporter.core.node import node_from_flags
from trainwarden_exporter.core.shared_state import SharedState
from trainwarden_exporter.flags import build_parser
from trainwarden_exporter.sampling.collection import Collection
from trainwarden_exporter.sampling.task import CollectorRunner


def _flags(*arguments: str) -> dict[str, Any]:
    return vars(build_parser().parse_args(["--collector.disable-defaults", "--collector.slurm", *arguments]))


def _runner(flags: dict[str, Any], shared: SharedState | None = None) -> CollectorRunner:
    return spec.SPEC.create(context(spec.SPEC, node_from_flags(flags), flags, shared))


def test_it_is_off_unless_switched_on() -> None:
    flags = vars(build_parser().parse_args([]))
    assert "slurm" not in {each.name for each in select_on(node_from_flags(flags), flags)}


@pytest.mark.process
def test_the_flags_reach_the_collector(slurm: FakeSlurm) -> None:
    slurm.jobs([job_22_05(1, comment="", name="train-x"), job_22_05(2, comment="", name="train-y")])
    flags = _flags(
        f"--collector.slurm.bin-dir={slurm.folder}",
        "--collector.slurm.job-filter=train-(?P<run_id>.+)",
        "--collector.slurm.max-jobs=1",
    )
    collection = Collection([_runner(flags)])
    collection.sample_once()
    page = collection.page().decode()
    assert page.count("slurm_job_info{") == 1
    assert 'run_id="y"' in page


def test_a_missing_command_is_named(slurm: FakeSlurm) -> None:
    (slurm.folder / "sinfo").unlink()
    flags = _flags(f"--collector.slurm.bin-dir={slurm.folder}")
    with pytest.raises(UsageError, match=rf"sinfo not found in {slurm.folder}"):
        _runner(flags)


@cases(
    "argument",
    [
        "--collector.slurm.job-filter=train-(.+)",
        "--collector.slurm.job-filter=(",
        "--collector.slurm.max-jobs=0",
        "--collector.slurm.max-groups=0",
    ],
)
def test_a_wrong_value_is_refused_and_no_secret_shown(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        _flags(argument)
    assert caught.value.code == 2
    said = capsys.readouterr().err
    assert argument.partition("=")[0] in said
    assert "secret" not in said


@pytest.mark.process
@pytest.mark.parametrize(("scope", "expected"), [("all", {"run-1"}), ("host", set())])
def test_only_an_exporter_of_all_records_expects_some(slurm: FakeSlurm, scope: str, expected: set[str]) -> None:
    slurm.jobs([job_22_05(1)])
    flags = _flags(f"--collector.slurm.bin-dir={slurm.folder}", f"--collector.runs.scope={scope}")
    shared = SharedState()
    Collection([_runner(flags, shared)]).sample_once()
    assert set(shared.expected.runs()) == expected
