"""Trains a small network with plain PyTorch, alone or as several ranks, and reports to Trainwarden.

    python examples/pytorch/train.py --steps 200
    python -m torch.distributed.run --standalone --nproc-per-node 2 examples/pytorch/train.py --steps 200

Started again with the same TRAINWARDEN_RUN_ID it resumes from its last complete checkpoint.
"""

import argparse
import os
from pathlib import Path

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

import trainwarden

_BATCH = 16
_SEED = 17


def main() -> None:
    """Be one rank of the training, or all of it."""
    options = _options()
    world = int(os.environ.get("WORLD_SIZE", "1"))
    torch.manual_seed(_SEED)
    with trainwarden.run(total_steps=options.steps, model="perceptron", framework="pytorch", method="ddp") as run:
        if world > 1:
            distributed.init_process_group("gloo")
        train(run, options, world)
        if world > 1:
            distributed.destroy_process_group()


def train(run: trainwarden.Run, options: argparse.Namespace, world: int) -> None:
    """The loop, from where the run's last checkpoint left it."""
    network = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))
    optimizer = torch.optim.AdamW(network.parameters(), lr=1e-3)
    with run.phase("load"):
        step = load(run.resume_checkpoint(), network, optimizer)
    model = DistributedDataParallel(network) if world > 1 else network
    data = _data()
    sampler = DistributedSampler(data) if world > 1 else None
    loader = DataLoader(data, _BATCH, shuffle=sampler is None, sampler=sampler, num_workers=options.workers)
    folder = options.checkpoint_dir or run.folder / "checkpoints"
    while step < options.steps:
        if sampler:
            sampler.set_epoch(step // len(loader))
        for inputs, targets in loader:
            if step >= options.steps:
                break
            step += 1
            loss = train_one_step(step, model, optimizer, inputs, targets)
            # The values of this rank; the counts are over all ranks.
            run.step(step, loss=loss, learning_rate=1e-3, samples=len(inputs) * world)
            if step % options.checkpoint_every == 0 or step == options.steps:
                with run.phase("checkpoint"):
                    save(run, folder / f"step-{step:06d}.pt", step, network, optimizer)


def train_one_step(
    step: int, model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor, targets: torch.Tensor
) -> torch.Tensor:
    """One step of the optimizer; returns the loss."""
    optimizer.zero_grad()
    loss = nn.functional.mse_loss(model(inputs), targets)
    loss.backward()
    if not torch.isfinite(loss):
        raise FloatingPointError(f"loss is {loss.item()} at step {step}")
    optimizer.step()
    return loss.detach()


def load(path: str | None, network: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    """Fill both from a checkpoint, if there is one; returns the step that it holds."""
    if path is None:
        return 0
    saved = torch.load(path, weights_only=True)
    network.load_state_dict(saved["network"])
    optimizer.load_state_dict(saved["optimizer"])
    print(f"resuming from {path} after step {saved['step']}", flush=True)
    return int(saved["step"])


def save(run: trainwarden.Run, path: Path, step: int, network: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    """Write a checkpoint at once, or not at all; only rank 0 has anything to write here."""
    if run.rank != 0:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.tmp")
    torch.save({"network": network.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, unfinished)
    unfinished.replace(path)
    run.checkpoint_saved(path, step)


def _data() -> TensorDataset:
    inputs = torch.randn(512, 8)
    return TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--checkpoint-every", type=int, default=50)
    parser.add_argument("--checkpoint-dir", type=Path, help="else below the run's folder")
    parser.add_argument("--workers", type=int, default=0, help="processes that load data, for each rank")
    return parser.parse_args()


if __name__ == "__main__":
    main()
