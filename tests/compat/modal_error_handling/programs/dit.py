"""Trains a diffusion transformer on a GPU, with the calls of modal_monitor, its steps and its loss.

python dit.py data/cats --steps 200000
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

logger = logging.getLogger("dit")


def category_of(error: Exception) -> ErrorCategory:
    """Return the category as such a script chooses it."""
    if "out of memory" in str(error).lower():
        return ErrorCategory.MEMORY
    return ErrorCategory.DATA_LOADING if isinstance(error, OSError) else ErrorCategory.TRAINING


def train_dit_on_gpu(data: Path, steps: int) -> None:
    """Train for so many steps."""
    monitor = ModalMonitor()
    log_modal_environment()
    check_gpu_health()
    monitor.start_training(script="dit", gpu_type="A10G")
    monitor.record_gpu_stats()
    status = "failed"
    try:
        images = len(list(data.iterdir()))
        for step in range(1, steps + 1):
            monitor.update_progress(step=step, metric=1 / (images + step))
        status = "completed"
    except (OSError, RuntimeError) as e:
        monitor.handle_error(e, severity=ErrorSeverity.CRITICAL, category=category_of(e), context={"data": str(data)})
        logger.info("Recovery suggestion: %s", monitor.get_recovery_suggestion(e))
        raise TrainingError(f"DiT training failed: {e}") from e
    finally:
        monitor.record_gpu_stats()
        monitor.complete_training(status=status)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--steps", type=int, default=200000)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO)
    train_dit_on_gpu(arguments.data, arguments.steps)
