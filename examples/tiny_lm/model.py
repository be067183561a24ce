"""A small language model over bytes: embeddings of a short context, two layers, and a backward pass written by hand."""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Bytes = npt.NDArray[np.uint8]

VOCABULARY = 256
CONTEXT = 24
_EMBEDDING = 24
_HIDDEN = 256

_SHAPES = {
    "embedding": (VOCABULARY, _EMBEDDING),
    "w1": (CONTEXT * _EMBEDDING, _HIDDEN),
    "b1": (_HIDDEN,),
    "w2": (_HIDDEN, VOCABULARY),
    "b2": (VOCABULARY,),
}
SIZE = sum(int(np.prod(shape)) for shape in _SHAPES.values())


@dataclass(frozen=True)
class Batch:
    """Contexts, (batch, CONTEXT) bytes, and the byte that follows each, (batch,)."""

    contexts: Bytes
    targets: Bytes


def sample(data: Bytes, size: int, seed: tuple[int, ...]) -> Batch:
    """A batch drawn from `data`; the same seed draws the same one."""
    starts = np.random.default_rng(seed).integers(0, len(data) - CONTEXT, size)
    windows = data[starts[:, None] + np.arange(CONTEXT + 1)]
    return Batch(windows[:, :CONTEXT], windows[:, CONTEXT])


def initial_parameters(seed: int) -> Floats:
    """All parameters in one vector of SIZE numbers; an untrained model finds every byte about equally likely."""
    rng = np.random.default_rng(seed)
    flat = np.zeros(SIZE, np.float32)
    parts = split(flat)
    parts["embedding"][:] = rng.normal(0, 1, _SHAPES["embedding"])
    parts["w1"][:] = rng.normal(0, (CONTEXT * _EMBEDDING) ** -0.5, _SHAPES["w1"])
    parts["w2"][:] = rng.normal(0, 0.02, _SHAPES["w2"])
    return flat


def split(flat: Floats) -> dict[str, Floats]:
    """Views of a vector of SIZE numbers as the model's arrays, by name."""
    return dict(_views(flat))


def loss_and_gradient(flat: Floats, batch: Batch) -> tuple[float, Floats]:
    """Mean cross entropy in nats per byte, and its gradient with respect to `flat`."""
    parts = split(flat)
    size = len(batch.targets)
    inputs = parts["embedding"][batch.contexts].reshape(size, -1)
    hidden = np.tanh(inputs @ parts["w1"] + parts["b1"])
    logits = hidden @ parts["w2"] + parts["b2"]
    logits -= logits.max(axis=1, keepdims=True)
    probabilities = np.exp(logits)
    sums = probabilities.sum(axis=1, keepdims=True)
    rows = np.arange(size)
    loss = float((np.log(sums[:, 0]) - logits[rows, batch.targets]).mean())

    gradient = np.zeros_like(flat)
    into = split(gradient)
    errors = probabilities / sums
    errors[rows, batch.targets] -= 1
    errors /= size
    into["w2"][:] = hidden.T @ errors
    into["b2"][:] = errors.sum(axis=0)
    back = (errors @ parts["w2"].T) * (1 - hidden * hidden)
    into["w1"][:] = inputs.T @ back
    into["b1"][:] = back.sum(axis=0)
    np.add.at(into["embedding"], batch.contexts, (back @ parts["w1"].T).reshape(size, CONTEXT, _EMBEDDING))
    return loss, gradient


class Adam:
    """The optimizer and all that it remembers; `parameters`, `first` and `second` hold SIZE numbers each."""

    def __init__(self, parameters: Floats) -> None:
        self.parameters = parameters
        self.first = np.zeros_like(parameters)
        self.second = np.zeros_like(parameters)

    def update(self, gradient: Floats, step: int, learning_rate: float) -> None:
        """Make step number `step`, counted from 1."""
        self.first += 0.1 * (gradient - self.first)
        self.second += 0.01 * (gradient * gradient - self.second)
        first = self.first / np.float32(1 - 0.9**step)
        second = self.second / np.float32(1 - 0.99**step)
        self.parameters -= np.float32(learning_rate) * first / (np.sqrt(second) + np.float32(1e-8))


def clip(gradient: Floats, limit: float = 1.0) -> float:
    """Scale `gradient` in place to a norm of at most `limit`; returns the norm that it had."""
    norm = float(np.sqrt(np.square(gradient, dtype=np.float64).sum()))
    if norm > limit:
        gradient *= np.float32(limit / norm)
    return norm


def _views(flat: Floats) -> Iterator[tuple[str, Floats]]:
    at = 0
    for name, shape in _SHAPES.items():
        size = int(np.prod(shape))
        yield name, flat[at : at + size].reshape(shape)
        at += size
