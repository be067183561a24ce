"""A training whose ranks know of each other by the record alone: none sees a connection break."""

from __future__ import annotations

import time

import trainwarden

with trainwarden.run(total_steps=1_000_000) as run:
    for step in range(1, 1_000_000):
        run.step(step, loss=1.0 / step)
        time.sleep(0.05)
