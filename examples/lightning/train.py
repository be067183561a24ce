"""Trains a small network with Lightning, on one or several devices, and reports to Trainwarden.

    python examples/lightning/train.py --steps 200 --devices 2 --output-dir /tmp/sines

Started again with the same TRAINWARDEN_RUN_ID it resumes from its last complete checkpoint.
"""

import argparse
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainwarden.integrations.lightning import TrainwardenCallback


class Sines(lightning.LightningModule):
    """Learns a sum of sines."""

    def __init__(self) -> None:
        super().__init__()
        self.network = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

    def training_step(self, batch: Any, _: int) -> Any:
        """The loss of a batch."""
        inputs, targets = batch
        return nn.functional.mse_loss(self.network(inputs), targets)

    def validation_step(self, batch: Any, index: int) -> None:
        """Log the loss of a batch."""
        self.log("validation_loss", self.training_step(batch, index), sync_dist=True)

    def configure_optimizers(self) -> Any:
        """One optimizer."""
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    """Train; the callback begins the run and ends it."""
    options = _options()
    callback = TrainwardenCallback(model="perceptron", method="ddp")
    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=options.devices,
        strategy="ddp" if options.devices > 1 else "auto",
        max_steps=options.steps,
        log_every_n_steps=5,
        logger=False,
        enable_progress_bar=False,
        default_root_dir=options.output_dir,
        callbacks=[
            callback,
            ModelCheckpoint(options.output_dir / "checkpoints", every_n_train_steps=options.save_steps, save_top_k=-1),
        ],
    )
    trainer.fit(Sines(), _loader(512), _loader(16), ckpt_path=callback.resume_checkpoint())


def _loader(rows: int) -> Any:
    inputs = torch.randn(rows, 8)
    return DataLoader(TensorDataset(inputs, inputs.sin().sum(dim=1, keepdim=True)), batch_size=8)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--save-steps", type=int, default=50)
    parser.add_argument("--devices", type=int, default=1)
    parser.add_argument("--output-dir", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    main()
