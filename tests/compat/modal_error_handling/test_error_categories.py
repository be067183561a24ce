"""Each category of errors: its name, and the errors that are in it where the training names none."""

from __future__ import annotations

import pytest

from tests.compat.modal_error_handling.records import TITLE
from trainwarden.integrations.modal_monitor import ErrorCategory, ModalMonitor

pytestmark = pytest.mark.seed(TITLE, "Error Categories")

CATEGORIES = {
    "DATA_LOADING": "data_loading",
    "MODEL_CREATION": "model_creation",
    "TRAINING": "training",
    "MEMORY": "memory",
    "CHECKPOINT": "checkpoint",
    "NETWORK": "network",
    "CONFIGURATION": "configuration",
    "UNKNOWN": "unknown",
}
# The examples of the table, and for each of its words an error as PyTorch, Python or a script words it.
KNOWN: list[tuple[str, BaseException]] = [
    ("data_loading", FileNotFoundError("Missing dataset files: data/cats")),
    ("data_loading", ValueError("the dataset is empty")),
    ("data_loading", RuntimeError("DataLoader worker (pid(s) 4711) exited unexpectedly")),
    ("model_creation", OSError("Can't load the model for 'cats'.")),
    ("model_creation", RuntimeError("failed to create model: unknown layer")),
    ("training", RuntimeError("Loss becomes NaN")),
    ("training", RuntimeError("mat1 and mat2 shapes cannot be multiplied (8x10 and 20x5)")),
    ("training", RuntimeError("something")),
    ("memory", RuntimeError("GPU out of memory")),
    ("memory", RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB")),
    ("memory", RuntimeError("OOM")),
    ("memory", MemoryError()),
    ("checkpoint", RuntimeError("failed to save checkpoint")),
    ("checkpoint", RuntimeError("could not load checkpoint cats_model.pt")),
    ("network", ConnectionError("Download failure")),
    ("network", RuntimeError("connection timeout")),
    ("network", TimeoutError("The read operation timed out")),
    ("network", OSError("Network is unreachable")),
    ("configuration", ValueError("Invalid hyperparameters: learning rate must be positive")),
    ("configuration", ValueError("invalid config: epochs must be positive")),
    ("configuration", ValueError("invalid argument: --epochs")),
]
_IN_GENERAL = "is taken for an error of the training in general"
# Each with what it is taken for today.
UNKNOWN_YET: list[tuple[str, BaseException, str]] = [
    ("data_loading", FileNotFoundError(2, "No such file", "data/cats"), "is taken for a matter of configuration"),
    ("model_creation", ValueError("Invalid architecture: unknown layer type 'conv9'"), _IN_GENERAL),
    ("model_creation", ValueError("optimizer got an empty parameter list"), _IN_GENERAL),
    ("memory", RuntimeError("not enough memory: you tried to allocate 8192 bytes."), _IN_GENERAL),
    ("checkpoint", RuntimeError("Corrupt checkpoint file"), _IN_GENERAL),
    ("network", TimeoutError("timeout"), _IN_GENERAL),
    ("configuration", ValueError("Invalid hyperparameters"), _IN_GENERAL),
    ("unknown", Exception("something"), _IN_GENERAL),
]


def found(error: BaseException) -> str:
    """The category that an error has without being given one."""
    return str(ModalMonitor().handle_error(error)["category"])


def test_eight_categories_by_name_and_value() -> None:
    assert {each.name: each.value for each in ErrorCategory} == CATEGORIES


def test_examples_and_words_of_each_category() -> None:
    wrong = [(wanted, repr(error), found(error)) for wanted, error in KNOWN if found(error) != wanted]
    assert wrong == []


@pytest.mark.parametrize(
    ("wanted", "error"),
    [
        pytest.param(
            wanted,
            error,
            id=str(error),
            marks=pytest.mark.xfail(strict=True, raises=AssertionError, reason=f"{error!r} {taken_for}"),
        )
        for wanted, error, taken_for in UNKNOWN_YET
    ],
)
def test_examples_that_are_not_known_yet(wanted: str, error: BaseException) -> None:
    assert found(error) == wanted


def test_a_category_that_the_training_names_counts() -> None:
    error = RuntimeError("CUDA out of memory")
    taken = [ModalMonitor().handle_error(error, category=category)["category"] for category in ErrorCategory]
    assert taken == list(CATEGORIES.values())
