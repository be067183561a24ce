"""What the end of a command's output says."""

from tests.cases import cases
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


@cases("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
def test_an_output_in_utf_16_names_its_failure(encoding: str) -> None:
    tail = Tail()
    tail.add(TRACE.encode(encoding))
    outcome = command_outcome(1, tail)
    assert outcome.reason == "RuntimeError: CUDA error: device-side assert triggered"
    assert outcome.traceback and "loss.backward()" in outcome.traceback


def test_nul_bytes_are_no_part_of_a_line() -> None:
    assert command_outcome(1, _tail("one\n\0\0out of luck\n")).reason == (
        "the command ended with status 1; its last line: out of luck"
    )


RANKS = """[rank0]: Traceback (most recent call last):
[rank1]: Traceback (most recent call last):
[rank0]:   File "train.py", line 3, in <module>
[rank1]:   File "train.py", line 9, in <module>
[rank0]:     dist.all_reduce(grads)
[rank1]:     raise ValueError(f"batch {n} holds no tokens")
[rank0]: RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer [10.0.0.1]:22676
[rank1]: ValueError: batch 7 holds no tokens
torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1) local_rank: 0 (pid: 99) of binary: python
Traceback (most recent call last):
  File "torchrun", line 8, in <module>
    sys.exit(main())
torch.distributed.elastic.multiprocessing.errors.ChildFailedError:
============================================================
"""


@cases("labelled", [True, False])
@cases("first", ["[rank0]", "[rank1]"])
def test_the_rank_that_failed_is_named_and_not_the_one_that_lost_its_peer(first: str, labelled: bool) -> None:
    lines = RANKS.splitlines(keepends=True)
    ranks = [[line for line in lines if line.startswith(rank)] for rank in ("[rank0]", "[rank1]")]
    ordered = ranks if first == "[rank0]" else ranks[::-1]
    log = "".join((*ordered[0], *ordered[1], *lines[8:]))
    if not labelled:
        log = log.replace("[rank0]: ", "").replace("[rank1]: ", "")
    ending = command_outcome(1, _tail(log))
    assert ending.failure is not None
    assert (ending.failure.slug, ending.reason) == ("user_exception", "ValueError: batch 7 holds no tokens")
    assert ending.exception_type == "ValueError"
    assert (ending.traceback or "").endswith("ValueError: batch 7 holds no tokens")


def test_the_lines_of_ranks_may_be_mixed() -> None:
    assert command_outcome(1, _tail(RANKS)).reason == "ValueError: batch 7 holds no tokens"


def test_a_failure_that_the_command_got_over_is_not_its_cause() -> None:
    steps = "".join(f"step {step}/100, loss 2.5\n" for step in range(1, 9))
    ending = command_outcome(1, _tail(f"RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n{steps}bye\n"))
    assert ending.failure is not None
    assert (ending.failure.slug, (ending.reason or "").rpartition("; ")[2]) == ("nonzero_exit", "its last line: bye")


def test_reason_and_failure_are_of_one_record() -> None:
    ending = command_outcome(
        1, _tail(f"node1:1:2 [0] NCCL WARN NET/IB : Got completion from peer with error 12\n{TRACE}")
    )
    assert ending.failure is not None
    assert ending.failure.slug == "nccl_net_ib"
    assert "Got completion from peer" in (ending.reason or "")
    assert ending.exception_type is None


def test_the_key_that_is_missing_is_named_with_its_exception() -> None:
    trace = TRACE.replace("RuntimeError: CUDA error: device-side assert triggered", "KeyError: 'input_ids'")
    assert command_outcome(1, _tail(trace)).reason == "KeyError: 'input_ids'"


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


def test_a_launchers_line_about_a_failed_child_is_not_the_cause() -> None:
    launchers = 'Traceback (most recent call last):\n  File "run.py"\ntorch.elastic.ChildFailedError: \n'
    ending = command_outcome(1, _tail(TRACE + launchers))
    assert ending.exception_type == "RuntimeError"
    assert ending.traceback == TRACE.strip()


def test_a_known_line_explains_more_than_a_bare_status() -> None:
    tail = _tail("step 1\ntorch.cuda.OutOfMemoryError: CUDA out of memory.\ncleaning up\n")
    ending = command_outcome(1, tail)
    assert ending.failure is not None
    assert (ending.failure.slug, ending.exit_code) == ("cuda_oom", 1)
    assert ending.reason == "torch.cuda.OutOfMemoryError: CUDA out of memory."


def test_a_status_that_names_a_cause_counts_before_any_line() -> None:
    for status, slug in ((93, "launcher_stop"), (-9, "killed"), (127, "config_error")):
        ending = command_outcome(status, _tail("CUDA out of memory\n"))
        assert ending.failure is not None
        assert ending.failure.slug == slug


def test_a_crash_that_the_interpreter_reported_is_the_reason() -> None:
    crash = Crash(0, "local:1:0", "h", 1, 0.0, "Segmentation fault", "a.py:3 (f)", "Fatal Python error: …")
    ending = command_outcome(-11, Tail(), crash)
    assert (ending.exit_code, ending.traceback) == (139, "Fatal Python error: …")
    assert "a.py:3" in (ending.reason or "")
