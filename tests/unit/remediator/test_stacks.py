"""Which rank stands out, as an on-call reads it off the stacks of all ranks."""

from __future__ import annotations

from trainwarden.record.capture import StacksHeader
from trainwarden_remediator.act.stacks import Comparison, Place, compare, place_of

_TORCH = "/usr/lib/python3/site-packages/torch"
ALL_REDUCE = (
    (f"{_TORCH}/distributed/distributed_c10d.py", 2501, "all_reduce"),
    (f"{_TORCH}/distributed/c10d_logger.py", 81, "wrapper"),
    ("/home/a/train.py", 88, "step"),
    ("/home/a/train.py", 120, "main"),
)
LOADER = (
    ("/usr/lib/python3.11/threading.py", 327, "wait"),
    ("/usr/lib/python3.11/queue.py", 180, "get"),
    (f"{_TORCH}/utils/data/dataloader.py", 700, "_next_data"),
    (f"{_TORCH}/utils/data/dataloader.py", 650, "__next__"),
    ("/home/a/data.py", 41, "batches"),
    ("/home/a/train.py", 80, "main"),
)
HERE = ((("/home/a/train.py"), 12, "compute"),)


def _rank(
    rank: int, frames: tuple[tuple[str, int, str], ...], state: str | None = None, waits_in: str | None = None
) -> tuple[int, tuple[StacksHeader, Place | None]]:
    lines = [f'  File "{path}", line {number} in {name}' for path, number, name in frames]
    text = 'Thread 0x9 [other] (most recent call first):\n  File "x.py", line 1 in x\n\n'
    text += "\n".join(["Thread 0x1 [MainThread] (most recent call first):", *lines]) + "\n\n"
    head = StacksHeader(rank=rank, attempt_key="k", intent="i", thread="0x1", state=state, waits_in=waits_in)
    return rank, (head, place_of(head, text))


def _compare(*ranks: tuple[int, tuple[StacksHeader, Place | None]], silent: tuple[int, ...] = ()) -> Comparison:
    return compare(dict(ranks), silent, {3: "node-7", 2: "node-9"})


def test_the_rank_outside_of_the_collective_is_the_suspect() -> None:
    found = _compare(*(_rank(rank, ALL_REDUCE) for rank in range(3)), _rank(3, LOADER))
    assert found.text == (
        "ranks 0 and 1 and 2 (node-9) in all_reduce at train.py:88; rank 3 (node-7) in __next__ at data.py:41"
    )
    assert found.suspect == "rank 3 (node-7): in __next__ at data.py:41, where 3 wait in a collective operation"


def test_a_rank_that_gives_no_answer_is_the_suspect_and_the_others_are_kept() -> None:
    found = _compare(*(_rank(rank, ALL_REDUCE) for rank in (0, 1, 4, 5)), silent=(2,))
    assert found.text == (
        "4 ranks in all_reduce at train.py:88; "
        "rank 2 (node-9) without an answer: stopped, gone, or holding the interpreter"
    )
    assert found.suspect == "rank 2 (node-9): no answer, where 4 answered"


def test_where_all_are_in_one_place_none_stands_out() -> None:
    found = _compare(*(_rank(rank, ALL_REDUCE) for rank in range(8)))
    assert (found.text, found.suspect) == ("8 ranks in all_reduce at train.py:88", "")


def test_where_most_give_no_answer_none_stands_out() -> None:
    assert _compare(silent=(0, 1)) == Comparison("no answer of ranks 0 and 1", "")
    assert _compare(_rank(0, HERE), silent=(1, 2, 3)).suspect == ""


def test_two_ranks_of_which_one_waits_for_the_other() -> None:
    assert _compare(_rank(0, ALL_REDUCE), _rank(3, HERE)).suspect == (
        "rank 3 (node-7): in compute at train.py:12, where 1 wait in a collective operation"
    )
    # Nothing shows which of two is right where neither waits for the other.
    assert _compare(_rank(0, LOADER), _rank(3, HERE)).suspect == ""


def test_one_of_eight_in_another_place_stands_out_without_a_collective() -> None:
    found = _compare(*(_rank(rank, HERE) for rank in (0, 1, 2, 4, 5, 6, 7)), _rank(3, LOADER))
    assert found.suspect == "rank 3 (node-7): not where the other 7 are"


def test_a_rank_that_the_kernel_does_not_let_go_is_shown() -> None:
    found = _compare(_rank(0, ALL_REDUCE), _rank(3, HERE, state="D", waits_in="nfs_wait_bit_killable"))
    assert found.text.endswith("; rank 3 (node-7) waiting in the kernel (nfs_wait_bit_killable)")


def test_names_of_programs_cannot_forge_lines_and_are_short() -> None:
    found = _compare(_rank(0, (("/x/\x1b[31m" + "a" * 200, 1, "f" * 200),)), _rank(1, ()))
    assert "\x1b" not in found.text
    assert len(found.text) < 400
    assert "rank 1 in an unreadable place" in found.text
