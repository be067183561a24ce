"""Trains a small language model on a small text with several data-parallel ranks, and reports to Trainwarden.

    python examples/tiny_lm/train.py --steps 300 --ranks 2

Started by srun or torchrun it is one rank and finds the others; otherwise it starts its ranks itself.
"""

import argparse
import math
import os
import sys
import time
from datetime import datetime, timezone
from pathlib import Path

# As torchrun does: threads of every rank's linear algebra would only wait for each other, and burn the cores meanwhile.
os.environ.setdefault("OMP_NUM_THREADS", "1")

if not __package__:
    # Run as a script from anywhere.
    sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np

import trainwarden
from examples.tiny_lm.exchange import Address, Alone, Exchange, Hub, Spoke
from examples.tiny_lm.model import SIZE, Adam, clip, initial_parameters, loss_and_gradient, sample
from examples.tiny_lm.ranks import Ranks
from examples.tiny_lm.text import text

_SEED = 17
_BATCH = 512
_LEARNING_RATE = 3e-3
_WARMUP_STEPS = 20
_KEPT_CHECKPOINTS = 3


def main() -> int:
    """Start the ranks, or be one."""
    options = _options()
    rank, world = _place(options)
    if rank is None:
        return Ranks([str(Path(__file__).resolve()), *sys.argv[1:]], world).wait()
    with trainwarden.run(
        total_steps=options.steps, model=f"bytes, {SIZE} parameters", framework="numpy", method="data parallel"
    ) as run:
        _train(run, options, rank, world)
    return 0


def _train(run: trainwarden.Run, options: argparse.Namespace, rank: int, world: int) -> None:
    data = np.frombuffer(text(), np.uint8)
    folder = options.checkpoint_dir or run.folder / "checkpoints"
    with run.phase("load"):
        optimizer, done = _resume(run.resume_checkpoint())
    peers = _connect(options, rank, world, done)
    for step in range(done + 1, options.steps + 1):
        began = time.monotonic()
        batch = sample(data, options.batch, (_SEED, step, rank))
        loss, gradient = loss_and_gradient(optimizer.parameters, batch)
        # The loss travels with the gradient, so that every rank reports the same one.
        mean = peers.average(np.append(np.float32(loss), gradient), step)
        loss, gradient = float(mean[0]), mean[1:]
        norm = clip(gradient)
        learning_rate = _LEARNING_RATE * min(1.0, step / _WARMUP_STEPS)
        samples = options.batch * world
        run.step(step, loss=loss, learning_rate=learning_rate, grad_norm=norm, tokens=samples, samples=samples)
        _check(step, loss=loss, gradient_norm=norm)
        optimizer.update(gradient, step, learning_rate)
        if rank == 0 and (step % options.checkpoint_every == 0 or step == options.steps):
            with run.phase("checkpoint"):
                run.checkpoint_saved(_save(folder, optimizer, step), step)
        time.sleep(max(0.0, options.step_seconds - (time.monotonic() - began)))
        if rank == 0 and step % options.log_every == 0:
            _log(f"{step:8d}/{options.steps:8d}", step * samples, learning_rate, loss, norm, time.monotonic() - began)
    peers.close()


def _check(step: int, **values: float) -> None:
    for name, value in values.items():
        if not math.isfinite(value):
            shown = "NaN" if math.isnan(value) else "infinite"
            raise FloatingPointError(f"{name.replace('_', ' ')} is {shown} at step {step} (batches of seed {_SEED})")


def _resume(path: str | None) -> tuple[Adam, int]:
    """The optimizer with its parameters, and the number of steps that it has made."""
    optimizer = Adam(initial_parameters(_SEED))
    if path is None:
        return optimizer, 0
    with np.load(path) as saved:
        optimizer.parameters[:] = saved["parameters"]
        optimizer.first[:] = saved["first"]
        optimizer.second[:] = saved["second"]
        # Each batch is drawn from the seed and the step: the two are the place in the data.
        if int(saved["seed"]) != _SEED:
            raise ValueError(f"checkpoint {path} was trained with seed {int(saved['seed'])}, not {_SEED}")
        step = int(saved["step"])
    print(f"resuming from {path} after step {step}", flush=True)
    return optimizer, step


def _save(folder: Path, optimizer: Adam, step: int) -> Path:
    """Write a checkpoint at once, or not at all, and remove what is older than the last few."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"step-{step:06d}.npz"
    unfinished = folder / f".step-{step:06d}.tmp"
    with unfinished.open("wb") as file:
        np.savez(
            file,
            parameters=optimizer.parameters,
            first=optimizer.first,
            second=optimizer.second,
            step=np.int64(step),
            seed=np.int64(_SEED),
        )
        file.flush()
        os.fsync(file.fileno())
    unfinished.replace(path)
    for old in sorted(folder.glob("step-*.npz"))[:-_KEPT_CHECKPOINTS]:
        old.unlink()
    return path


def _connect(options: argparse.Namespace, rank: int, world: int, step: int) -> Exchange:
    if world == 1:
        return Alone()
    if rank == 0:
        return Hub(("127.0.0.1", options.listen) if options.listen else _address(options), world, step)
    return Spoke(options.connect or _address(options), rank, step)


def _address(options: argparse.Namespace) -> Address:
    if options.address:
        address: Address = options.address
        return address
    if options.listen:
        return "127.0.0.1", options.listen
    host, port = os.environ.get("MASTER_ADDR"), os.environ.get("MASTER_PORT")
    if not host or not port:
        raise SystemExit("where rank 0 listens is not known: give --address or set MASTER_ADDR and MASTER_PORT")
    return _host_and_port(f"{host}:{port}")


def _place(options: argparse.Namespace) -> tuple[int | None, int]:
    """This process's rank, None if it is to start the ranks; and how many there are."""
    environ = os.environ
    if "RANK" in environ:
        return int(environ["RANK"]), int(environ.get("WORLD_SIZE", "1"))
    if options.ranks is None and int(environ.get("SLURM_NTASKS", "1")) > 1 and "SLURM_PROCID" in environ:
        return int(environ["SLURM_PROCID"]), int(environ["SLURM_NTASKS"])
    return None, options.ranks or 2


def _log(iteration: str, consumed: int, learning_rate: float, loss: float, norm: float, seconds: float) -> None:
    now = datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S")
    print(
        f" [{now}] iteration {iteration} | consumed samples: {consumed:12d} |"
        f" elapsed time per iteration (ms): {1000 * seconds:.1f} | learning rate: {learning_rate:.6E} |"
        f" lm loss: {loss:.6E} | grad norm: {norm:.3f} |",
        flush=True,
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Train a small language model on a small text.")
    parser.add_argument("--steps", type=_positive, default=300, help="steps of the whole run, across restarts")
    parser.add_argument("--ranks", type=_positive, help="ranks to start here (2, unless srun or torchrun started this)")
    parser.add_argument("--batch", type=_positive, default=_BATCH, help="samples of each rank per step")
    parser.add_argument("--step-seconds", type=float, default=0.0, help="the least time that a step takes")
    parser.add_argument("--checkpoint-every", type=_positive, default=20, metavar="STEPS")
    parser.add_argument("--checkpoint-dir", type=Path, help="where checkpoints go (checkpoints/ in the run's record)")
    parser.add_argument("--log-every", type=_positive, default=10, metavar="STEPS")
    parser.add_argument("--address", type=_host_and_port, metavar="HOST:PORT", help="where rank 0 listens")
    parser.add_argument("--listen", type=_positive, metavar="PORT", help="rank 0 listens here, on loopback")
    parser.add_argument("--connect", type=_host_and_port, metavar="HOST:PORT", help="where the others reach rank 0")
    return parser.parse_args()


def _positive(value: str) -> int:
    number = int(value)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{value!r} is not a whole number above 0")
    return number


def _host_and_port(value: str) -> Address:
    host, _, port = value.rpartition(":")
    if not host or not port.isdigit() or not 0 < int(port) < 65536:
        raise argparse.ArgumentTypeError(f"{value!r} is not HOST:PORT")
    return host, int(port)


if __name__ == "__main__":
    sys.exit(main())
