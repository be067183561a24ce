"""A training on Ray: three steps a start, and a checkpoint at the end; it is complete at a given step.

    train.py FOLDER TARGET HOW [--resume_from_checkpoint PATH | --resume]

Where it is not complete it fails, or hangs if HOW says so.
"""

import os
import sys
import time
from pathlib import Path

folder, target, how = sys.argv[1], int(sys.argv[2]), sys.argv[3]
resume = os.environ.get("TRAINWARDEN_RESUME_CHECKPOINT", "")
print("arguments", sys.argv[4:], "resume", resume, flush=True)
start = int(resume.rpartition("_")[2]) if resume else 0
for step in range(start + 1, start + 4):
    print(f"step: {step} loss: {1 / step:.3f}", flush=True)
checkpoint = Path(folder, f"step_{start + 3}")
checkpoint.mkdir(parents=True, exist_ok=True)
(checkpoint / "model.safetensors").write_bytes(b"\2" + bytes(7) + b"{}")
if start + 3 < target:
    if how == "hangs":
        time.sleep(300)
    sys.exit(1)
print("complete", flush=True)
