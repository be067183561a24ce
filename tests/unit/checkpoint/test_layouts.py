"""Every layout is complete as a whole, and never with one of its files missing, empty or cut off."""

from pathlib import Path

import pytest

from tests.cases import cases
from tests.unit.checkpoint import formats
from tests.unit.checkpoint.formats import Files, write
from trainwarden.checkpoint import verify

LAYOUTS: dict[str, tuple[str, Files]] = {
    "torch DCP": ("step-10", formats.dcp()),
    "Megatron distributed": ("iter_0000010", formats.megatron_distributed()),
    "Megatron mp_rank": ("iter_0000010", formats.megatron_legacy()),
    "Megatron mp_rank, one pipeline stage": ("iter_0000010", formats.megatron_legacy(tensor=2, pipeline=1)),
    "DeepSpeed": ("global_step10", formats.deepspeed()),
    "DeepSpeed, one rank": ("global_step10", formats.deepspeed(1, 1)),
    "DeepSpeed, bfloat16": ("global_step10", formats.deepspeed(prefix="bf16_")),
    "transformers model": ("export", formats.transformers_model()),
    "transformers Trainer": ("checkpoint-10", formats.transformers_trainer(10)),
    "transformers Trainer, shards": ("checkpoint-10", formats.transformers_trainer(10, formats.transformers_model())),
    "transformers Trainer, adapter": ("checkpoint-10", formats.transformers_trainer(10, formats.adapter())),
    "verl FSDP": ("global_step_10", formats.verl()),
    "Lightning": ("epoch=0-step=10.ckpt", formats.lightning_fsdp()),
}

of_layouts = cases("layout", LAYOUTS)


def _written(layout: str, tmp_path: Path) -> tuple[Path, Files]:
    name, files = LAYOUTS[layout]
    return write(tmp_path / name, files), files


@of_layouts
def test_a_whole_one_is_complete_and_recognised(layout: str, tmp_path: Path) -> None:
    verdict = verify(_written(layout, tmp_path)[0])
    assert verdict.answer == "complete", verdict
    assert layout.partition(",")[0] in verdict.layouts


@of_layouts
def test_without_any_one_file_it_is_not_complete(layout: str, tmp_path: Path) -> None:
    folder, files = _written(layout, tmp_path)
    for name in files:
        (folder / name).unlink()
        verdict = verify(folder)
        assert verdict.answer != "complete", f"without {name}"
        (folder / name).write_bytes(files[name])
    assert verify(folder).answer == "complete"


@of_layouts
def test_with_any_one_file_empty_it_is_incomplete(layout: str, tmp_path: Path) -> None:
    folder, files = _written(layout, tmp_path)
    for name in files:
        (folder / name).write_bytes(b"")
        assert verify(folder).answer == "incomplete", f"with {name} empty"
        (folder / name).write_bytes(files[name])


@of_layouts
def test_with_any_one_file_cut_off_it_is_incomplete(layout: str, tmp_path: Path) -> None:
    folder, files = _written(layout, tmp_path)
    for name, data in files.items():
        for length in {1, min(9, len(data) - 1), len(data) // 3, len(data) // 2, len(data) - 1}:
            (folder / name).write_bytes(data[:length])
            assert verify(folder).answer == "incomplete", f"with {name} cut off at {length} of {len(data)}"
        (folder / name).write_bytes(data)


@pytest.mark.slow
@of_layouts
def test_with_any_one_file_zeroed_it_is_incomplete_though_its_size_is_right(layout: str, tmp_path: Path) -> None:
    folder, files = _written(layout, tmp_path)
    size = sum(map(len, files.values()))
    for name, data in files.items():
        (folder / name).write_bytes(b"\0" * len(data))
        assert verify(folder, size).answer == "incomplete", f"with {name} zeroed"
        if not name.endswith((".distcp", ".metadata", ".json", ".safetensors")):
            (folder / name).write_bytes(data[:-30] + b"\0" * 30)
            assert verify(folder, size).answer == "incomplete", f"with the end of {name} zeroed"
        (folder / name).write_bytes(data)


@of_layouts
def test_what_lies_beside_it_changes_nothing_that_its_layout_promises(layout: str, tmp_path: Path) -> None:
    folder, files = _written(layout, tmp_path)
    size = sum(map(len, files.values()))
    write(folder, {"log.json": b'{"step": 1}\n{"step": 2}\n', "empty.json": b"", "COMMITTED": b""})
    (folder / ".nfs00000000004c1f2a00000003").write_bytes(b"\7" * 500)
    assert verify(folder).answer == verify(folder, size).answer == "complete", verify(folder)


def test_metadata_alone_proves_nothing_and_most_shards_are_not_enough(tmp_path: Path) -> None:
    files = formats.dcp(ranks=512, size=3)
    folder = write(tmp_path / "iter_0003000", files)
    assert verify(folder).answer == "complete"
    for rank in range(396, 512):
        (folder / f"__{rank}_0.distcp").unlink()
    verdict = verify(folder)
    assert verdict.answer == "incomplete"
    assert verdict.evidence[0].startswith("116 of 512 files missing that .metadata promises: __396_0.distcp")


def test_a_shard_that_no_tensor_is_in_may_be_empty_or_missing(tmp_path: Path) -> None:
    folder = write(tmp_path / "step-10", {**formats.dcp(), "__3_0.distcp": b""})
    assert verify(folder).answer == "complete"


def test_shards_that_were_saved_by_more_or_fewer_ranks_than_now_are_no_reason_to_doubt(tmp_path: Path) -> None:
    for ranks in (1, 7):
        assert verify(write(tmp_path / f"step-{ranks}", formats.dcp(ranks=ranks))).answer == "complete"


def test_a_leftover_without_its_final_file_is_incomplete_and_one_beside_it_is_not(tmp_path: Path) -> None:
    files = formats.dcp()
    folder = write(tmp_path / "step-10", {**files, "__0_0.distcp.tmp": b"x"})
    assert verify(folder).answer == "complete"
    (folder / "__0_0.distcp").unlink()
    assert verify(folder).answer == "incomplete"


def test_a_leftover_of_what_nothing_else_proves_is_incomplete(tmp_path: Path) -> None:
    files = {"weights.pt": formats.torch_file(), "optimizer.pt.tmp": b"x"}
    verdict = verify(write(tmp_path / "step_10", files))
    assert verdict.answer == "incomplete"
    assert "optimizer.pt.tmp" in verdict.evidence[0]


def test_what_nothing_promises_leaves_a_doubt(tmp_path: Path) -> None:
    """Were `ema.pt` lost as well, nobody would know."""
    folder = write(tmp_path / "step-10", {**formats.dcp(), "ema.pt": formats.torch_file()})
    verdict = verify(folder)
    assert verdict.answer == "unverifiable"
    assert "ema.pt" in verdict.evidence[0]


def test_a_folder_of_whole_files_in_no_known_layout_is_unverifiable_and_complete_by_its_size(tmp_path: Path) -> None:
    files = {"weights.pt": formats.torch_file(), "optimizer.pt": formats.torch_file()}
    folder = write(tmp_path / "step_10", files)
    size = sum(map(len, files.values()))
    assert verify(folder).answer == "unverifiable"
    assert "its layout is not known" in str(verify(folder))
    assert verify(folder, size).answer == "complete"
    (folder / "optimizer.pt").unlink()
    assert verify(folder, size).answer == "incomplete"


def test_an_interrupted_save_of_trainer_is_incomplete(tmp_path: Path) -> None:
    """It writes the model first and trainer_state.json last."""
    files = formats.transformers_trainer(10)
    for missing in (["trainer_state.json"], ["trainer_state.json", "rng_state.pth", "scheduler.pt", "optimizer.pt"]):
        folder = write(
            tmp_path / str(len(missing)) / "checkpoint-10", {k: files[k] for k in files.keys() - set(missing)}
        )
        assert verify(folder).answer == "incomplete"


def test_trainer_files_of_another_step_leave_a_doubt(tmp_path: Path) -> None:
    folder = write(tmp_path / "checkpoint-20", formats.transformers_trainer(10))
    verdict = verify(folder)
    assert (verdict.answer, verdict.evidence[0]) == (
        "unverifiable",
        "trainer_state.json names step 10, the folder step 20",
    )


def test_saved_arguments_state_that_optimizer_states_were_lost_all_of_them(tmp_path: Path) -> None:
    files = formats.megatron_legacy()
    folder = write(tmp_path / "iter_0000010", {name: files[name] for name in files if "distrib" not in name})
    verdict = verify(folder)
    assert verdict.answer == "incomplete"
    assert "distrib_optim.pt" in verdict.evidence[0]


def test_trainer_on_deepspeed_is_complete_with_a_scheduler_of_its_own(tmp_path: Path) -> None:
    files = formats.transformers_trainer(10)
    del files["optimizer.pt"]
    files |= {f"global_step10/{name}": data for name, data in formats.deepspeed(2, 1).items()}
    folder = write(tmp_path / "checkpoint-10", {**files, "latest": b"global_step10"})
    assert "scheduler.pt" in files
    assert verify(folder).answer == "complete"
    (folder / "global_step10/zero_pp_rank_1_mp_rank_00_optim_states.pt").unlink()
    assert verify(folder).answer == "incomplete"


@pytest.mark.parametrize(
    ("below", "state", "more"),
    [("", "train_state.pt", "run_config.yaml"), ("actor/dist_ckpt/", "data.pt", "actor/huggingface/config.json")],
)
def test_what_is_saved_beside_the_shards_of_megatron_belongs_to_them(
    tmp_path: Path, below: str, state: str, more: str
) -> None:
    files = {f"{below}{name}": data for name, data in formats.megatron_distributed().items()}
    folder = write(tmp_path / "iter_0000010", {**files, state: formats.torch_file(), more: b"{}"})
    assert verify(folder).answer == "complete"
    (folder / state).unlink()
    assert verify(folder).answer == "unverifiable"


def test_a_gap_between_deepspeed_ranks_is_noticed_even_if_their_number_is_not_known(tmp_path: Path) -> None:
    files = formats.deepspeed(4, 1)
    files["mp_rank_00_model_states.pt"] = formats.torch_file({})
    folder = write(tmp_path / "global_step10", files)
    assert verify(folder).answer == "unverifiable"
    (folder / "zero_pp_rank_2_mp_rank_00_optim_states.pt").unlink()
    assert verify(folder).answer == "incomplete"


def test_what_orbax_committed_is_unverifiable_as_its_files_are_not_listed(tmp_path: Path) -> None:
    files = {"_CHECKPOINT_METADATA": b"{}", "items/manifest.ocdbt": b"\x0c\xdb", "items/d/0a": b"x"}
    verdict = verify(write(tmp_path / "10", files))
    assert (verdict.answer, verdict.layouts) == ("unverifiable", ("orbax",))
    assert "committed" in verdict.evidence[0]
