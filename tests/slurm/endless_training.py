"""A training whose ranks know of each other by the record alone: none sees a connection break.

Where $CHECKPOINTS names a folder, it saves a checkpoint there each second, under the number of its start.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import trainwarden

folder = os.environ.get("CHECKPOINTS")
with trainwarden.run(total_steps=1_000_000) as run:
    for step in range(1, 1_000_000):
        run.step(step, loss=1.0 / step)
        if folder and step % 20 == 0:
            path = Path(folder, f"{os.environ.get('SLURM_RESTART_COUNT', '0')}-step_{step}.safetensors")
            path.write_bytes((2).to_bytes(8, "little") + b"{}")
            run.checkpoint_saved(path, step=step)
        time.sleep(0.05)
