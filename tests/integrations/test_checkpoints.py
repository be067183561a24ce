"""Checkpoints written by the real frameworks: whole ones are complete, damaged ones never."""

from collections.abc import Iterator
from pathlib import Path

import pytest

import trainwarden
from tests.integrations.writers import WRITERS, Writer, torch_file, torch_legacy_file, trainer_folder
from trainwarden.checkpoint import size_of, verify

# A training resumes without them, or nothing in the others tells whether they were ever there.
_NOT_MISSED = {"config.json", "generation_config.json", "training_args.bin"}


@pytest.fixture(scope="module", params=WRITERS, ids=lambda writer: writer.__name__)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Writer, Path]:
    folder = tmp_path_factory.mktemp(request.param.__name__)
    return request.param, request.param(folder)


def damages(path: Path) -> Iterator[tuple[str, str]]:
    """Each file in turn: removed, emptied, halved, without its last bytes; whole again when the next one comes."""
    for part in [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file()):
        data = part.read_bytes()
        for how, left in {"removed": None, "emptied": b"", "halved": data[: len(data) // 2], "cut": data[:-8]}.items():
            part.unlink() if left is None else part.write_bytes(left)
            yield part.name, how
            part.write_bytes(data)


def test_a_whole_one_is_complete_by_itself(written: tuple[Writer, Path]) -> None:
    writer, path = written
    expected = "unverifiable" if writer is torch_legacy_file else "complete"
    assert verify(path).answer == expected, verify(path)
    assert verify(path, size_of(path)).answer == "complete"


def test_with_its_recorded_size_no_damage_to_any_file_stays_unseen(written: tuple[Writer, Path]) -> None:
    _, path = written
    size = size_of(path)
    assert {damage: verify(path, size).answer for damage in damages(path)}.items() <= {
        (damage, "incomplete") for damage in damages(path)
    }


def test_without_its_size_it_is_never_complete_if_a_file_is_damaged(written: tuple[Writer, Path]) -> None:
    _, path = written
    unseen = {damage for damage in damages(path) if verify(path).answer == "complete"}
    assert unseen <= {(name, "removed") for name in _NOT_MISSED}


def test_a_run_never_resumes_from_a_damaged_one(attempt: object, tmp_path: Path) -> None:
    older, newest = torch_file(tmp_path), trainer_folder(tmp_path)
    with trainwarden.run() as run:
        run.checkpoint_saved(older, 1)
        run.checkpoint_saved(newest, 2)
    with trainwarden.run() as run:
        assert run.resume_checkpoint() == str(newest)
        chosen = {run.resume_checkpoint() for _ in damages(newest)}
    assert chosen == {str(older)}
