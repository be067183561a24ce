"""An exception and the last line of its traceback are the same failure."""

import errno
import os
import traceback

from tests.cases import cases
from trainwarden.classify import classify_exception
from trainwarden.exec.outcome import command_outcome
from trainwarden.exec.tail import Tail
from trainwarden.failures.records import cause_in

NUMBERS = ("ENOENT", "EACCES", "ENOSPC", "EIO", "ESTALE", "EROFS", "ECONNRESET", "EMFILE", "ETIMEDOUT", "EADDRINUSE")
RAISED = {
    **{name: OSError(getattr(errno, name), os.strerror(getattr(errno, name)), "/data/x") for name in NUMBERS},
    "a checkpoint that is missing": FileNotFoundError(errno.ENOENT, "No such file or directory", "/ckpt/model.pt"),
    "a shard that is missing": FileNotFoundError(errno.ENOENT, "No such file or directory", "/c/__0_0.distcp"),
    "shared memory": OSError(errno.ENOSPC, "No space left on device", "/dev/shm/x"),
    "a move": FileNotFoundError(errno.ENOENT, "No such file or directory", "/a", None, "/b"),
    "a module": ModuleNotFoundError("No module named 'apex'"),
    "an interrupt": KeyboardInterrupt(),
    "memory": MemoryError(),
    "silence": TimeoutError("timed out"),
    "an end": EOFError(),
    "text": UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"),
    "names": KeyError("CUDA out of memory"),
    "a message": RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
    "the script itself": ValueError("wrong shape"),
}


def failure_of(text: str) -> str | None:
    cause = cause_in(text)
    return cause.failure if cause else None


@cases("exc", RAISED.values(), ids=RAISED.keys())
def test_the_last_line_of_a_traceback_is_the_failure_that_the_exception_is(exc: BaseException) -> None:
    last = traceback.format_exception_only(type(exc), exc)[-1]
    assert failure_of(f"Traceback (most recent call last):\n{last}") == classify_exception(exc).slug


@cases(
    ("line", "slug"),
    [
        ("torch.OutOfMemoryError: no words", "cuda_oom"),
        ("requests.exceptions.ConnectionError: no words", "hub_network"),
        ("ray.exceptions.OutOfDiskError: no words", "storage_quota"),
        ("some.library.OddError: NCCL error: unhandled system error", "nccl_system"),
        ("builtins: x", None),
        ("print: x", None),
    ],
)
def test_types_of_libraries_are_known_by_their_names(line: str, slug: str | None) -> None:
    assert failure_of(line) == slug


def printed(*lines: str) -> Tail:
    tail = Tail()
    tail.add("\n".join([*lines, "Traceback (most recent call last):", '  File "t.py", line 1, in <module>']).encode())
    tail.add(b"\nFileNotFoundError: [Errno 2] No such file or directory: '/nope'\n")
    return tail


def test_a_command_that_misses_a_file_is_distinguished_from_one_with_a_bug() -> None:
    ending = command_outcome(1, printed())
    assert ending.failure is not None and ending.failure.slug == "storage_missing"


def test_a_grave_failure_before_it_explains_a_missing_file() -> None:
    ending = command_outcome(1, printed("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB"))
    assert ending.failure is not None and ending.failure.slug == "cuda_oom"


def test_a_launcher_that_reports_an_interrupt_as_status_1_was_cancelled() -> None:
    tail = Tail()
    tail.add(b'Traceback (most recent call last):\n  File "t.py", line 1, in <module>\nKeyboardInterrupt\n')
    assert command_outcome(1, tail).status == "cancelled"
