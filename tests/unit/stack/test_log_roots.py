"""Where the exporter of `trainwarden up` may read packs and logs, and settings of them that are refused."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from trainwarden.errors import UsageError
from trainwarden.stack.log_roots import log_roots

if TYPE_CHECKING:
    from pathlib import Path


def test_the_folders_of_the_pack_and_of_all_logs_that_are_named(tmp_path: Path) -> None:
    work, packs = tmp_path / "work", tmp_path / "packs"
    packs.mkdir()
    pack = packs / "mine.yaml"
    pack.write_text("log_path_template: /scratch/{run_id}/a.log\noutput_paths: [/other/%j.out, relative-%j.out]\n")
    environ = {"TRAINWARDEN_SIGNALS": str(pack), "TRAINWARDEN_LOG_PATH": "/logs/{run_id}.txt"}
    assert [str(folder) for folder in log_roots(environ, work)] == [
        str(work), str(packs), "/scratch", "/other", "/logs",
    ]  # fmt: skip
    assert log_roots({"TRAINWARDEN_SIGNALS": "megatron_basic"}, work) == (work,)
    assert log_roots({"TRAINWARDEN_LOG_PATH": "slurm-%j.out"}, work) == (work,)


@pytest.mark.parametrize(
    ("name", "value", "named"),
    [
        ("TRAINWARDEN_SIGNALS", "/nowhere/mine.yaml", "/nowhere/mine.yaml: no such file"),
        ("TRAINWARDEN_SIGNALS", "megatron_basics", "'megatron_basics' is none of all, megatron_basic,"),
        ("TRAINWARDEN_LOG_PATH", "/scratch/train.log", "names no run: expected one of {run_id}"),
        ("TRAINWARDEN_LOG_PATH", "../{run_id}.log", "without .."),
    ],
)
def test_a_setting_that_cannot_be_used_is_refused_by_name(tmp_path: Path, name: str, value: str, named: str) -> None:
    with pytest.raises(UsageError) as refused:
        log_roots({name: value}, tmp_path)
    assert str(refused.value).startswith(f"{name}: ")
    assert named in str(refused.value)
