"""Messages of tools are classified, and messages that only resemble a failure are not."""

import builtins
from typing import Any

import pytest

from tests.cases import cases
from tests.unit.library import gpu_messages, training_messages
from tests.unit.library.training_messages import TRAPS
from trainwarden.classify import classify_exception, classify_message

ALL = [
    *gpu_messages.GPU,
    *gpu_messages.MEMORY,
    *gpu_messages.DISTRIBUTED,
    *training_messages.NETWORK,
    *training_messages.STORAGE,
    *training_messages.PROGRAM,
    *training_messages.SCHEDULER,
    *TRAPS,
]


def raised_as(kind: str, message: str) -> BaseException:
    """An exception of a type by that name: `module.Name`, or `module.Name:Base` with a base of the same module."""
    name, _, base = kind.partition(":")
    module, _, name = name.rpartition(".")
    parent = type(base, (Exception,), {"__module__": module}) if base else Exception
    known = getattr(builtins, name, None) if not module else None
    made: Any = known or type(name, (parent,), {"__module__": module or "torch"})
    error: BaseException = made(message)
    return error


@cases(("kind", "message", "slug"), ALL, ids=[f"{slug}-{n}" for n, (*_, slug) in enumerate(ALL)])
def test_an_exception_with_a_tool_s_message_finds_its_failure(kind: str, message: str, slug: str) -> None:
    if kind == "str":
        found = classify_message(message)
        assert found
        assert found.slug == slug
    else:
        assert classify_exception(raised_as(kind, message)).slug == slug


@cases("message", [message for kind, message, slug in TRAPS if slug == "user_exception"])
def test_a_message_that_only_sounds_like_a_failure_is_none(message: str) -> None:
    assert classify_message(message) is None


def test_a_name_that_cannot_be_imported_is_not_what_it_sounds_like() -> None:
    missing = classify_message("cannot import name 'rendezvous' from 'torch.distributed'")
    assert missing
    assert missing.slug == "missing_module"
    known = classify_message("'X' object has no attribute 'y'\nloss is nan")
    assert known
    assert known.slug == "numeric"


def test_there_are_enough_messages_to_trust() -> None:
    assert len(ALL) >= 150
    assert len({slug for *_, slug in ALL}) >= 50


@cases(
    ("message", "slug"),
    [
        ("NCCL timeout", "nccl_watchdog_timeout"),
        ("Watchdog timed out after 600 seconds", "stall"),
        ("CUDA hang detected", "stall"),
        ("Loss is NaN", "numeric"),
        ("NaN loss detected", "numeric"),
        ("disk full", "storage_quota"),
        ("out of memory", "cuda_oom"),
        ("OOM", "cuda_oom"),
        ("RuntimeError: OOM on rank 3", "cuda_oom"),
        ("dataset not found: /data/c4", "data_missing"),
        ("Invalid learning rate: -0.1", "config_error"),
        ("Torch not compiled with CUDA", "config_error"),
    ],
)
def test_the_short_name_of_a_failure_is_its_whole_message(message: str, slug: str) -> None:
    found = classify_message(message)
    assert found
    assert found.slug == slug
    assert classify_exception(RuntimeError(message)).slug == slug


@cases("message", ["config", "network", "step 5 on rank 3", "OOM killer tests passed; see the page", "x" * 5000, ""])
def test_a_word_is_no_short_name(message: str) -> None:
    assert classify_message(message) is None


@pytest.mark.parametrize(
    ("error", "slug"),
    [(TimeoutError("connection timeout"), "peer_timeout"), (OSError("network unreachable"), "peer_timeout")],
    ids=repr,
)
def test_a_short_message_counts_with_its_type(error: Exception, slug: str) -> None:
    assert classify_exception(error).slug == slug


def test_a_word_of_a_log_line_is_no_failure() -> None:
    assert classify_message("step 1 loss 2.0\nOOM\nstep 2 loss 1.9\n") is None
