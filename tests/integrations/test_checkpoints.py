"""Checkpoints written by the real frameworks: whole ones are complete, damaged ones never."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp

import trainwarden
from tests.integrations.writers import (
    WRITERS,
    Writer,
    distributed_folder_of_two,
    save_over_and_interrupt,
    torch_file,
    torch_legacy_file,
    trainer_folder,
)
from trainwarden.checkpoint import size_of, verify
from trainwarden.checkpoint.digests import manifest_path, write_manifest

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


def zeroed(path: Path) -> Iterator[tuple[str, str]]:
    """Each file in turn, with its length: all zeros, its last half zeros, and large ones with a hole."""
    for part in [path] if path.is_file() else sorted(one for one in path.rglob("*") if one.is_file()):
        data = part.read_bytes()
        half, hole = len(data) // 2, slice(2**16, 2**17)
        kinds = {"zeros": b"\0" * len(data), "half": data[:half] + b"\0" * (len(data) - half)}
        for how, left in kinds.items():
            part.write_bytes(left)
            yield part.name, how
        if len(data) > hole.stop:
            with part.open("wb") as file:
                file.write(data[: hole.start])
                file.seek(hole.stop)
                file.write(data[hole.stop :])
            yield part.name, "hole"
        part.write_bytes(data)


def test_a_zeroed_file_is_never_complete_even_by_its_size(written: tuple[Writer, Path]) -> None:
    writer, path = written
    size = size_of(path)
    unseen = {damage for damage in zeroed(path) if verify(path, size).answer == "complete"}
    # Raw tensors end torch's old format, and only digests tell zeros among them.
    assert unseen <= ({(path.name, "half")} if writer is torch_legacy_file else set())
    assert verify(path, size).answer == "complete"


def test_a_hole_in_a_shard_is_noticed_by_the_checksums_of_torch(tmp_path: Path) -> None:
    large = {"weight": torch.randn(512, 512), "zeros": torch.zeros(512, 512)}
    dcp.save(large, checkpoint_id=tmp_path / "step_1")
    torch.save(large, tmp_path / "step_1.pt")
    for path, file in ((tmp_path / "step_1", "__0_0.distcp"), (tmp_path / "step_1.pt", "step_1.pt")):
        assert verify(path).answer == "complete"
        answers = {damage[1]: verify(path, size_of(path)).answer for damage in zeroed(path) if damage[0] == file}
        assert answers == {"zeros": "incomplete", "half": "incomplete", "hole": "incomplete"}


def test_torch_loads_a_mixture_of_two_steps_and_it_is_not_complete(tmp_path: Path) -> None:
    path = save_over_and_interrupt(tmp_path)
    loaded = {"weight": torch.zeros(256, 256)}
    dcp.load(loaded, checkpoint_id=path)
    assert loaded["weight"].unique().tolist() == [1.0, 2.0], "of each step a half, and no error"
    verdict = verify(path, size_of(path))
    assert verdict.answer == "unverifiable"
    assert "1 of 2 shards are" in verdict.evidence[0]


@pytest.mark.parametrize("order", [1, -1])
def test_a_copy_that_lost_the_times_stays_complete(tmp_path: Path, order: int) -> None:
    path = distributed_folder_of_two(tmp_path)
    for place, file in enumerate(sorted(path.iterdir())[::order]):
        os.utime(file, (1_700_000_000 + 60 * place,) * 2)
    assert verify(path).answer == "complete", verify(path)


def test_digests_prove_it_and_find_one_changed_byte_in_any_file(written: tuple[Writer, Path]) -> None:
    _, path = written
    write_manifest(str(path))
    try:
        assert verify(path, trust="none", whole=True).answer == verify(path, trust="none").answer == "complete"
        for part in [path] if path.is_file() else sorted(one for one in path.rglob("[!.]*") if one.is_file()):
            data = part.read_bytes()
            middle = len(data) // 2
            times = (part.stat().st_atime, part.stat().st_mtime)
            part.write_bytes(data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :])
            # As a disk changes it, without a trace in its time.
            os.utime(part, times)
            verdict = verify(path, size_of(path), whole=True)
            assert verdict.answer == "incomplete", (part.name, verdict)
            assert part.name in str(verdict)
            part.write_bytes(data)
            os.utime(part, times)
    finally:
        manifest_path(path).unlink()


def test_torch_loads_a_checkpoint_with_digests(tmp_path: Path) -> None:
    path = distributed_folder_of_two(tmp_path)
    write_manifest(str(path))
    loaded = {"weight": torch.zeros(16, 16)}
    dcp.load(loaded, checkpoint_id=path)
    assert loaded["weight"].count_nonzero() > 0
