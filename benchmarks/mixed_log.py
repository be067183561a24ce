"""A long log of a healthy training with rare failures in it, the same bytes for the same seed."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

# In a million records; the rest are lines that say that the training goes on.
_TRACEBACKS = 190
_SIGNALS = 145
_BLOCK_BYTES = 1 << 20

_HOSTS = tuple(f"gpu-{rack:02d}-{node:02d}" for rack in range(4) for node in range(16))
_OPERATIONS = ("AllReduce", "AllGather", "ReduceScatter", "Broadcast")
_BAR = "█"
_NCCL = tuple(
    "{host}:{pid}:{tid} [{gpu}] NCCL INFO " + text
    for text in (
        "Channel {channel:02d}/0 : {rank}[{gpu}] -> {peer}[{gpu}] via P2P/IPC/read",
        "Channel {channel:02d}/0 : {rank}[{gpu}] -> {peer}[{gpu}] [send] via NET/OFI/{gpu}/GDRDMA",
        "{operation}: opCount {count:x} sendbuff 0x7f{address:010x} recvbuff 0x7f{address:010x} count {size}",
        "Trees [{channel}] {peer}/-1/-1->{rank}->{count} [1] {peer}/-1/-1->{rank}->-1",
        "Setting affinity for GPU {gpu} to ff,ffffffff",
        "NET/OFI Selected Provider is efa (found 4 nics)",
        "comm 0x55{address:010x} rank {rank} nranks 64 cudaDev {gpu} busId 1{gpu}1c0 - Init COMPLETE",
    )
)
_LOGGING = (
    "{stamp} [INFO] megatron.training: [rank {rank}] consumed {size} samples, data loader has {count} shards left",
    "{stamp} - INFO - data.loader - worker {gpu} opened shard-{count:05d}.tar ({size} bytes) in 0.{channel:02d} s",
    "{stamp} INFO trainer.py:{count} step done, memory allocated 61.{channel:02d} GB, reserved 72.4 GB",
    "{stamp} [DEBUG] comm: bucket {channel} of rank {rank} reduced in {count} us over ring {gpu}",
    "I1121 {clock}.{tid} {pid} checkpointing.py:{channel}] async writer has {gpu} files in flight",
    "{stamp} [INFO] eval: prompt {size}: score 0.{channel:02d}, {count} tokens generated",
)
_TIMERS = (
    "    forward-backward ...............................: ({count}.{channel:02d}, {count}.{channel:02d})",
    "    optimizer ......................................: ({gpu}.{channel:02d}, {gpu}.{channel:02d})",
    "    all-grads-sync .................................: ({gpu}.{channel:02d}, {gpu}.{channel:02d})",
    "(min, max) time across ranks (ms):",
)
# What sounds like a failure and is none.
_CALM = (
    "{stamp} [WARNING] data.loader: sample {size} is longer than 4096 tokens and is cut",
    "{stamp} [WARNING] retrying download of shard-{count:05d}.tar: attempt 1 of 5",
    "/opt/venv/lib/torch/utils/checkpoint.py:87: FutureWarning: `torch.cpu.amp.autocast(args...)` is deprecated.",
    "{stamp} [INFO] timeout=1800 error_injection=False oom_observer=off nan_check=on",
    "{host}:{pid}:{tid} [{gpu}] NCCL INFO NCCL_IB_TIMEOUT set by environment to 22.",
    "WARNING:root:apex is not there, torch.optim.AdamW takes its place",
)
_TRACEBACK = (
    "Traceback (most recent call last):\n"
    '  File "/workspace/pretrain_gpt.py", line {count}, in <module>\n'
    "    main()\n"
    '  File "/workspace/megatron/training.py", line {size}, in train\n'
    "    loss = forward_step(batch)\n"
    "           ^^^^^^^^^^^^^^^^^^^\n"
    "{error}"
)
_ERRORS = (
    "RuntimeError: shape '[{gpu}, {count}]' is invalid for input of size {size}",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate {gpu}.00 GiB. GPU {gpu} has a total of 79 GiB",
    "KeyError: 'weight_{count}'",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
)


def write_mixed_log(path: Path, size_bytes: int, signal_lines: Sequence[str], *, seed: int = 20261121) -> None:
    """Write a log of at least `size_bytes` that ends with a whole record; a few of `signal_lines` are strewn in."""
    written = 0
    with path.open("wb") as file:
        for block in _blocks(random.Random(seed), signal_lines):  # noqa: S311  # the same log each time
            written += file.write(block)
            if written >= size_bytes:
                return


def _blocks(source: random.Random, signal_lines: Sequence[str]) -> Iterator[bytes]:
    step, parts, size = 0, [], 0
    while True:
        step += 1
        record = _record(source, step, signal_lines)
        parts.append(record)
        size += len(record)
        if size >= _BLOCK_BYTES:
            yield "".join(parts).encode()
            parts, size = [], 0


def _record(source: random.Random, step: int, signal_lines: Sequence[str]) -> str:
    draw = source.random()
    at, make = next((share, make) for share, make in _SHARES if draw < share)
    del at
    return make(source, step, signal_lines)


def _values(source: random.Random, step: int) -> dict[str, object]:
    bits = source.getrandbits(64)
    clock = f"{step // 3600 % 24:02d}:{step // 60 % 60:02d}:{step % 60:02d}"
    return {
        "host": _HOSTS[bits & 63], "gpu": bits >> 6 & 7, "rank": bits >> 6 & 63, "peer": bits >> 12 & 63,
        "channel": bits >> 18 & 31, "count": 100 + (bits >> 23 & 511), "pid": 40000 + (bits >> 32 & 4095),
        "tid": 50000 + (bits >> 40 & 4095), "size": 10000 + (bits >> 28 & 0xFFFFF), "address": bits >> 24,
        "operation": _OPERATIONS[bits >> 50 & 3], "clock": clock, "stamp": f"2026-11-21 {clock},{bits >> 54:03d}"[:23],
    }  # fmt: skip


def _of(templates: Sequence[str]) -> Callable[[random.Random, int, Sequence[str]], str]:
    def make(source: random.Random, step: int, _: Sequence[str]) -> str:
        return source.choice(templates).format_map(_values(source, step)) + "\n"

    return make


def _megatron(source: random.Random, step: int, _: Sequence[str]) -> str:
    loss = 2.0 + source.random()
    return (
        f" [2026-11-21 08:{step // 60 % 60:02d}:{step % 60:02d}] iteration {step:8d}/  99999999 "
        f"| consumed samples: {step * 512:12d} | elapsed time per iteration (ms): {400 + 100 * loss:.1f} "
        f"| throughput per GPU (TFLOP/s/GPU): 412.3 "
        f"| learning rate: 1.499E-04 | global batch size:   512 | lm loss: {loss:.6E} | loss scale: 1.0 "
        f"| grad norm: {loss / 3:.3f} | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
    )


def _bar(source: random.Random, step: int, _: Sequence[str]) -> str:
    done = step % 1000
    return (
        f"\rTraining:  {done // 10:2d}%|{_BAR * (done // 50):20s}| {done}/1000 "
        f"[{done // 60:02d}:{done % 60:02d}<08:20,  "
        f"{1 + source.random():.2f}it/s, loss={2 + source.random():.3f}]"
    )


def _signal(source: random.Random, _: int, signal_lines: Sequence[str]) -> str:
    return source.choice(signal_lines) + "\n"


def _traceback(source: random.Random, step: int, _: Sequence[str]) -> str:
    values = _values(source, step)
    return _TRACEBACK.format_map({**values, "error": source.choice(_ERRORS).format_map(values)}) + "\n"


_SHARES = (
    (0.400, _of(_NCCL)),
    (0.670, _of(_LOGGING)),
    (0.820, _bar),
    (0.900, _megatron),
    (0.980, _of(_TIMERS)),
    (1 - (_TRACEBACKS + _SIGNALS) / 1e6, _of(_CALM)),
    (1 - _SIGNALS / 1e6, _traceback),
    (1.0, _signal),
)
