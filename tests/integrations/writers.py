"""Checkpoints, each by the library that writes it."""

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.distributed.checkpoint as dcp
from lightning.pytorch.callbacks import ModelCheckpoint
from safetensors.torch import save_file
from torch.distributed.tensor import Shard
from transformers import GPT2Config, GPT2LMHeadModel, Trainer, TrainingArguments

Writer = Callable[[Path], Path]
_BY_ROWS = (Shard(0),)


def gpt2(**options: Any) -> GPT2LMHeadModel:
    """A language model of a few thousand parameters."""
    sizes = {"vocab_size": 64, "n_positions": 8, "n_embd": 16, "n_layer": 2, "n_head": 2}
    return GPT2LMHeadModel(GPT2Config(**{**sizes, "bos_token_id": 0, "eos_token_id": 0, **options}))


def state() -> dict[str, Any]:
    """A model and its optimizer after a step."""
    model = torch.nn.Linear(16, 16)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(4, 16)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "step": 7}


def torch_file(folder: Path) -> Path:
    """torch.save."""
    torch.save(state(), folder / "step-7.pt")
    return folder / "step-7.pt"


def torch_legacy_file(folder: Path) -> Path:
    """torch.save, in the format before zip files: nothing in it says how long it should be."""
    torch.save(state(), folder / "old.pt", _use_new_zipfile_serialization=False)
    return folder / "old.pt"


def safetensors_file(folder: Path) -> Path:
    """safetensors."""
    save_file(state()["model"], folder / "model.safetensors")
    return folder / "model.safetensors"


def model_folder(folder: Path) -> Path:
    """save_pretrained, in one piece."""
    gpt2().save_pretrained(folder / "model")
    return folder / "model"


def sharded_model_folder(folder: Path) -> Path:
    """save_pretrained, in shards with an index."""
    gpt2().save_pretrained(folder / "sharded", max_shard_size="10KB")
    assert len(list((folder / "sharded").glob("*.safetensors"))) > 1
    return folder / "sharded"


def trainer_folder(folder: Path) -> Path:
    """The Trainer's checkpoint-N."""
    rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (4, 8))]
    arguments = TrainingArguments(
        output_dir=str(folder), max_steps=2, save_steps=2, use_cpu=True, report_to=[], disable_tqdm=True
    )
    Trainer(model=gpt2(), args=arguments, train_dataset=rows).train()
    return folder / "checkpoint-2"


def lightning_file(folder: Path) -> Path:
    """ModelCheckpoint."""
    saver = ModelCheckpoint(folder)
    data = torch.utils.data.DataLoader(torch.randn(4, 16))
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    lightning.Trainer(accelerator="cpu", max_steps=2, callbacks=[saver], **quiet).fit(_Line(), data)
    return Path(saver.best_model_path)


class _Line(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 16)

    def training_step(self, batch: Any, _: int) -> Any:
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.AdamW(self.parameters())


def distributed_folder(folder: Path) -> Path:
    """torch.distributed.checkpoint, by one process."""
    dcp.save({"model": state()["model"], "step": 7}, checkpoint_id=folder / "step_7")
    return folder / "step_7"


def distributed_folder_of_two(folder: Path) -> Path:
    """torch.distributed.checkpoint, by two ranks with sharded tensors."""
    address = folder / "store"
    torch.multiprocessing.spawn(_save_shard, (str(address), str(folder / "step_8")), nprocs=2)
    address.unlink(missing_ok=True)
    return folder / "step_8"


def _save_shard(rank: int, address: str, folder: str) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.distributed.init_process_group("gloo", init_method=f"file://{address}", rank=rank, world_size=2)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    weight = torch.distributed.tensor.distribute_tensor(torch.randn(16, 16), mesh, _BY_ROWS)
    dcp.save({"weight": weight, "step": 8}, checkpoint_id=folder)
    torch.distributed.destroy_process_group()


def save_over_and_interrupt(folder: Path) -> Path:
    """torch.distributed.checkpoint by two ranks, saved again in the same place; rank 1 is killed before it writes."""
    address = folder / "store"
    spawned = torch.multiprocessing.spawn(_save_twice, (str(address), str(folder / "latest")), nprocs=2, join=False)
    with contextlib.suppress(torch.multiprocessing.ProcessExitedException):
        while not spawned.join():
            pass
    address.unlink(missing_ok=True)
    return folder / "latest"


def _save_twice(rank: int, address: str, folder: str) -> None:
    os.environ["OMP_NUM_THREADS"] = "1"
    torch.distributed.init_process_group("gloo", init_method=f"file://{address}", rank=rank, world_size=2)
    mesh = torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    for step in (1, 2):
        weight = torch.distributed.tensor.distribute_tensor(torch.full((256, 256), float(step)), mesh, _BY_ROWS)
        dcp.save({"weight": weight}, storage_writer=_Interrupted(rank, step, folder))
        if rank == 0:
            an_hour_ago = time.time() - 3600
            for path in Path(folder).iterdir():
                os.utime(path, (an_hour_ago, an_hour_ago))
        torch.distributed.barrier()


class _Interrupted(dcp.FileSystemWriter):
    """Rank 1 is killed as soon as rank 0 has written its shard of step 2."""

    def __init__(self, rank: int, step: int, folder: str) -> None:
        super().__init__(folder)
        self._is_victim, self._step = rank == 1, step

    def write_data(self, plan: Any, planner: Any) -> Any:
        if self._step == 2 and self._is_victim:
            torch.distributed.barrier()
            os.kill(os.getpid(), signal.SIGKILL)
        written = super().write_data(plan, planner)
        if self._step == 2:
            torch.distributed.barrier()
        return written


WRITERS: tuple[Writer, ...] = (
    torch_file,
    torch_legacy_file,
    safetensors_file,
    model_folder,
    sharded_model_folder,
    trainer_folder,
    lightning_file,
    distributed_folder,
    distributed_folder_of_two,
)
