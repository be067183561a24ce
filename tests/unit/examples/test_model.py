"""The example's model is one that learns."""

import numpy as np
import pytest

from examples.tiny_lm.model import CONTEXT, initial_parameters, loss_and_gradient, sample, split
from examples.tiny_lm.text import text


def test_the_text_is_the_same_every_time_and_large_enough_to_learn_from() -> None:
    assert text() == text()
    assert 20_000 < len(text()) < 60_000


def test_the_backward_pass_agrees_with_differences_of_the_loss() -> None:
    data = np.frombuffer(text(), np.uint8)
    batch = sample(data, 8, (1,))
    parameters = initial_parameters(0)
    _, gradient = loss_and_gradient(parameters, batch)
    for name in split(gradient):
        part = split(gradient)[name]
        at = np.unravel_index(np.abs(part).argmax(), part.shape)
        losses = []
        for change in (-1e-2, 1e-2):
            moved = parameters.copy()
            split(moved)[name][at] += change
            losses.append(loss_and_gradient(moved, batch)[0])
        assert (losses[1] - losses[0]) / 2e-2 == pytest.approx(part[at], rel=0.05), name


def test_a_batch_holds_each_context_and_the_byte_after_it() -> None:
    data = np.arange(200, dtype=np.uint8)
    batch = sample(data, 4, (3, 5))
    assert batch.contexts.shape == (4, CONTEXT)
    assert (batch.targets == batch.contexts[:, -1] + 1).all()
    assert (sample(data, 4, (3, 5)).contexts == batch.contexts).all()
