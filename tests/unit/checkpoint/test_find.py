"""The newest checkpoint is the one of the highest step, whatever its name sorts like and whenever it was touched."""

import json
import os
from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.checkpoint import formats
from tests.unit.checkpoint.formats import write
from trainwarden.checkpoint import find, newest, search
from trainwarden.checkpoint.names import is_candidate, step_of


@cases(
    ("name", "step"),
    [
        ("step_100", 100),
        ("step-000100", 100),
        ("step100", 100),
        ("global_step_100", 100),
        ("global_step100", 100),
        ("iter_0000100", 100),
        ("checkpoint-100", 100),
        ("checkpoint_100", 100),
        ("epoch=3-step=100.ckpt", 100),
        ("epoch=3-step=100-v2.ckpt", 100),
        ("llama-step=100-val_loss=0.25.ckpt", 100),
        ("ckpt_100.pt", 100),
        ("model_step_100.pt", 100),
        ("step-100.npz", 100),
        ("checkpoint_epoch_3_step_100.pth", 100),
        ("model.safetensors", None),
        ("footstep", None),
        ("step_", None),
        ("timestep5", None),
        ("step_" + "9" * 5000, None),
        ("step_\N{ARABIC-INDIC DIGIT ONE}", None),
    ],
)
def test_a_name_gives_its_step(name: str, step: int | None) -> None:
    assert step_of(name) == step


@cases(
    "name",
    [
        "tmp-checkpoint-100",
        "step_100.tmp",
        "step_100_temp",
        "step_100.partial",
        "100.orbax-checkpoint-tmp-1234567",
        "checkpoint_100.orbax-checkpoint-tmp",
        ".step_100",
        "failed_iter_0000100",
        "step_100.corrupt",
    ],
)
def test_what_is_temporary_or_set_aside_is_never_a_candidate(name: str, tmp_path: Path) -> None:
    assert not is_candidate(name)
    write(tmp_path / name, formats.dcp())
    write(tmp_path / "step_9", formats.dcp())
    assert [one.step for one in find(tmp_path)] == [9]


def _steps(folder: Path, *names: str) -> Path:
    for name in names:
        write(folder / name, formats.dcp())
    return folder


def test_the_order_is_by_number_and_neither_by_name_nor_by_time(tmp_path: Path) -> None:
    _steps(tmp_path, "step_90", "step_1000", "step_200")
    os.utime(tmp_path / "step_90")
    os.utime(tmp_path / "step_1000", (1, 1))
    assert [one.step for one in find(tmp_path)] == [1000, 200, 90]


def test_lightning_counts_files_of_one_step(tmp_path: Path) -> None:
    for name in ("epoch=0-step=5.ckpt", "epoch=0-step=5-v10.ckpt", "epoch=0-step=5-v9.ckpt"):
        (tmp_path / name).write_bytes(formats.torch_file())
    assert find(tmp_path)[0].name == "epoch=0-step=5-v10.ckpt"


def test_the_step_of_a_last_ckpt_is_read_from_it(tmp_path: Path) -> None:
    (tmp_path / "epoch=0-step=5.ckpt").write_bytes(formats.torch_file())
    (tmp_path / "last.ckpt").write_bytes(formats.torch_file({"epoch": 1, "global_step": 7, "state_dict": {}}))
    assert [(one.name, one.step) for one in find(tmp_path)] == [("last.ckpt", 7), ("epoch=0-step=5.ckpt", 5)]


def test_the_newest_complete_one_wins_over_newer_incomplete_ones(tmp_path: Path) -> None:
    _steps(tmp_path, "iter_0000010", "iter_0000020", "iter_0000030")
    (tmp_path / "iter_0000030" / "__1_0.distcp").unlink()
    (tmp_path / "iter_0000020" / ".metadata").unlink()
    found = newest(tmp_path)
    assert found is not None
    assert (found[0].step, found[1].answer) == (10, "complete")


def test_the_search_for_a_complete_one_ends_with_the_last(tmp_path: Path) -> None:
    _steps(tmp_path, "step_1")
    for step in range(2, 40):
        (tmp_path / f"step_{step}").mkdir()
    done = search(tmp_path, every=True)
    assert done.best is not None
    assert (done.best[0].step, len(done.verdicts)) == (1, 39)
    _steps(tmp_path, "step_50")
    assert len(search(tmp_path, every=True).verdicts) == 20
    assert len(search(tmp_path).verdicts) == 1


def test_a_complete_one_newer_than_what_the_tracker_names_wins_and_that_is_reported(tmp_path: Path) -> None:
    _steps(tmp_path, "iter_0000010", "iter_0000020")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text("10")
    done = search(tmp_path)
    assert done.best is not None
    assert done.best[0].step == 20
    assert done.remarks == ("latest_checkpointed_iteration.txt names step 10, and step 20 is there as well",)


def test_of_unverifiable_ones_the_tracked_one_wins(tmp_path: Path) -> None:
    for step in (10, 20):
        write(tmp_path / f"step_{step}", {"weights.bin": formats.torch_file()})
    assert newest(tmp_path)[0].step == 20  # type: ignore[index]  # there is one
    (tmp_path / "latest").write_text("step_10\n")
    found = newest(tmp_path)
    assert found is not None
    assert (found[0].step, found[0].tracked, found[1].answer) == (10, True, "unverifiable")


@cases(
    ("tracker", "text", "folder"),
    [
        ("latest_checkpointed_iteration.txt", "20\n", "iter_0000020"),
        ("latest_checkpointed_iteration.txt", "20", "global_step_20"),
        ("latest_checkpointed_iteration.txt", "release", "release"),
        ("latest", "global_step20", "global_step20"),
        ("latest", "my-own-tag", "my-own-tag"),
    ],
)
def test_trackers_of_all_frameworks_are_understood(tracker: str, text: str, folder: str, tmp_path: Path) -> None:
    _steps(tmp_path, folder)
    (tmp_path / tracker).write_text(text)
    (only,) = find(tmp_path)
    assert (only.name, only.tracked) == (folder, True)
    assert search(tmp_path).remarks == ()


def test_a_latest_link_is_a_tracker_and_no_checkpoint_of_its_own(tmp_path: Path) -> None:
    _steps(tmp_path, "step_10", "step_20")
    (tmp_path / "latest").symlink_to("step_10")
    done = search(tmp_path)
    assert [(one.step, one.tracked) for one in done.candidates] == [(20, False), (10, True)]
    assert done.remarks == ("latest names step_10, and step 20 is there as well",)


def test_lightning_may_link_last_ckpt_to_what_it_saved(tmp_path: Path) -> None:
    (tmp_path / "epoch=0-step=5.ckpt").write_bytes(formats.torch_file({"global_step": 5}))
    (tmp_path / "last.ckpt").symlink_to("epoch=0-step=5.ckpt")
    assert [(one.name, one.tracked) for one in find(tmp_path)] == [("epoch=0-step=5.ckpt", True)]


@cases("text", ["30", "", "12 monkeys", "\0" * 9, "9" * 5000])
def test_a_tracker_that_names_nothing_that_is_there_is_remarked_and_changes_nothing(text: str, tmp_path: Path) -> None:
    _steps(tmp_path, "iter_0000010")
    (tmp_path / "latest_checkpointed_iteration.txt").write_text(text)
    done = search(tmp_path)
    assert len(done.remarks) == 1
    assert done.remarks[0].startswith("latest_checkpointed_iteration.txt ")
    assert done.best is not None
    assert done.best[0].step == 10


def test_a_checkpoint_is_found_by_its_own_path_and_in_a_folder_called_checkpoints(tmp_path: Path) -> None:
    itself = write(tmp_path / "out" / "checkpoints" / "checkpoint-7", formats.transformers_trainer(7))
    write(itself / "global_step7", formats.deepspeed())
    for path in (tmp_path / "out", itself.parent, itself, f"{itself}/"):
        found = newest(path)
        assert found is not None
        assert (found[0].path, found[0].step) == (str(itself), 7)


def test_orbax_steps_are_numbers_and_other_numbers_are_no_steps(tmp_path: Path) -> None:
    write(tmp_path / "100", {"_CHECKPOINT_METADATA": b"{}", "state/x": b"1"})
    write(tmp_path / "2024", {"notes.txt": b"1"})
    write(tmp_path / "200.orbax-checkpoint-tmp-9", {"_CHECKPOINT_METADATA": b"{}"})
    assert [one.step for one in find(tmp_path)] == [100]


def test_where_nothing_is_or_cannot_be_read_nothing_is_found_and_nothing_raised(tmp_path: Path) -> None:
    assert find(tmp_path) == []
    assert newest(tmp_path) is None
    assert search(tmp_path).problem is None
    for path in (tmp_path / "absent", "\0", "s3://", "s3://UPPER_case!!/x"):
        assert find(path) == []
        assert search(path).problem
    assert newest(tmp_path / "absent") is None
    found = newest("s3://")
    assert found is not None
    assert found[1].answer == "unverifiable", "what cannot be read may hold something"


def test_logs_and_configurations_beside_checkpoints_are_none(tmp_path: Path) -> None:
    _steps(tmp_path, "step_10")
    (tmp_path / "step_20.log").write_text("x")
    (tmp_path / "checkpoint-30.json").write_text(json.dumps({}))
    assert [one.step for one in find(tmp_path)] == [10]


def test_an_optimizer_s_file_is_not_taken_for_the_model_of_its_step(tmp_path: Path) -> None:
    for name in ("optimizer_step_9.pt", "model_step_9.pt", "scheduler_step_9.pt", "model_step_8.pt"):
        (tmp_path / name).write_bytes(formats.torch_file())
    assert Path(find(tmp_path)[0].path).name == "model_step_9.pt"


@pytest.mark.parametrize("name", ["llama-step=9-consumed_samples=72.0", "llama-step=9.ckpt"])
def test_what_nemo_has_marked_as_unfinished_is_no_candidate(name: str, tmp_path: Path) -> None:
    _steps(tmp_path, name, "llama-step=8-consumed_samples=64.0")
    assert [one.step for one in find(tmp_path)] == [9, 8]
    (tmp_path / f"{name.removesuffix('.ckpt')}-unfinished").touch()
    assert [one.step for one in find(tmp_path)] == [8]
