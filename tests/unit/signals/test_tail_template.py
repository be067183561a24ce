"""A template means the files of one run and of no other."""

from __future__ import annotations

from pathlib import Path

import pytest

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


@pytest.mark.parametrize(
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


def test_runs_are_found_by_their_files(logs: Path) -> None:
    assert sorted(Template.parse(f"{logs}/{{run_id}}/?.log").runs()) == ["a", "b"]
    assert list(Template.parse(f"{logs}/slurm-%j.out").runs()) == []


@pytest.mark.parametrize("text", ["relative/{run_id}", "/logs/../{run_id}", "/logs/{what}"])
def test_what_is_no_template_is_named(text: str) -> None:
    with pytest.raises(InvalidTemplate, match=r"expected an absolute path|none of"):
        Template.parse(text)


def test_a_template_has_the_folder_that_everything_lies_in() -> None:
    template = Template.parse("/scratch/logs-%j/out.*")
    assert (template.root, template.names_run, template.names_node) == ("/scratch", True, False)
