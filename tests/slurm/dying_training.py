"""A training that loses its peer at the same step, however often it is started."""

from __future__ import annotations

import time

import trainwarden

with trainwarden.run(total_steps=1000) as run:
    for step in range(1, 6):
        run.step(step, loss=1.0 / step)
        time.sleep(0.05)
    raise ConnectionResetError(104, "Connection reset by peer")
