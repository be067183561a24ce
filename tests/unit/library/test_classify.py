"""What Python raises finds its failure, through wrappers, causes and what was being handled; so does an exit status."""

import builtins
import io
import json
import pickle
import socket
import ssl
import subprocess
import sys
import zipfile
from collections.abc import Callable
from email.message import Message
from http.client import RemoteDisconnected
from typing import Any
from urllib.error import HTTPError

import numpy as np
import pytest

import trainwarden
from tests.cases import cases
from tests.unit.library.looking import classify_exit
from trainwarden.classify import classify_exception
from trainwarden.taxonomy import FAILURES


def _raised(call: Callable[[], object]) -> BaseException:
    try:
        call()
    except BaseException as error:  # noqa: BLE001  # whatever the case raises
        return error
    raise AssertionError("nothing was raised")


def _error(exc: BaseException) -> Callable[[], object]:
    def call() -> None:
        raise exc

    return call


def _chained(outer: BaseException, inner: BaseException) -> Callable[[], object]:
    def call() -> None:
        try:
            raise inner
        except type(inner) as cause:
            raise outer from cause

    return call


def _handled(outer: BaseException, inner: BaseException) -> Callable[[], object]:
    def call() -> None:
        try:
            raise inner
        except type(inner):
            raise outer  # noqa: B904  # the implicit context is what is tested

    return call


def _hidden(outer: BaseException, inner: BaseException) -> Callable[[], object]:
    def call() -> None:
        try:
            raise inner
        except type(inner):
            raise outer from None

    return call


def _ray_task_error(cause: BaseException) -> BaseException:
    kind: Any = type("RayTaskError", (Exception,), {"__module__": "ray.exceptions", "cause": cause})
    made: BaseException = kind("a long text")
    return made


CASES: dict[str, tuple[Callable[[], object], str]] = {
    "numpy without memory": (lambda: np.ones(10**15), "host_oom"),
    "a truncated pickle": (lambda: pickle.load(io.BytesIO()), "ckpt_corrupt"),
    "a file that is no zip": (lambda: zipfile.ZipFile(io.BytesIO(b"not a zip")).close(), "ckpt_corrupt"),
    "a missing checkpoint": (lambda: open("/nowhere/iter_0000100/x.pt"), "ckpt_missing"),  # noqa: PTH123, SIM115
    "another missing file": (lambda: open("/nowhere/x.txt"), "storage_missing"),  # noqa: PTH123, SIM115
    "undecodable data": (b"\xff".decode, "data_corrupt"),
    "a missing package": (lambda: __import__("no_such_package"), "missing_module"),
    "a reset": (_error(ConnectionResetError(104, "Connection reset by peer")), "peer_reset"),
    "a broken pipe": (_error(BrokenPipeError(32, "Broken pipe")), "peer_reset"),
    "an end of file from a peer": (_error(EOFError()), "peer_reset"),
    "a silent peer": (_error(TimeoutError("timed out")), "peer_timeout"),
    "a rendezvous": (_error(TimeoutError("rendezvous at 10.0.0.1:1: ranks [1] did not come")), "rendezvous"),
    "a port in use": (_error(OSError(98, "Address already in use")), "rendezvous"),
    "a full disk": (_error(OSError(28, "No space left on device")), "storage_quota"),
    "a quota": (_error(OSError(122, "Disk quota exceeded")), "storage_quota"),
    "a read-only disk": (_error(OSError(30, "Read-only file system")), "storage_io"),
    "a NaN by type": (_error(FloatingPointError("at step 3")), "numeric"),
    "a NaN by message": (_error(ValueError("loss is NaN at step 3")), "numeric"),
    "torch without GPU memory": (_error(RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")), "cuda_oom"),
    "a bad kernel": (
        _error(RuntimeError("CUDA error: an illegal memory access was encountered")),
        "cuda_illegal_access",
    ),
    "a device assert": (_error(RuntimeError("CUDA error: device-side assert triggered")), "device_assert"),
    "NCCL": (_error(RuntimeError("NCCL error in: x.cpp:1, unhandled system error")), "nccl_system"),
    "a collective's watchdog": (
        _error(RuntimeError("Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)")),
        "nccl_watchdog_timeout",
    ),
    "another model": (_error(RuntimeError("size mismatch for h.0.weight")), "ckpt_mismatch"),
    "the script itself": (_error(KeyError("lr")), "user_exception"),
    "a known cause": (_chained(RuntimeError("step failed"), MemoryError()), "host_oom"),
    "a known context": (_handled(RuntimeError("step failed"), ConnectionResetError()), "peer_reset"),
    "a training inside an except": (_handled(MemoryError(), FileNotFoundError(2, "x", "ckpt")), "host_oom"),
    "a certificate, whose number means another thing": (
        _error(ssl.SSLCertVerificationError(1, "[SSL: CERTIFICATE_VERIFY_FAILED] certificate verify failed")),
        "hub_network",
    ),
    "a name that cannot be resolved": (_error(socket.gaierror(-2, "Name or service not known")), "hub_network"),
    "a page that is not there": (_error(HTTPError("http://h/x", 404, "Not Found", Message(), None)), "hub_auth"),
    "a server in trouble": (_error(HTTPError("http://h/x", 503, "Busy", Message(), None)), "hub_network"),
    "a server that hangs up": (_error(RemoteDisconnected("Remote end closed connection")), "hub_network"),
    "a full /dev/shm": (_error(OSError(28, "No space left on device", "/dev/shm/torch_1")), "shm_exhausted"),
    "a shard that was never written": (_error(FileNotFoundError(2, "x", "/c/step_9/__3_0.distcp")), "ckpt_corrupt"),
    "a data file": (_error(FileNotFoundError(2, "x", "/data/train.jsonl.gz")), "data_missing"),
    "a folder named data proves nothing": (
        _error(FileNotFoundError(2, "x", "/data/user/notes.json")),
        "storage_missing",
    ),
    "too many files": (_error(OSError(24, "Too many open files")), "resource_limit"),
    "a lost mount": (_error(OSError(116, "Stale file handle", "/mnt/x")), "storage_io"),
    "a timer of the system": (_error(TimeoutError(110, "Connection timed out")), "peer_timeout"),
    "an interrupt": (_error(KeyboardInterrupt()), "cancelled"),
    "an exit that asks to stay down": (_error(SystemExit(93)), "launcher_stop"),
    "an exit with a text": (_error(SystemExit("no such flag")), "user_exception"),
    "a wrapper and its root": (
        _chained(RuntimeError("failed to save checkpoint"), OSError(28, "No space left on device")),
        "storage_quota",
    ),
    "a wrapper that knows more than its cause": (
        _chained(ValueError("No valid checkpoint found in output directory"), FileNotFoundError(2, "x", "latest")),
        "ckpt_missing",
    ),
    "a cause that is a consequence": (
        _chained(RuntimeError("CUDA out of memory. Tried to allocate"), ConnectionResetError()),
        "cuda_oom",
    ),
    "an end of file while a process of grave failure cleans up": (
        _handled(BrokenPipeError(32, "Broken pipe"), RuntimeError("CUDA error: device-side assert triggered")),
        "device_assert",
    ),
    "a reset of a training inside an except": (
        _handled(ConnectionResetError(), FileNotFoundError(2, "x", "ckpt")),
        "peer_reset",
    ),
    "a context that was hidden": (_hidden(ValueError("x"), MemoryError()), "user_exception"),
    "Ray's task": (_error(_ray_task_error(OSError(122, "Disk quota exceeded"))), "storage_quota"),
}


@cases("case", CASES)
def test_an_exception_finds_its_entry(case: str) -> None:
    call, slug = CASES[case]
    assert classify_exception(_raised(call)).slug == slug


def _group(message: str, members: list[BaseException]) -> BaseException:
    """A group of exceptions, of Python's own type or as the package for Python 3.10 makes it."""
    known: Any = vars(builtins).get("BaseExceptionGroup")
    made: Any = known or type("BaseExceptionGroup", (BaseException,), {"exceptions": tuple(members)})
    group: BaseException = made(message, members)
    return group


def test_of_a_group_the_member_that_explains_most_counts() -> None:
    members: list[BaseException] = [
        ValueError("x"),
        ConnectionResetError(),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
    ]
    group = _group("both", [KeyError("a"), _group("loaders", members)])
    assert classify_exception(group).slug == "cuda_oom"


def test_what_was_being_handled_before_the_call_can_be_left_out() -> None:
    ambient = ConnectionResetError()
    error = _raised(_handled(ValueError("a bug"), ambient))
    assert classify_exception(error).slug == "peer_reset"
    assert classify_exception(error, ambient=ambient).slug == "user_exception"


@pytest.mark.parametrize("error", [EOFError(), OSError(22, "Invalid argument")], ids=repr)
def test_what_a_damaged_file_makes_its_reader_raise_is_known_by_the_reader(error: Exception) -> None:
    reader: dict[str, Any] = {"__name__": "torch.serialization", "error": error}
    exec("def load(): raise error", reader)
    assert classify_exception(_raised(reader["load"])).slug == "ckpt_corrupt"


def test_the_public_functions_give_the_entry_and_what_to_do() -> None:
    error = RuntimeError("CUDA out of memory. Tried to allocate 2 GiB")
    assert trainwarden.classify_exception(error) is FAILURES["cuda_oom"]
    assert trainwarden.recovery_suggestion(error) == FAILURES["cuda_oom"].hint
    assert "traceback" in trainwarden.recovery_suggestion(KeyError("memory"))


@cases(
    ("status", "slug"),
    [
        (1, "nonzero_exit"),
        (2, "config_error"),
        (93, "launcher_stop"),
        (-9, "killed"),
        (137, "killed"),
        (-11, "crash_signal"),
        (134, "crash_signal"),
        (-15, "cancelled"),
        (143, "cancelled"),
        (130, "cancelled"),
        (255, "nonzero_exit"),
        (-99, "killed"),
    ],
)
def test_an_exit_status_finds_its_entry(status: int, slug: str) -> None:
    assert classify_exit(status).slug == slug


def test_status_0_is_no_failure_and_a_bare_kill_is_of_unknown_type() -> None:
    assert classify_exit(0) is None
    assert classify_exit(-9).error_type == "unknown"
    assert classify_exit(-9).retryable


@pytest.mark.process
def test_it_can_be_listed_without_loading_what_it_talks_about() -> None:
    code = (
        "import json, sys, trainwarden.classify; print(json.dumps([m for m in ('numpy', 'torch') if m in sys.modules]))"
    )
    assert json.loads(subprocess.run([sys.executable, "-c", code], capture_output=True, check=True).stdout) == []
