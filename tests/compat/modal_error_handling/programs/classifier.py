"""Trains a classifier on a GPU, with the calls of modal_monitor: as a user has it who changed the import alone.

python classifier.py data/cats --epochs 1 --batch-size 8
"""

from __future__ import annotations

import argparse
import logging
from pathlib import Path

from trainwarden.integrations.modal_monitor import (
    ErrorCategory,
    ErrorSeverity,
    ModalMonitor,
    TrainingError,
    check_gpu_health,
    log_modal_environment,
)

logger = logging.getLogger("classifier")


def train_on_gpu(data: Path, epochs: int, batch_size: int, output: Path, fails_with: str | None) -> float:
    """Return the accuracy of the last epoch."""
    monitor = ModalMonitor()
    log_modal_environment()
    monitor.start_training(script="classifier", gpu_type="T4")
    healthy, message = check_gpu_health()
    logger.info("GPU healthy: %s: %s", healthy, message)
    monitor.record_gpu_stats()
    accuracy = 0.0
    try:
        for epoch in range(epochs):
            accuracy = train_epoch(data, batch_size, epoch)
            monitor.update_progress(epoch=epoch, metric=accuracy)
            if fails_with:
                raise RuntimeError(fails_with)
    except RuntimeError as e:
        error_category = ErrorCategory.MEMORY if "out of memory" in str(e).lower() else ErrorCategory.TRAINING
        monitor.handle_error(e, severity=ErrorSeverity.ERROR, category=error_category)
        recovery = monitor.get_recovery_suggestion(e)
        logger.info("Recovery suggestion: %s", recovery)
        raise TrainingError(f"Training failed after {epoch + 1} epochs") from e
    monitor.record_gpu_stats()
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_bytes(b"weights")
    monitor.complete_training(status="completed", final_metric=accuracy, checkpoint_path=str(output))
    return accuracy


def train_epoch(data: Path, batch_size: int, epoch: int) -> float:
    """Return the accuracy after an epoch; a stand-in for the training of a network."""
    images = sorted(data.iterdir())
    batches = -(-len(images) // batch_size)
    return 1 - 1 / (1 + (epoch + 1) * batches * 10)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--output", type=Path, default=Path("cats_model.pt"))
    parser.add_argument("--fails-with", metavar="MESSAGE")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    accuracy = train_on_gpu(
        arguments.data, arguments.epochs, arguments.batch_size, arguments.output, arguments.fails_with
    )
    print(f"accuracy {accuracy:.4f}")
