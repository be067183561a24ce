"""What the end of a command's output says."""

from trainwarden.exec.outcome import command_outcome
from trainwarden.exec.tail import KEPT_BYTES, Tail, Trace, trace_with
from trainwarden.record.crash import Crash

TRACE = """Traceback (most recent call last):
  File "train.py", line 3, in <module>
    loss.backward()
RuntimeError: CUDA error: device-side assert triggered
"""


def _tail(text: str) -> Tail:
    tail = Tail()
    tail.add(text.encode())
    return tail


def _trace(text: str) -> Trace | None:
    """The traceback that ends in the output, whatever follows it."""
    lines = _tail(text).text().split("\n")
    last = max((index for index, line in enumerate(lines) if "Error" in line), default=-1)
    return trace_with(lines, last)


def test_it_keeps_a_bounded_end_of_whatever_passes() -> None:
    tail = Tail()
    for _ in range(200):
        tail.add(b"\xff\x00 no line end ever" * 1000)
    assert len(tail._kept) <= 2 * KEPT_BYTES + 20_000
    tail.add(b"\nthe last\r\n")
    assert tail.text().rstrip().endswith("\nthe last")


def test_a_trace_is_found_among_other_lines_and_taken_apart() -> None:
    trace = _trace(f"step 1\n{TRACE}\nbye\n")
    assert trace is not None
    assert trace.exception_type == "RuntimeError"
    assert trace.message == "CUDA error: device-side assert triggered"
    assert trace.text == TRACE.strip()


def test_labels_of_launchers_and_colours_do_not_hide_it() -> None:
    labelled = "".join(f"[rank0]: {line}\n" for line in TRACE.splitlines())
    trace = _trace(f"\x1b[31m{labelled}\x1b[0m")
    assert trace is not None
    assert trace.exception_type == "RuntimeError"


def test_what_a_launcher_says_of_a_failed_child_is_not_why_it_failed() -> None:
    launchers = 'Traceback (most recent call last):\n  File "run.py"\ntorch.elastic.ChildFailedError: \n'
    ending = command_outcome(1, _tail(TRACE + launchers))
    assert ending.exception_type == "RuntimeError"
    assert ending.traceback == TRACE.strip()


def test_a_line_that_is_known_says_more_than_a_bare_status() -> None:
    tail = _tail("step 1\ntorch.cuda.OutOfMemoryError: CUDA out of memory.\ncleaning up\n")
    ending = command_outcome(1, tail)
    assert ending.failure is not None
    assert (ending.failure.slug, ending.exit_code) == ("cuda_oom", 1)
    assert ending.reason == "torch.cuda.OutOfMemoryError: CUDA out of memory."


def test_a_status_that_speaks_is_believed_before_any_line() -> None:
    for status, slug in ((93, "launcher_stop"), (-9, "killed"), (127, "config_error")):
        ending = command_outcome(status, _tail("CUDA out of memory\n"))
        assert ending.failure is not None
        assert ending.failure.slug == slug


def test_a_crash_that_the_interpreter_told_of_is_the_reason() -> None:
    crash = Crash(0, "local:1:0", "h", 1, 0.0, "Segmentation fault", "a.py:3 (f)", "Fatal Python error: …")
    ending = command_outcome(-11, Tail(), crash)
    assert (ending.exit_code, ending.traceback) == (139, "Fatal Python error: …")
    assert "a.py:3" in (ending.reason or "")
