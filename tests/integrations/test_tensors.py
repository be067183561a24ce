"""Values of real PyTorch tensors, and the calls that the library makes on them."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import trainwarden
from tests.integrations.programs import Programs
from tests.unit.library.looking import read_progress

Begin = Callable[[int], None]


@pytest.mark.parametrize(
    "loss",
    [
        torch.tensor(0.5),
        torch.tensor([0.5]),
        torch.tensor(0.5, requires_grad=True),
        torch.tensor(0.5, requires_grad=True) * 1,
        torch.tensor(0.5, dtype=torch.bfloat16),
        torch.tensor(0.5, dtype=torch.float16),
        torch.tensor(0.5, dtype=torch.float64),
        torch.nn.Parameter(torch.tensor(0.5)),
        np.float16(0.5),
        np.float64(0.5),
        np.array(0.5),
    ],
    ids=repr,
)
def test_a_loss_of_any_library_is_a_number(attempt: Begin, folder: Path, loss: Any) -> None:
    with trainwarden.run() as run:
        run.step(torch.tensor(3), loss=loss, grad_norm=loss, accuracy=loss)
    done = read_progress(folder)
    assert (done.step, done.loss, done.grad_norm, done.metrics["accuracy"]) == (3, 0.5, 0.5, 0.5)


def test_a_loss_that_requires_a_gradient_is_recorded_without_a_warning(programs: Programs) -> None:
    """Each loss in a process of its own: PyTorch warns once."""
    script = programs.script("""
        import sys, torch, numpy, trainwarden
        weight = torch.nn.Parameter(torch.ones(2))
        losses = {"scalar": (weight ** 2).mean(), "vector": (weight[:1] ** 2), "numpy": numpy.array([1.0])}
        with trainwarden.run() as run:
            run.step(1, loss=losses[sys.argv[1]], grad_norm=losses[sys.argv[1]], accuracy=losses[sys.argv[1]])
    """)
    for generation, loss in enumerate(("scalar", "vector", "numpy")):
        done = programs.run("-W", "error", script, loss, TRAINWARDEN_ATTEMPT_KEY=f"local:5:{generation}")
        assert (done.returncode, done.stdout) == (0, "")
        said = read_progress(programs.folder)
        assert (said.attempt, said.loss, said.grad_norm, said.metrics) == (generation, 1.0, 1.0, {"accuracy": 1.0})


def test_what_is_no_one_number_is_passed_over(attempt: Begin, folder: Path) -> None:
    with trainwarden.run() as run:
        run.step(1, loss=torch.zeros(3))
        run.step(2, loss=torch.tensor(float("nan")))
        run.step(3, loss=torch.empty((), device="meta"))
    assert (read_progress(folder).step, read_progress(folder).loss, read_progress(folder).nonfinite) == (3, None, 1)


def test_a_tensor_that_changes_afterwards_changes_nothing_in_the_record(attempt: Begin, folder: Path) -> None:
    total = torch.tensor(1.0)
    with trainwarden.run() as run:
        run.step(1, loss=total)
        total += 41
    assert read_progress(folder).loss == 1.0


def test_where_no_gpu_was_used_nothing_is_reported_of_its_memory_and_none_is_touched(programs: Programs) -> None:
    script = programs.script("""
        import torch, trainwarden
        def fail(*_): raise AssertionError("CUDA is touched")
        torch.cuda.memory_allocated = torch.cuda.memory_reserved = torch.cuda._lazy_init = fail
        with trainwarden.run() as run:
            run.step(1, loss=torch.tensor(1.0))
        assert not torch.cuda.is_initialized()
    """)
    done = programs.run(script)
    assert done.returncode == 0, done.stdout
    stats = json.loads((programs.folder / "summary.json").read_text())["gpu_stats"]
    assert stats["samples"] == 0 and stats["max_allocated_mb"] is None
    assert "gpu_stats" not in (programs.folder / "events.jsonl").read_text()


def test_importing_the_library_loads_no_framework(programs: Programs) -> None:
    script = programs.script("""
        import sys, trainwarden, trainwarden.integrations
        with trainwarden.run() as run:
            run.step(1)
        assert not {"torch", "transformers", "lightning"} & set(sys.modules)
        assert not [name for name in sys.modules if name.startswith("trainwarden.integrations.")]
    """)
    done = programs.run(script)
    assert done.returncode == 0, done.stdout
