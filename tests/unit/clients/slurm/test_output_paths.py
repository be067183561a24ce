"""Where a job's output is, as sbatch resolves it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.clients.slurm.commands import job_22_05, job_24_05
from trainwarden.clients.slurm.jobs import read_job
from trainwarden.clients.slurm.output_paths import output_paths

_PLACE = {"current_working_directory": "/home/alice/train", "batch_host": "n1.cluster"}


@cases(
    ("name", "expected"),
    [
        ("out.log", "/home/alice/train/out.log"),
        ("/logs/%x-%j.out", "/logs/llama-4711.out"),
        ("/logs/%6j_%u_%N.out", "/logs/004711_alice_n1.out"),
        ("%A_%a.out", "/home/alice/train/4711_4294967294.out"),
        ("100%%.out", "/home/alice/train/100%.out"),
        (r"/logs/\%x.out", "/logs/%x.out"),
        ("../%x/%q.out", "/home/alice/llama/%q.out"),
    ],
)
def test_names_resolve_as_sbatch_resolves_them(name: str, expected: str) -> None:
    job = read_job(job_22_05(4711, name="llama", standard_output=name, **_PLACE))
    assert output_paths(job) == (expected,)


def test_one_file_for_both_outputs_is_one() -> None:
    both = {"standard_output": "all.log", "standard_error": "./all.log"}
    assert output_paths(read_job(job_22_05(1, **both, **_PLACE))) == ("/home/alice/train/all.log",)
    apart = both | {"standard_error": "/dev/null"}
    assert output_paths(read_job(job_22_05(1, **apart, **_PLACE))) == ("/home/alice/train/all.log",)
    apart = both | {"standard_error": "err.log"}
    assert len(output_paths(read_job(job_22_05(1, **apart, **_PLACE)))) == 2


def test_a_job_without_names_has_those_of_sbatch() -> None:
    assert output_paths(read_job(job_22_05(17, **_PLACE))) == ("/home/alice/train/slurm-17.out",)
    task = job_22_05(17, array_job_id=15, array_task_id=2, **_PLACE)
    assert output_paths(read_job(task)) == ("/home/alice/train/slurm-15_2.out",)


def test_the_expanded_name_of_newer_versions_counts() -> None:
    names = {"standard_output": "%x-%b.log", "stdout_expanded": "/logs/llama-0.log"}
    assert output_paths(read_job(job_24_05(1, **names, **_PLACE))) == ("/logs/llama-0.log",)


def test_no_more_is_kept_of_a_name_than_shows_that_it_cannot_be_opened() -> None:
    job = read_job(job_22_05(1, standard_output="/logs/" + "x" * 100_000, **_PLACE))
    (path,) = output_paths(job)
    assert len(path) == 4096
    with pytest.raises(OSError, match="too long"):
        Path(path).stat()


def test_a_name_that_needs_a_node_waits_for_it() -> None:
    waits = job_22_05(1, standard_output="/logs/%N.log", current_working_directory="/home/alice")
    assert output_paths(read_job(waits)) == ()
    assert output_paths(read_job(job_22_05(1))) == ()
