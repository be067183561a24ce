"""Trains in Modal, starts again after failures, and keeps its record in S3: docs/modal.md.

    modal run --detach examples/modal/train.py --run-id my-run --steps 2000
    trainwarden status my-run --s3 s3://my-bucket/training-runs

Every retry resumes from the last checkpoint that the record names. The steps are a stand-in for a model's.
"""

import json
from pathlib import Path

import modal

import trainwarden

RECORDS = "s3://my-bucket/training-runs"
CHECKPOINTS = Path("/checkpoints")

app = modal.App("training")
image = modal.Image.debian_slim().pip_install("boto3").add_local_python_source("trainwarden")
volume = modal.Volume.from_name("checkpoints", create_if_missing=True)


@app.function(
    image=image,
    gpu="T4",
    timeout=24 * 3600,  # seconds, of each attempt
    retries=modal.Retries(max_retries=5, initial_delay=10.0),
    single_use_containers=True,  # a retry is a new attempt, with a GPU that nothing else holds
    volumes={str(CHECKPOINTS): volume},
    secrets=[modal.Secret.from_name("aws")],  # AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_DEFAULT_REGION
)
def train(run_id: str, steps: int) -> None:
    """Be one attempt of the run; Modal gives each retry the same arguments."""
    with trainwarden.run(run_id, s3=RECORDS, total_steps=steps) as run:
        with run.phase("load"):
            step, weight = load(run.resume_checkpoint())
        while step < steps:
            step += 1
            weight -= 0.01 * (weight - 1.0)
            run.step(step, loss=(weight - 1.0) ** 2)
            if step % 100 == 0 or step == steps:
                with run.phase("checkpoint"):
                    save(run, step, weight)


def load(checkpoint: str | None) -> tuple[int, float]:
    """Return the step and the weight of a checkpoint; those of a beginning if there is none."""
    if checkpoint is None:
        return 0, 0.0
    saved = json.loads(Path(checkpoint).read_text(encoding="utf-8"))
    return saved["step"], saved["weight"]


def save(run: trainwarden.Run, step: int, weight: float) -> None:
    """Write a checkpoint, and record it once other containers can see it."""
    path = CHECKPOINTS / run.run_id / f"step-{step:06d}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.tmp")
    unfinished.write_text(json.dumps({"step": step, "weight": weight}), encoding="utf-8")
    unfinished.replace(path)
    volume.commit()
    run.checkpoint_saved(path, step)


@app.local_entrypoint()
def main(run_id: str, steps: int = 2000) -> None:
    """Start the training from this machine."""
    train.remote(run_id, steps)
