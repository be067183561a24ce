"""What a training prints and gets over does not hide what broke it afterwards."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest
import yaml

from tests.cases import cases
from tests.unit.signals.verdicts import in_log, in_output
from trainwarden.failures.records import cause_in
from trainwarden.taxonomy import FAILURES

pytestmark = pytest.mark.slow

LINES = Path(__file__).parent / "lines"
# `make test` tries every seventh log.
EVERY = [7, pytest.param(1, marks=pytest.mark.nightly)]
CORPUS = Path(__file__).resolve().parents[4] / "shared/corpus"

HARMLESS = {
    "a package installer's note of a conflict": (
        "ERROR: pip's dependency resolver does not currently take into account all the packages that are installed. "
        "This behaviour is the source of the following dependency conflicts.\n"
        "torchvision 0.15.2 requires torch==2.0.1, but you have torch 2.1.0 which is incompatible."
    ),
    "an allocator's retry": (
        "2024-01-01 10:00:00.1: W tensorflow/tsl/framework/bfc_allocator.cc:290] Allocator (GPU_0_bfc) ran out of "
        "memory trying to allocate 2.30GiB with freed_by_count=0. The caller indicates that this is not a failure, but "
        "this may mean that there could be performance gains if more memory were available."
    ),
    "a retry of CUDA's allocator": (
        "CUDAPluggableAllocator: cudaMalloc failed: out of memory, freeing the cache and trying again (this is not an "
        "error)"
    ),
    "an optional file": "open('/etc/nccl.conf'): No such file or directory (optional, continuing)",
    "a file of the shell": "cat: /opt/site/modules.txt: No such file or directory",
    "a cache that is missing": (
        "FileNotFoundError: [Errno 2] No such file or directory: '/home/a/.cache/x.json' - using defaults"
    ),
    "a file server that came back": "kernel: nfs: server nas1 not responding, timed out\nkernel: nfs: server nas1 OK",
    "a file system that recovered": (
        "LustreError: 11-0: scratch-OST0007: operation ost_write to node 10.0.0.1@o2ib failed: rc = -107\n"
        "Lustre: scratch-OST0007: Connection restored to 10.0.0.1@o2ib (at 10.0.0.1@o2ib)"
    ),
    "a batch-size finder": (
        "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 79.15 GiB total capacity)\n"
        "Batch size 64 failed, trying batch size 32"
    ),
    "a smaller batch": (
        "Batch size 64: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
        "Decreasing batch size to: 32."
    ),
    "a library that is not used": (
        "Could not load dynamic library 'libcudart.so.11.0'; dlerror: libcudart.so.11.0: cannot open shared object "
        "file: No such file or directory"
    ),
    "an extension that is not built": "No module named 'apex': fused kernels are disabled",
    "a checkpoint that does not exist yet": (
        "Error loading checkpoint: /out/latest.pt not found. Training from random initialisation."
    ),
    "a tracker without a login": (
        "wandb: ERROR Error while calling W&B API: user is not logged in; running offline"
    ),
    "a hub that answers later": (
        "'(ReadTimeoutError(\"HTTPSConnectionPool(host='huggingface.co', port=443): Read timed out.\"), '(ID)')' "
        "thrown while requesting HEAD https://huggingface.co/x\nRetrying in 1s [Retry 1/5]."
    ),
    "a port in use": "OSError: [Errno 98] Address already in use\nPort 6006 is in use, trying 6007",
    "a folder of another user": (
        "mkdir: cannot create directory '/scratch/cache': Permission denied\nUsing /tmp/cache instead"
    ),
}  # fmt: skip
# Verdicts without a cause of their own: how a launcher or an interpreter reports that something failed.
CAUSELESS = ("launcher_child", "nonzero_exit", "slurm_failure", "user_exception", None)


@cache
def failed_logs() -> list[tuple[str, str | None, str | None]]:
    """Return logs with a cause, and what both judges say of each."""
    logs = [
        log.replace("\\n", "\n")
        for path in sorted(LINES.glob("*.yaml"))
        for logs in yaml.safe_load(path.read_text(encoding="utf-8")).values()
        for log in logs
    ]
    return [(log, slug, in_output(log)) for log in logs if (slug := in_log(log)) not in CAUSELESS]


def kind(slug: str | None) -> str | None:
    return FAILURES[slug].error_type if slug else None


@pytest.mark.parametrize("every", EVERY)
@cases("name", HARMLESS)
def test_what_was_survived_hides_no_failure(name: str, every: int) -> None:
    logs = failed_logs()[::every]
    assert len(logs) > 150 // every
    noise = HARMLESS[name]
    assert [log[:100] for log, slug, _ in logs if in_log(f"{noise}\n{log}") != slug] == []
    assert [log[:100] for log, _, slug in logs if in_output(f"{noise}\n{log}") != slug] == []


@cache
def failed_logs_of_others() -> list[tuple[str, str | None]]:
    """Return logs of the corpus with a cause, and what `scan` says of each."""
    items = (json.loads(line) for line in (CORPUS / "logs_dev.jsonl").read_text(encoding="utf-8").splitlines())
    return [(item["log"], slug) for item in items if (slug := in_log(item["log"])) not in CAUSELESS]


@pytest.mark.skipif(not CORPUS.is_dir(), reason="the corpus is not here")
@pytest.mark.parametrize("every", EVERY)
@cases("name", HARMLESS)
def test_what_was_survived_hides_no_failure_of_others(name: str, every: int) -> None:
    logs = failed_logs_of_others()[::every]
    turned = [log[:100] for log, slug in logs if kind(in_log(f"{HARMLESS[name]}\n{log}")) != kind(slug)]
    assert turned == []


@cases(("rises", "failure"), [(0, "cuda_oom"), (2, "cuda_oom"), (3, None), (30, None)])
def test_three_steps_prove_that_a_training_goes_on(rises: int, failure: str | None) -> None:
    from trainwarden.signals.progress.rises import last_rises

    steps = "".join(f"step {step}/100, loss 2.5\n" for step in range(11, 11 + rises))
    # The same step, printed by each rank, is one step.
    again = "step 10/100, loss 2.5\n" * 8
    log = f"step 10/100, loss 2.5\nRuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n{again}{steps}"
    moves = last_rises(log.encode(), 3)
    cause = cause_in(log, moves)
    assert (cause.failure if cause else None) == failure
