"""A template means the files of one run and of no other."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from trainwarden.signals.tailing import template as template_module
from trainwarden.signals.tailing.template import InvalidTemplate, Template


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    for name in (
        "slurm-7.out",
        "slurm-77.out",
        "slurm-9_3.out",
        "a/0.log",
        "a/1.log",
        "b/0.log",
        "n1-a.txt",
        "n2-a.txt",
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    return tmp_path


@cases(
    ("template", "values", "names"),
    [
        ("{run_id}/*.log", {"run_id": "a"}, ["a/0.log", "a/1.log"]),
        ("slurm-%j.out", {"job_id": "7"}, ["slurm-7.out"]),
        ("slurm-{job_id}.out", {"job_id": "7"}, ["slurm-7.out"]),
        ("slurm-%A_%a.out", {"job_id": "12", "array_job_id": "9", "array_task_id": "3"}, ["slurm-9_3.out"]),
        ("slurm-%A_%a.out", {"job_id": "12", "array_job_id": "9"}, []),
        ("%N-{run_id}.txt", {"run_id": "a", "host": "n2"}, ["n2-a.txt"]),
        ("%N-{run_id}.txt", {"run_id": "a"}, ["n1-a.txt", "n2-a.txt"]),
        ("slurm-%j.out", {"run_id": "a"}, []),
        ("slurm-%j.out", {"job_id": "*"}, []),
        ("{run_id}/0.log", {"run_id": ".."}, []),
        ("{run_id}/0.log", {"run_id": "../b"}, []),
        ("%3j%%.out", {"job_id": "7"}, ["007%.out"]),
    ],
)
def test_a_template_means_these_files(logs: Path, template: str, values: dict[str, str], names: list[str]) -> None:
    found = Template.parse(f"{logs}/{template}").paths(values)
    assert [path for path in found if Path(path).exists() or len(names) == 1] == [f"{logs}/{name}" for name in names]


@cases("template", ["{run_id}/*.out", "slurm-{run_id}.out", "*/x/{run_id}.out"])
def test_where_logs_of_very_many_runs_are_kept_the_newest_are_found(tmp_path: Path, template: str) -> None:
    for number in range(40):
        path = tmp_path / template.replace("{run_id}", f"r{number}").replace("*", "0")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
        for each in (path, path.parent):
            os.utime(each, (1000 + number * 7 % 40, 1000 + number * 7 % 40))
    newest = {f"r{number}" for number in range(40) if number * 7 % 40 >= 35}
    assert set(Template.parse(f"{tmp_path}/{template}").runs(5)) == newest
    assert len(set(Template.parse(f"{tmp_path}/{template}").runs())) == 40


def test_runs_are_found_by_their_files(logs: Path) -> None:
    assert sorted(Template.parse(f"{logs}/{{run_id}}/?.log").runs()) == ["a", "b"]
    assert list(Template.parse(f"{logs}/slurm-%j.out").runs()) == []


@cases("text", ["relative/{run_id}", "/logs/../{run_id}", "/logs/{what}"])
def test_what_is_no_template_is_named(text: str) -> None:
    with pytest.raises(InvalidTemplate, match=r"expected an absolute path|none of"):
        Template.parse(text)


def test_a_template_has_the_folder_that_everything_lies_in() -> None:
    template = Template.parse("/scratch/logs-%j/out.*")
    assert (template.root, template.names_run, template.names_node) == ("/scratch", True, False)


def test_a_pattern_matches_what_globs_match(tmp_path: Path) -> None:
    for name in ("a/x.out", "a/.hidden.out", "b/x.out", "b/y.txt", ".c/x.out", "[d]/x.out"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    (tmp_path / "e").symlink_to("a")
    (tmp_path / "b/dead.out").symlink_to("nowhere")
    for pattern in ("*/x.out", "?/*.out", "[ab]/*", "*/.h*", "*/nothing", ".*/*.out", "*/*/x", "**/x.out"):
        expected = sorted(glob.glob(f"{tmp_path}/{pattern}"))  # noqa: PTH207  # what it is compared with
        assert Template.parse(f"{tmp_path}/{pattern}").paths({"run_id": "r"}) == expected
    assert Template.parse(f"{tmp_path}/{{run_id}}/x*").paths({"run_id": "[d]"}) == [f"{tmp_path}/[d]/x.out"]


class NotedNames:
    """What `os.scandir` returns, whose names are noted as they are asked for."""

    def __init__(self, found: Any, names: list[str]) -> None:
        self._found, self._names = found, names

    def __enter__(self) -> NotedNames:
        return self

    def __exit__(self, *_: object) -> None:
        self._found.close()

    def __iter__(self) -> Iterator[Any]:
        for entry in self._found:
            self._names.append(entry.name)
            yield entry


def test_of_a_folder_with_very_many_names_no_more_are_looked_at_than_are_wanted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(50):
        (tmp_path / f"{number}.out").touch()
    names: list[str] = []
    real = os.scandir
    monkeypatch.setattr(template_module, "MAX_PATHS", 3)
    monkeypatch.setattr(os, "scandir", lambda path: NotedNames(real(path), names))
    assert len(Template.parse(f"{tmp_path}/*.out").paths({"run_id": "r"})) == 3
    assert len(names) == 3
