"""Which collectors run, and on which node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import cases
from trainwarden.errors import UsageError
from trainwarden_exporter.collector_set import describe_off, select_on
from trainwarden_exporter.core.node import node_from_flags
from trainwarden_exporter.flags import build_parser


def test_a_file_system_that_cannot_even_be_looked_for_is_named(tmp_path: Path) -> None:
    """As one below a folder that this user may not enter, which root cannot be refused."""
    flags = vars(build_parser().parse_args([f"--path.sysfs={tmp_path / ('x' * 300)}"]))
    with pytest.raises(UsageError, match=r"--path\.sysfs .*: expected a folder"):
        node_from_flags(flags)


@cases("flag", ["--collector.s3", "--expect.run=r", "--compat.finetuning"])
def test_what_only_the_collector_of_runs_shows_takes_it(flag: str) -> None:
    flags = vars(build_parser().parse_args(["--collector.disable-defaults", "--collector.process", flag]))
    with pytest.raises(UsageError, match=f"^{flag.partition('=')[0]}: expected --collector.runs as well"):
        select_on(node_from_flags(flags), flags)


def test_a_bucket_in_the_environment_alone_asks_for_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MONITORING_BUCKET", "bucket")
    flags = vars(build_parser().parse_args(["--no-collector.runs"]))
    assert "s3" not in {spec.name for spec in select_on(node_from_flags(flags), flags)}


def test_a_collector_that_finds_nothing_here_names_what_it_needs(tmp_path: Path) -> None:
    paths = [f"--path.{name}={tmp_path}" for name in ("sysfs", "procfs", "rootfs")]
    flags = vars(build_parser().parse_args([*paths, "--no-collector.kernel"]))
    off = describe_off({spec.name for spec in select_on(node_from_flags(flags), flags)}, flags)
    assert "nvidia (needs an NVIDIA GPU on the PCI bus, or --expect.gpus), amd (needs " in off
    assert not {"slurm", "ray", "s3", "kernel", "runs", "clock"} & {each.partition(" ")[0] for each in off.split(", ")}
    assert describe_off((), {**flags, "collector.disable_defaults": True}) == ""
